"""Bars beside their names: a few numbers to compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brickwork.report.drawing import INK, PALE, Drawing, Mark, Rectangle, Text, shortened

LEFT, TOP, STEP, WIDE = 320.0, 66.0, 34.0, 420.0
COLOURS = ("#1f6fb4", "#d1661c", "#8a939c")


@dataclass(frozen=True)
class Bar:
    """A share from 0 to 1 and how it is told; kind chooses its colour: 0 ours, 1 another, 2 for comparison."""

    name: str
    value: float
    told: str
    kind: int = 0


def draw_bars(
    title: str, bars: Sequence[Bar], *, about: str = "", part: str = "", cards: Sequence[tuple[str, str]] = (),
    command: str = "",
) -> Drawing:  # fmt: skip
    """One bar a line; the figure's table is the names and what is told of them.

    >>> draw_bars("Two", [Bar("a", 0.5, "50 %"), Bar("b", 1.0, "100 %")]).rows
    (('a', '50 %'), ('b', '100 %'))
    """
    marks: list[Mark] = [Text(24, 34, title, 18, bold=True)]
    for number, bar in enumerate(bars):
        y = TOP + STEP * number
        length = WIDE * min(1.0, max(0.0, bar.value))
        marks.append(Text(LEFT - 12, y + 16, shortened(bar.name, 13, LEFT - 40), 13, "end"))
        marks.append(Rectangle(LEFT, y, WIDE, 22, "#f3f5f8"))
        marks.append(Rectangle(LEFT, y, max(1.5, length), 22, COLOURS[bar.kind], f"{bar.name}\n{bar.told}"))
        ink = INK if bar.kind == 0 else PALE
        marks.append(Text(LEFT + WIDE + 12, y + 16, bar.told, 13, bold=bar.kind == 0, colour=ink))
    height = TOP + STEP * len(bars) + 10
    rows = tuple((bar.name, bar.told) for bar in bars)
    return Drawing(
        title, LEFT + WIDE + 190, height, tuple(marks), about, ("what", "value"), rows, tuple(cards), command, part
    )  # fmt: skip
