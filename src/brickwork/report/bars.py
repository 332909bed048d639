"""Bars below their names: a few numbers to compare."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brickwork.report.chart import BLUE, ORANGE, RULE
from brickwork.report.drawing import INK, PALE, Drawing, Mark, Rectangle, Text, shortened, text_width

LEFT, TOP, STEP, WIDE = 4.0, 50.0, 50.0, 352.0  # as wide as a phone, so that no number is out of sight there
COLOURS = (BLUE, ORANGE, RULE)


@dataclass(frozen=True)
class Bar:
    """A share from 0 to 1 and its label; kind chooses the colour: 0 ours, 1 another, 2 for comparison."""

    name: str
    value: float
    label: str
    kind: int = 0


def draw_bars(title: str, bars: Sequence[Bar], **words: Any) -> Drawing:
    """One bar per line; the figure's table has their names and labels. words: about, part, cards, command of a Drawing.

    >>> draw_bars("Two", [Bar("a", 0.5, "50 %"), Bar("b", 1.0, "100 %")]).rows
    (('a', '50 %'), ('b', '100 %'))
    """
    marks: list[Mark] = [Text(LEFT, 30, shortened(title, 17, WIDE), 17, bold=True)]
    for number, bar in enumerate(bars):
        y = TOP + STEP * number
        length = max(1.5, WIDE * min(1.0, max(0.0, bar.value)))
        room = WIDE - text_width(bar.label, 13) - 12
        ink = INK if bar.kind == 0 else PALE
        marks.append(Text(LEFT, y + 14, shortened(bar.name, 13, room), 13))
        marks.append(Text(LEFT + WIDE, y + 14, bar.label, 13, "end", bold=bar.kind == 0, colour=ink))
        marks.append(Rectangle(LEFT, y + 21, WIDE, 16, "#f3f5f8"))
        marks.append(Rectangle(LEFT, y + 21, length, 16, COLOURS[bar.kind], f"{bar.name}\n{bar.label}"))
    rows = tuple((bar.name, bar.label) for bar in bars)
    size = WIDE + 2 * LEFT, TOP + STEP * len(bars)
    return Drawing(title, *size, tuple(marks), head=("what", "value"), rows=rows, **words)
