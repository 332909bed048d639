"""Numbers in sentences."""

from __future__ import annotations


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
