"""A drawing: rectangles, lines, polygons, pictures and texts in pixels, and how they become SVG, PNG or a page."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from brickwork.atomic import write_file
from brickwork.errors import RequestError

SUFFIXES = (".svg", ".png", ".json", ".html")
INK, PALE = "#1b1f24", "#57606a"  # texts: the main colour, and the one of what may be overlooked


@dataclass(frozen=True)
class Rectangle:
    x: float
    y: float
    width: float
    height: float
    fill: str
    tip: str = ""
    series: str = ""  # marks of one series can be hidden together on a page


@dataclass(frozen=True)
class Line:
    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    width: float = 1.0
    opacity: float = 1.0
    series: str = ""


@dataclass(frozen=True)
class Polygon:
    points: tuple[tuple[float, float], ...]
    fill: str
    opacity: float = 1.0


@dataclass(frozen=True)
class Text:
    """One line; y is its baseline. turn: degrees clockwise about (x, y)."""

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


@dataclass(frozen=True)
class Picture:
    """A PNG file's bytes, each of its pixels a sharp rectangle."""

    x: float
    y: float
    width: float
    height: float
    png: bytes = field(repr=False)


Mark = Rectangle | Line | Polygon | Picture | Text


@dataclass(frozen=True)
class Drawing:
    """Marks on white, painted in their order; texts last.

    head and rows are the numbers beside the picture, cards the few that matter (label, value), command what made it,
    part the chapter of a report it belongs to (brickwork.report.parts).
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
        """SVG text; inline: for a page, where neither the name space nor a fixed size is wanted."""
        size = f'viewBox="0 0 {_n(self.width)} {_n(self.height)}"'
        if not inline:
            size = f'xmlns="http://www.w3.org/2000/svg" width="{_n(self.width)}" height="{_n(self.height)}" {size}'
        shapes = [m for m in self.marks if not isinstance(m, Text)]
        texts = [m for m in self.marks if isinstance(m, Text)]
        lines = [
            f'<svg {size} role="img" font-family="sans-serif" fill="{INK}">',
            f"<title>{escape(self.title)}</title>",
            "<style>rect.t:hover{stroke:#000;stroke-width:1.5}text{pointer-events:none}text.t{pointer-events:auto}"
            "line,polygon,image{pointer-events:none}</style>",
            '<rect width="100%" height="100%" fill="#fff"/>',
            *map(_element, shapes),
            *map(_element, texts),
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def png(self, *, scale: float = 2.0) -> bytes:
        """The same picture as a PNG file, `scale` pixels a unit."""
        from brickwork.report.raster import paint

        return paint(self, scale)

    def html(self) -> str:
        """One page that needs nothing else: the picture with tooltips, and the numbers as a table."""
        from brickwork.report.book import Book, Chapter

        return Book(self.title, [Chapter("", "", [self])], about="").html()

    def save(self, path: str | Path, *, force: bool = True) -> Path:
        """Write .svg, .png, .html or, for `brickwork report`, .json; whole or not at all."""
        path = Path(path)
        content = self._content(check_suffix(path))
        with write_file(path, force=force) as temporary:
            temporary.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def _content(self, kind: str) -> str | bytes:
        from brickwork.report.figure_file import to_json

        if kind == ".png":
            return self.png()
        if kind == ".json":
            return to_json(self)
        return self.svg() if kind == ".svg" else self.html()

    def _repr_svg_(self) -> str:
        return self.svg()


def check_suffix(path: str | Path) -> str:
    """The kind of picture a file name asks for."""
    kind = Path(path).suffix.lower()
    if kind not in SUFFIXES:
        given = f"ends in {kind!r}" if kind else "has no suffix"
        raise RequestError(f"{path} {given}; a picture is written to {', '.join(SUFFIXES[:-1])} or .html.")
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


def _element(mark: Mark) -> str:
    tip = f"<title>{escape(mark.tip)}</title>" if isinstance(mark, Rectangle | Text) and mark.tip else ""
    seen = ' class="t"' if tip else ""
    series = getattr(mark, "series", "")
    seen += f' data-series="{escape(series)}"' if series else ""
    if isinstance(mark, Rectangle):
        box = f'x="{_n(mark.x)}" y="{_n(mark.y)}" width="{_n(mark.width)}" height="{_n(mark.height)}"'
        return f'<rect{seen} {box} fill="{mark.fill}"' + (f">{tip}</rect>" if tip else "/>")
    if isinstance(mark, Line):
        ends = f'x1="{_n(mark.x1)}" y1="{_n(mark.y1)}" x2="{_n(mark.x2)}" y2="{_n(mark.y2)}"'
        look = f'stroke="{mark.colour}" stroke-width="{_n(mark.width)}" stroke-opacity="{_n(mark.opacity)}"'
        return f"<line{seen} {ends} {look}/>"
    if isinstance(mark, Polygon):
        points = " ".join(f"{_n(x)},{_n(y)}" for x, y in mark.points)
        return f'<polygon points="{points}" fill="{mark.fill}" fill-opacity="{_n(mark.opacity)}"/>'
    if isinstance(mark, Picture):
        box = f'x="{_n(mark.x)}" y="{_n(mark.y)}" width="{_n(mark.width)}" height="{_n(mark.height)}"'
        data = f"data:image/png;base64,{base64.b64encode(mark.png).decode()}"
        return f'<image {box} preserveAspectRatio="none" style="image-rendering:pixelated" href="{data}"/>'
    look = f'x="{_n(mark.x)}" y="{_n(mark.y)}" font-size="{_n(mark.size)}"'
    look += f' text-anchor="{mark.anchor}"' if mark.anchor != "start" else ""
    look += ' font-weight="bold"' if mark.bold else ""
    look += f' fill="{mark.colour}"' if mark.colour != INK else ""
    look += f' transform="rotate({_n(mark.turn)} {_n(mark.x)} {_n(mark.y)})"' if mark.turn else ""
    return f"<text{seen} {look}>{tip}{escape(mark.text)}</text>"


def _n(value: float) -> str:
    """A number in as few letters as two decimals allow."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"
