"""What charts are made of: axes, grids, curves, legends, and their colours."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from brickwork.report.drawing import INK, PALE, Line, Mark, Rectangle, Text, shortened, text_width

GRID, RULE, RED, BLUE, ORANGE = "#e3e6ea", "#8a939c", "#d1261c", "#1f6fb4", "#d1661c"
#: curves of a chart in which red marks something else
CURVES = (BLUE, ORANGE, "#3a8f3a", "#7a4fb0", "#8a6a3a", "#444444")
#: methods and adapters, of which there may be many
STRONG = (BLUE, RED, "#3a8f3a", "#7a4fb0", "#d1861c", "#2b9ea3", "#8a6a3a", "#c2408f", "#6b7a1c", "#5a6472")
SERIES = (*STRONG, "#4f6fe0", "#f08a7a", "#8fd08a", "#b79ae0", "#e8c25a")


@dataclass(frozen=True)
class Axis:
    """Where numbers stand along one direction: `low` at pixel `start`, `high` at pixel `end`.

    >>> Axis(0, 1, 100, 200)(0.25), Axis(1, 100, 0, 80, log=True)(10), Axis(3, 3, 0, 80)(3)
    (125.0, 40.0, 40.0)
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (self.end - self.start) * ((value - low) / (high - low) if high > low else 0.5)

    def clip(self, value: float) -> float:
        """The place of a value, at the edge if it is beyond."""
        return self(min(max(value, self.low), self.high))


Point = tuple[float, float, str]  # x, y in the numbers of the chart, and the tip


@dataclass(frozen=True)
class Panel:
    """A chart: an axis across (x) and one up (y, which starts at the bottom)."""

    x: Axis
    y: Axis

    def title(self, text: str, size: float = 13) -> Text:
        return Text(self.x.start, self.y.end - 14, text, size, bold=True)

    def below(self, text: str, size: float = 12, colour: str = INK) -> Text:
        """What the axis across is of."""
        return Text((self.x.start + self.x.end) / 2, self.y.start + 36, text, size, "middle", colour=colour)

    def levels(self, values: Iterable[float], form: str) -> list[Mark]:
        """Lines across with their numbers at the left."""
        marks: list[Mark] = []
        for value in values:
            marks.append(Line(self.x.start, self.y(value), self.x.end, self.y(value), GRID))
            marks.append(Text(self.x.start - 8, self.y(value) + 4, form.format(value), 11, "end", colour=PALE))
        return marks

    def ticks(
        self, values: Iterable[float], form: str = "{:g}", *, room: float = 30, lines: bool = False
    ) -> list[Mark]:
        """Numbers below, where there is room for one; lines: with a line upwards."""
        marks: list[Mark] = []
        last = -math.inf
        for value in values:
            at = self.x(value)
            if lines:
                marks.append(Line(at, self.y.start, at, self.y.end, GRID))
            if at - last >= room:
                marks.append(Text(at, self.y.start + 18, form.format(value), 11, "middle", colour=PALE))
                last = at
        return marks

    def curve(self, points: Sequence[Point], colour: str, *, size: float = 7, series: str = "") -> list[Mark]:
        """A line through points with tips; what is beyond the axis up is drawn at its edge."""
        places = [(self.x(x), self.y.clip(y), tip) for x, y, tip in points]
        marks: list[Mark] = [Line(a[0], a[1], b[0], b[1], colour, 2, series=series) for a, b in pairwise(places)]
        return marks + [dot(x, y, size, colour, tip, series) for x, y, tip in places]


def dot(x: float, y: float, size: float, colour: str, tip: str = "", series: str = "") -> Rectangle:
    """A square around a place."""
    return Rectangle(x - size / 2, y - size / 2, size, size, colour, tip, series)


def heading(text: str, note: str = "") -> list[Mark]:
    """The title inside a picture, and a line below it."""
    return [Text(24, 34, text, 18, bold=True), *([Text(24, 57, note, 13, colour=PALE)] if note else [])]


def legend(
    items: Iterable[tuple[str, str]], left: float, y: float, right: float, *, size: float = 12, longest: float = 180
) -> tuple[list[Mark], float]:
    """Coloured squares with their names, on as many lines as they need; and the baseline of the last line."""
    marks: list[Mark] = []
    x = left
    for name, colour in items:
        label = shortened(name, size, longest)
        wide = size + 6 + text_width(label, size) + 20
        if x > left and x + wide > right:
            x, y = left, y + size + 7
        marks += [Rectangle(x, y - size + 2, size, size, colour), Text(x + size + 6, y, label, size)]
        x += wide
    return marks, y
