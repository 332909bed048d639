"""A drawing: marks in pixels and the numbers beside them. It becomes SVG, PNG, a page, or a file for `brickwork report`."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from brickwork.atomic import write_file
from brickwork.errors import RequestError

SUFFIXES = (".svg", ".png", ".json", ".html")
INK, PALE = "#1b1f24", "#57606a"  # texts: the main colour, and the one of secondary labels
#: a page has the same rules in page.css
STYLE = "<style>rect.t:hover{stroke:#000;stroke-width:1.5}text:not(.t),line,polygon,image{pointer-events:none}</style>"


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What a drawing is made of. Scripts of a page find a mark by its role (a class) and keys (data attributes)."""

    role: str = ""
    keys: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Rectangle(Mark):
    x: float
    y: float
    width: float
    height: float
    fill: str
    tip: str = ""
    series: str = ""  # marks of one series can be hidden together on a page


@dataclass(frozen=True)
class Circle(Mark):
    x: float
    y: float
    radius: float
    fill: str
    tip: str = ""
    colour: str = "none"  # of the outline


@dataclass(frozen=True)
class Line(Mark):
    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    width: float = 1.0
    opacity: float = 1.0
    series: str = ""


@dataclass(frozen=True)
class Curve(Mark):
    """A quadratic Bézier curve: start, control point, end."""

    x1: float
    y1: float
    cx: float
    cy: float
    x2: float
    y2: float
    colour: str
    width: float = 1.0
    opacity: float = 1.0
    tip: str = ""


@dataclass(frozen=True)
class Polygon(Mark):
    points: tuple[tuple[float, float], ...]
    fill: str
    opacity: float = 1.0


@dataclass(frozen=True)
class Text(Mark):
    """One line; y is its baseline. turn: degrees clockwise about (x, y). halo: width of a white outline."""

    x: float
    y: float
    text: str
    size: float = 12.0
    anchor: str = "start"  # or "middle", "end"
    bold: bool = False
    colour: str = INK
    turn: float = 0.0
    tip: str = ""
    series: str = ""
    halo: float = 0.0


@dataclass(frozen=True)
class Picture(Mark):
    """A PNG file's bytes, each of its pixels a sharp rectangle."""

    x: float
    y: float
    width: float
    height: float
    png: bytes = field(repr=False)


