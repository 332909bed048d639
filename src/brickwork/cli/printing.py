"""What a command prints: the result on stdout, everything else on stderr; the line that was typed."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click

from brickwork.results import json_values

_LINE: list[str] = []  # what was typed, for figures that say how they were made


def remember(arguments: Sequence[str]) -> None:
    """The words behind `brickwork` on this command line."""
    _LINE[:] = list(arguments)


def typed_line() -> str:
    """This command as it was typed, to run again; without what changes nothing in its result."""
    words, left = [], iter(_LINE)
    for word in left:
        if word == "--device":
            next(left, None)
        elif not word.startswith("--device=") and word not in ("--force", "--json", "--debug"):
            words.append(word)
    return shlex.join(["brickwork", *words])


def emit(data: dict[str, Any], text: str, *, as_json: bool) -> None:
    """The result of a command on stdout: one JSON object, or text for people."""
    # a stream of other letters than UTF-8's is given JSON's own escapes
    plain = (getattr(sys.stdout, "encoding", None) or "utf-8").lower() not in ("utf-8", "utf8")
    click.echo(json.dumps(json_values(data), ensure_ascii=plain, allow_nan=False) if as_json else text)


def log(message: str) -> None:
    """One line for people, on stderr: stdout belongs to the result."""
    if is_first_process():
        click.echo(message, err=True)


def is_first_process() -> bool:
    """Under torchrun, the first process alone writes and prints."""
    return os.environ.get("RANK", "0") == "0"
