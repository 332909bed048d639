"""What a command prints: the result on stdout, everything else on stderr; tables; the line that was typed."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import click

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
    click.echo(json.dumps(finite(data), ensure_ascii=False, allow_nan=False) if as_json else text)


def finite(value: Any) -> Any:
    """JSON knows no NaN and no infinity: what has no value is null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def log(message: str) -> None:
    """One line for people, on stderr: stdout belongs to the result."""
    click.echo(message, err=True)


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


def percent(scores: dict[str, float] | None) -> str:
    """Accuracy, and the mean IoU of a segmenter."""
    if not scores:
        return "–"
    more = f" (IoU {scores['mean_iou']:.1%})" if "mean_iou" in scores else ""
    return f"{scores['accuracy']:.2%}{more}"


def sides(shape: Iterable[int]) -> str:
    """
    >>> sides((3, 32, 32))
    '3×32×32'
    """
    return "×".join(map(str, shape)) or "-"