@dataclass(frozen=True)
class Drawing:
    """Marks on white, painted in their order; texts last.

    head and rows are the numbers beside the picture, cards the key numbers (label, value), command what made it, part
    the chapter of a report it belongs to (brickwork.report.parts).
    """

    title: str
    width: float
    height: float
    marks: tuple[Mark, ...] = field(repr=False)
    about: str = ""
    head: tuple[str, ...] = field(default=(), repr=False)
    rows: tuple[tuple[str, ...], ...] = field(default=(), repr=False)
    cards: tuple[tuple[str, str], ...] = ()
    command: str = ""
    part: str = ""

    def svg(self, *, inline: bool = False) -> str:
        """SVG text; inline: for a page, which has a size, a background and a style of its own."""
        size = f'viewBox="0 0 {_short(self.width)} {_short(self.height)}"'
        paper = []
        if not inline:
            size = (
                f'xmlns="http://www.w3.org/2000/svg" width="{_short(self.width)}" height="{_short(self.height)}" {size}'
            )
            paper = [STYLE, '<rect width="100%" height="100%" fill="#fff"/>']
        lines = [
            f'<svg {size} role="img" font-family="sans-serif" fill="{INK}">',
            f"<title>{xml_text(self.title)}</title>",
            *paper,
            *map(_element, sorted(self.marks, key=lambda mark: isinstance(mark, Text))),
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def png(self, *, scale: float = 2.0) -> bytes:
        """The same picture as a PNG file, `scale` pixels per unit."""
        from brickwork.report.raster import paint

        return paint(self, scale)

    def html(self) -> str:
        """One page that needs nothing else: the picture with tooltips, and the numbers as a table."""
        from brickwork.report.book import Book, Chapter

        return Book(self.title, [Chapter("", "", [self])], about="").html()

    def save(self, path: str | Path, *, force: bool = True) -> Path:
        """Write .svg, .png, .html or, for `brickwork report`, .json; whole or not at all."""
        from brickwork.report.figure_file import to_json

        path, kind = Path(path), check_suffix(path)
        writers = {".png": self.png, ".json": lambda: to_json(self), ".svg": self.svg, ".html": self.html}
        content = writers[kind]()
        with write_file(path, force=force) as temporary:
            temporary.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def _repr_svg_(self) -> str:
        return self.svg()


def check_suffix(path: str | Path) -> str:
    """The kind of picture a file name asks for."""
    return suffix_of(path, SUFFIXES, f"a picture is written to {', '.join(SUFFIXES[:-1])} or .html.")


def suffix_of(path: str | Path, allowed: tuple[str, ...], rule: str) -> str:
    """The suffix of a file name; one that is not allowed is refused with the rule."""
    kind = Path(path).suffix.lower()
    if kind not in allowed:
        given = f"ends in {kind!r}" if kind else "has no suffix"
        raise RequestError(f"{path} {given}; {rule}")
    return kind


def text_width(text: str, size: float) -> float:
    """About how wide a text is in any sans-serif font, on the safe side."""
    return sum(0.4 if c in " .,:;'ijl|!()[]" else 0.9 if c in "mwMW%@—" else 0.63 for c in text) * size


def shortened(text: str, size: float, room: float) -> str:
    """The text, with its middle left out if it does not fit.

    >>> shortened("layer4.2.downsample.convolution", 10, 120)
    'layer4.2.…nvolution'
    """
    if text_width(text, size) <= room:
        return text
    keep = len(text)
    while keep > 2 and text_width(text[:keep] + "…", size) > room:
        keep -= 1
    return text[: (keep + 1) // 2] + "…" + text[len(text) - keep // 2 :]


def xml_text(text: str) -> str:
    """Escaped, and without the characters that XML has no way to write."""
    return escape(re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text))


def _element(mark: Mark) -> str:
    """One element of SVG; attributes without a value are left out."""
    name, attributes = _shape(mark)
    tip, series = getattr(mark, "tip", ""), getattr(mark, "series", "")
    shared = {
        "class": " ".join(filter(None, ["t" if tip else "", mark.role])),
        "data-series": series,
        **{f"data-{key}": str(value) for key, value in mark.keys},
    }
    cells = [
        f'{key}="{_short(value) if isinstance(value, int | float) else xml_text(value)}"'
        for key, value in (shared | attributes).items()
        if value != ""
    ]
    inside = (f"<title>{xml_text(tip)}</title>" if tip else "") + xml_text(getattr(mark, "text", ""))
    return f"<{name} {' '.join(cells)}" + (f">{inside}</{name}>" if inside else "/>")


def _shape(mark: Mark) -> tuple[str, dict[str, str | float]]:
    """Name and attributes of a mark's element."""
    match mark:
        case Rectangle():
            box = {"x": mark.x, "y": mark.y, "width": mark.width, "height": mark.height}
            return "rect", {**box, "fill": mark.fill}
        case Circle():
            outline = {"stroke": mark.colour, "stroke-width": 1.5} if mark.colour != "none" else {}
            return "circle", {"cx": mark.x, "cy": mark.y, "r": mark.radius, "fill": mark.fill, **outline}
        case Line():
            ends = {"x1": mark.x1, "y1": mark.y1, "x2": mark.x2, "y2": mark.y2}
            return "line", {**ends, **_stroke(mark)}
        case Curve():
            start, *rest = ((mark.x1, mark.y1), (mark.cx, mark.cy), (mark.x2, mark.y2))
            path = f"M{_pair(start, ' ')}Q{' '.join(_pair(point, ' ') for point in rest)}"
            return "path", {"d": path, "fill": "none", **_stroke(mark), "stroke-linecap": "round"}
        case Polygon():
            points = " ".join(map(_pair, mark.points))
            return "polygon", {"points": points, "fill": mark.fill, "fill-opacity": _unless(mark.opacity, 1)}
        case Picture():
            box = {"x": mark.x, "y": mark.y, "width": mark.width, "height": mark.height}
            data = f"data:image/png;base64,{base64.b64encode(mark.png).decode()}"
            look = {"preserveAspectRatio": "none", "style": "image-rendering:pixelated"}
            return "image", {**box, **look, "href": data}
        case Text():
            place = {"x": mark.x, "y": mark.y, "font-size": mark.size, "text-anchor": _unless(mark.anchor, "start")}
            look = {"font-weight": "bold" if mark.bold else "", "fill": _unless(mark.colour, INK)}
            turn = f"rotate({_short(mark.turn)} {_pair((mark.x, mark.y), ' ')})" if mark.turn else ""
            halo = {"paint-order": "stroke", "stroke": "#fff", "stroke-width": mark.halo, "stroke-linejoin": "round"}
            return "text", {**place, **look, "transform": turn, **(halo if mark.halo else {})}
    raise TypeError(f"a {type(mark).__name__} is no mark of a drawing")


def _stroke(mark: Line | Curve) -> dict[str, str | float]:
    return {"stroke": mark.colour, "stroke-width": mark.width, "stroke-opacity": _unless(mark.opacity, 1)}


def _unless(value: str | float, usual: str | float) -> str | float:
    return "" if value == usual else value


def _pair(point: tuple[float, float], between: str = ",") -> str:
    return f"{_short(point[0])}{between}{_short(point[1])}"


def _short(value: float) -> str:
    """A number in as few letters as two decimals allow."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"
