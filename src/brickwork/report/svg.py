"""A drawing as SVG."""

import base64
import re
from html import escape
from typing import Any

from brickwork.report.drawing import INK, Circle, Drawing, Line, Mark, Picture, Polygon, Rectangle, Text

#: a page has the same rules in base.css
STYLE = "<style>rect.t:hover{stroke:#000;stroke-width:1.5}text:not(.t),line,polygon,image{pointer-events:none}</style>"


def write_svg(drawing: Drawing, inline: bool) -> str:
    """The marks in their order, texts last; inline: without name space, size and background, an element per panel."""
    width, height, title = _short(drawing.width), _short(drawing.height), _escaped(drawing.title)
    same = f'role="img" font-family="sans-serif" fill="{INK}">\n<title>{title}</title>'
    marks = sorted(drawing.marks, key=lambda mark: isinstance(mark, Text))
    if inline:
        elements = []
        for start, end in drawing.panels:
            own = [_element(mark) for mark in marks if start <= _left(mark) < end]
            wide = _short(end - start)
            size = f'width="{wide}" ' if drawing.cuts else ""
            elements += [f'<svg {size}viewBox="{_short(start)} 0 {wide} {height}" {same}', *own, "</svg>"]
        return "\n".join(elements) + "\n"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {same}\n{STYLE}\n<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, *map(_element, marks), "</svg>"]) + "\n"


def _left(mark: Mark) -> float:
    """Where a mark stands, which tells its panel."""
    match mark:
        case Line():
            return min(mark.x1, mark.x2)
        case Polygon():
            return min(x for x, _ in mark.points)
    return float(mark.x)  # type: ignore[attr-defined]


def _element(mark: Mark) -> str:
    """One element; attributes without a value are left out."""
    name, own = _shape(mark)
    tip = getattr(mark, "tip", "")
    attributes = {
        "class": " ".join(filter(None, ["t" if tip else "", mark.role])),
        "data-series": getattr(mark, "series", ""),
        **{f"data-{key}": str(value) for key, value in mark.keys},
        **own,
    }
    cells = [f'{key}="{_value(value)}"' for key, value in attributes.items() if value != ""]
    inside = (f"<title>{_escaped(tip)}</title>" if tip else "") + _escaped(getattr(mark, "text", ""))
    return f"<{name} {' '.join(cells)}" + (f">{inside}</{name}>" if inside else "/>")


def _shape(mark: Mark) -> tuple[str, dict[str, Any]]:
    """Name and attributes of a mark's element."""
    match mark:
        case Rectangle():
            return "rect", {**_box(mark), "fill": mark.fill}
        case Circle():
            outline = {"stroke": mark.colour, "stroke-width": 1.5} if mark.colour != "none" else {}
            return "circle", {"cx": mark.x, "cy": mark.y, "r": mark.radius, "fill": mark.fill, **outline}
        case Line():
            look = {"stroke": mark.colour, "stroke-width": mark.width, "stroke-opacity": _unless(mark.opacity, 1)}
            if not mark.bend:
                return "line", {"x1": mark.x1, "y1": mark.y1, "x2": mark.x2, "y2": mark.y2, **look}
            path = f"M{_pair(mark.x1, mark.y1)}Q{_pair(*mark.bend)} {_pair(mark.x2, mark.y2)}"
            return "path", {"d": path, "fill": "none", **look, "stroke-linecap": "round"}
        case Polygon():
            points = " ".join(f"{_short(x)},{_short(y)}" for x, y in mark.points)
            return "polygon", {"points": points, "fill": mark.fill, "fill-opacity": _unless(mark.opacity, 1)}
        case Picture():
            look = {"preserveAspectRatio": "none", "style": "image-rendering:pixelated"}
            return "image", {
                **_box(mark),
                **look,
                "href": f"data:image/png;base64,{base64.b64encode(mark.png).decode()}",
            }
        case Text():
            place = {"x": mark.x, "y": mark.y, "font-size": mark.size, "text-anchor": _unless(mark.anchor, "start")}
            look = {"font-weight": "bold" if mark.bold else "", "fill": _unless(mark.colour, INK)}
            turn = f"rotate({_short(mark.turn)} {_pair(mark.x, mark.y)})" if mark.turn else ""
            halo = {"paint-order": "stroke", "stroke": "#fff", "stroke-width": mark.halo, "stroke-linejoin": "round"}
            return "text", {**place, **look, "transform": turn, **(halo if mark.halo else {})}
    raise TypeError(f"a {type(mark).__name__} is no mark of a drawing")


def _box(mark: Rectangle | Picture) -> dict[str, float]:
    return {"x": mark.x, "y": mark.y, "width": mark.width, "height": mark.height}


def _unless(value: Any, usual: Any) -> Any:
    return "" if value == usual else value


def _pair(x: float, y: float) -> str:
    return f"{_short(x)} {_short(y)}"


def _value(value: str | float) -> str:
    return _escaped(value) if isinstance(value, str) else _short(value)


def _short(value: float) -> str:
    """A number in as few letters as two decimals allow."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"


def _escaped(text: str) -> str:
    """Escaped, and without the characters that XML has no way to write."""
    return escape(re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text))
