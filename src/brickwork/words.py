"""Numbers, lists and tables in text."""

from collections.abc import Iterable, Sequence
from typing import Any


def counted(number: int, noun: str) -> str:
    """A number of things, in the plural unless it is one.

    >>> counted(1, "class"), counted(2, "class"), counted(0, "category"), counted(1200, "row")
    ('1 class', '2 classes', '0 categories', '1,200 rows')
    """
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("s"):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def some_of(names: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """The first few of a list.

    >>> some_of(["a", "b"]), some_of(list("abcde"))
    ('a, b', 'a, b, c and 2 more')
    """
    return between.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def sides(shape: Iterable[int], none: str = "-") -> str:
    """
    >>> sides((3, 32, 32))
    '3×32×32'
    """
    return "×".join(map(str, shape)) or none


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


def scores_text(scores: dict[str, float] | None) -> str:
    """Accuracy, and the mean IoU of a segmenter."""
    if not scores:
        return "–"
    more = f" (IoU {scores['mean_iou']:.1%})" if "mean_iou" in scores else ""
    return f"{scores['accuracy']:.2%}{more}"


def facts_line(value: Any, most: int = 160) -> str:
    """JSON values in one line for people: hashes shortened, what is empty or unset left out, cut off where it gets long.

    >>> facts_line({"method": "match", "images": [687, 713], "base": None, "accuracy": {"A": 0.98130841}})
    'method match, images 687 713, accuracy (A 0.9813)'
    """
    line = _fact(value)
    return line if len(line) <= most else f"{line[:most].rstrip(' ,')} …"


def _fact(value: Any) -> str:
    if isinstance(value, dict):
        parts = {
            name: _fact(one)
            for name, one in value.items()
            if one is not None and one is not False and one not in ("", [], {}, ())
        }
        return ", ".join(
            f"{name} ({part})" if isinstance(value[name], dict) else f"{name} {part}" for name, part in parts.items()
        )
    if isinstance(value, list | tuple):
        return " ".join(f"({_fact(one)})" if isinstance(one, dict) else _fact(one) for one in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    text = "" if value is None else str(value)
    return text[:16] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
