"""A drawing as a file that `brickwork report` reads: its marks, numbers and key figures as JSON, no code."""

import base64
import json
import math
import re
from dataclasses import fields
from typing import Any, get_type_hints

from brickwork.errors import BadData
from brickwork.report.drawing import Circle, Drawing, Line, Mark, Picture, Polygon, Rectangle, Text

KIND = "brickwork figure"
MARKS: dict[str, type[Mark]] = {
    kind.__name__.lower(): kind for kind in (Rectangle, Circle, Line, Polygon, Picture, Text)
}
COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}|none|transparent")
ANCHORS = ("start", "middle", "end")


def to_json(drawing: Drawing) -> str:
    """The drawing as text; `from_json` gives an equal one back.

    >>> from brickwork.report.drawing import Rectangle
    >>> drawing = Drawing("one", 10, 10, (Rectangle(0, 0, 5, 5, "#123456", "a tip"),), cards=(("best", "97 %"),))
    >>> from_json(to_json(drawing)) == drawing
    True
    """
    value = {f.name: getattr(drawing, f.name) for f in fields(Drawing)}
    return json.dumps({"kind": KIND, **value, "marks": [_listed(m) for m in drawing.marks]}) + "\n"


def from_json(text: str, where: str = "the figure") -> Drawing:
    """A drawing out of a file's text; what is not one is refused, and nothing in it is run."""
    try:
        value = json.loads(text)
        if value.pop("kind") != KIND:
            raise ValueError("of another kind")
        tables = {name: _frozen(value.get(name, [])) for name in ("head", "rows", "cards", "cuts")}
        drawing = Drawing(**{**value, **tables, "marks": tuple(_mark(*mark) for mark in value["marks"])})
        _check(drawing)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadData(
            f"{where} is no figure of brickwork ({type(error).__name__}: {error}); verbs that draw write one: --out x.json."
        ) from error
    return drawing


def _listed(mark: Mark) -> list[Any]:
    """The kind and the values in their order; role and keys, which few marks have, as an object at the end."""
    values = [getattr(mark, f.name) for f in fields(mark) if not f.kw_only]
    values = [base64.b64encode(v).decode() if isinstance(v, bytes) else v for v in values]
    more = [{"role": mark.role, "keys": mark.keys}] if mark.role or mark.keys else []
    return [type(mark).__name__.lower(), *values, *more]


def _mark(kind: str, *values: Any) -> Mark:
    given = [_frozen(value) for value in values]
    more = {name: _frozen(value) for name, value in given.pop().items()} if isinstance(given[-1], dict) else {}
    if kind == "picture":
        given[-1] = base64.b64decode(given[-1], validate=True)
    return MARKS[kind](*given, **more)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _check(drawing: Drawing) -> None:
    """Types, finite numbers, colours that are colours: all of it goes into a page."""
    owners: tuple[Any, ...] = (drawing, *drawing.marks)
    types = {kind: get_type_hints(kind) for kind in set(map(type, owners))}
    for owner in owners:
        for f in fields(owner):
            value = getattr(owner, f.name)
            if types[type(owner)][f.name] is float and not _finite(value):
                raise ValueError(f"{f.name} is {value!r}")
            if f.name == "bend" and value and not (len(value) == 2 and all(map(_finite, value))):
                raise ValueError(f"bend is {value!r}")
            if f.name == "points" and not all(_finite(x) and _finite(y) for x, y in value):
                raise ValueError(f"points are {value!r}")
            if types[type(owner)][f.name] is str and not isinstance(value, str):
                raise ValueError(f"{f.name} is {value!r}")
            if f.name in ("fill", "colour") and not COLOUR.fullmatch(value):
                raise ValueError(f"the colour {value!r}")
            if f.name == "anchor" and value not in ANCHORS:
                raise ValueError(f"the anchor {value!r}")
            if f.name == "keys" and not all(re.fullmatch("[a-z]+", key) and type(n) is int for key, n in value):
                raise ValueError(f"the keys {value!r}")
            if f.name == "png" and not value.startswith(b"\x89PNG\r\n"):
                raise ValueError("a picture that is no PNG")
    cells = [*drawing.head, *(cell for line in (*drawing.rows, *drawing.cards) for cell in line)]
    if not all(isinstance(cell, str) for cell in cells) or any(len(card) != 2 for card in drawing.cards):
        raise ValueError("a table or a card with something else than texts")
    if not (drawing.width > 0 and drawing.height > 0):
        raise ValueError(f"a size of {drawing.width} by {drawing.height}")
    if not all(map(_finite, drawing.cuts)) or any(end <= start for start, end in drawing.panels):
        raise ValueError(f"cuts at {drawing.cuts!r}")


def _finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
