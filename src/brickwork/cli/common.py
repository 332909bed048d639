"""What every verb shares: its options, how it prints, how it fails."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.errors import BrickworkError, RequestError


class Device(StrEnum):
    """Where to compute."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Statistics(StrEnum):
    """What becomes of batch-norm statistics when weights are added up."""

    linear = "linear"
    keep = "keep"


JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout; logs go to stderr.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of every random number.")]
DeviceOption = Annotated[Device, typer.Option("--device", help="Where to compute.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the output if it is there already.")]
OutOption = Annotated[Path, typer.Option("--out", help="Folder to write.", show_default=False)]
ArgsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--arg", metavar="NAME=VALUE", help="Argument of the architecture, e.g. --arg stem=imagenet; repeatable."
    ),
]
ArchOption = Annotated[
    str | None, typer.Option("--arch", help="package.module:factory, for a folder of an architecture of your own.")
]


StatisticsOption = Annotated[
    Statistics, typer.Option("--bn", help="Batch-norm statistics: added up like weights, or kept.")
]


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


def typed(context: typer.Context) -> list[str]:
    """The parameters that were given on the command line, by their names in Python."""
    return [n for n in context.params if getattr(context.get_parameter_source(n), "name", "") == "COMMANDLINE"]


def parse_args(pairs: Iterable[str] | None) -> dict[str, Any]:
    """`NAME=VALUE` options as a dictionary; a value is JSON where it reads as JSON, else text.

    >>> parse_args(["num_classes=5", "stem=imagenet", "batch_norm=false"])
    {'num_classes': 5, 'stem': 'imagenet', 'batch_norm': False}
    """
    result: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise RequestError(f"--arg takes NAME=VALUE, not {pair!r}; for example --arg num_classes=5.")
        result[name] = text
        with contextlib.suppress(json.JSONDecodeError):
            result[name] = json.loads(text)
    return result


def parse_shape(text: str) -> tuple[int, ...]:
    """`3x32x32` (or `3,32,32`) as numbers.

    >>> parse_shape("3x32x32")
    (3, 32, 32)
    """
    parts = text.replace("×", "x").replace(",", "x").split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise RequestError(f"--input takes the shape of one example, as in 3x32x32, not {text!r}.")
    return tuple(int(part) for part in parts)


def emit(data: dict[str, Any], text: str, *, as_json: bool) -> None:
    """The result of a verb on stdout: one JSON object, or text for people."""
    typer.echo(json.dumps(_finite(data), ensure_ascii=False, allow_nan=False) if as_json else text)


def _finite(value: Any) -> Any:
    """JSON knows no NaN and no infinity: what has no value is null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def log(message: str) -> None:
    """One line for people, on stderr: stdout belongs to the result."""
    typer.echo(message, err=True)


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Aligned columns: text to the left, numbers to the right.

    >>> print(table(["name", "size"], [["conv1", 1200], ["fc", 8]]))
    name    size
    conv1  1,200
    fc         8
    """
    body = [list(row) for row in rows]
    shown = [[f"{v:,}" if isinstance(v, int) else str(v) for v in row] for row in body]
    widths = [max(len(line[i]) for line in [list(headers), *shown]) for i in range(len(headers))]
    kinds = [{type(row[i]) for row in body if row[i] != ""} for i in range(len(headers))]
    right = [bool(kind) and all(issubclass(k, int | float) for k in kind) for kind in kinds]
    lines = []
    for line in [list(headers), *shown]:
        cells = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def reporting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Run a verb; every failure is one message on stderr and an exit code, with a traceback under --debug."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        debug = bool(kwargs.get("debug"))
        try:
            return command(*args, **kwargs)
        except BrickworkError as error:
            complain(str(error), debug)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            complain("stopped by Ctrl-C; nothing half-written was left behind.", debug)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # `brickwork info … | head`: the reader has seen enough
            raise
        except Exception as error:
            if is_typers(error):
                raise
            if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):  # some imports swallow it
                complain("stopped by Ctrl-C; nothing half-written was left behind.", debug)
                raise typer.Exit(130) from None
            what = f"{type(error).__name__}: {error}"
            hint = "" if debug else " This looks like a fault of Brickwork; run again with --debug to see where."
            complain(f"unexpected {what}.{hint}", debug)
            raise typer.Exit(1) from None

    return run


def is_typers(error: Exception) -> bool:
    """typer's own ways out (Exit, Abort, BadParameter) are not faults; they have no common base class."""
    return type(error).__module__.split(".")[0] in ("typer", "click")


def complain(message: str, debug: bool = False) -> None:
    if debug:
        traceback.print_exc()
    sys.stdout.flush()
    typer.echo(f"brickwork: {message}", err=True)
