"""A drawing: marks in pixels and the numbers beside them. It becomes SVG, PNG, a page, or a file for `brickwork report`."""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from brickwork.atomic import write_file
from brickwork.errors import RequestError

SUFFIXES = (".svg", ".png", ".json", ".html")
INK, PALE = "#1b1f24", "#57606a"  # texts: the main colour, and the one of secondary labels


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
    """bend: the control point of a curve (a quadratic Bézier), whose ends are round; none for a straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    width: float = 1.0
    opacity: float = 1.0
    series: str = ""
    bend: tuple[float, ...] = ()
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

    about: three lines, what it is for, what is to be seen, what follows from it. head and rows are the numbers beside
    the picture, cards the key numbers (label, value), command what made it, part the chapter of a report it belongs to
    (brickwork.report.parts). cuts: places across where a page may break the picture, so that a phone stacks its panels.
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
    cuts: tuple[float, ...] = ()

    @property
    def panels(self) -> list[tuple[float, float]]:
        """From where to where the panels of the picture reach."""
        return list(pairwise((0.0, *self.cuts, self.width)))

    @property
    def least(self) -> int:
        """As narrow as a page may make the widest panel: letters stay eleven pixels high, up to 760 pixels."""
        widest = max(end - start for start, end in self.panels)
        smallest = min((mark.size for mark in self.marks if isinstance(mark, Text)), default=11.0)
        return math.ceil(min(760.0, widest * min(1.0, 11 / smallest)))

    def svg(self, *, inline: bool = False) -> str:
        """SVG text; inline: for a page, which has a size, a background and a style of its own."""
        from brickwork.report.svg import write_svg

        return write_svg(self, inline)

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

        kind = check_suffix(path)
        if kind == ".png":
            content = self.png()
        else:
            content = (self.svg() if kind == ".svg" else to_json(self) if kind == ".json" else self.html()).encode()
        with write_file(Path(path), force=force) as temporary:
            temporary.write_bytes(content)
        return Path(path)

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
