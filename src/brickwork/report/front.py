"""Accuracy against megabytes: a spot a method, the front that none beats joined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from brickwork.report.drawing import PALE, Drawing, Line, Mark, Rectangle, Text, shortened, text_width
from brickwork.report.gallery import GRID

COLOURS = (
    "#1f6fb4", "#d1261c", "#3a8f3a", "#7a4fb0", "#d1861c", "#2b9ea3", "#8a6a3a", "#c2408f", "#6b7a1c", "#5a6472",
    "#0e4a7a", "#f08a7a", "#8fd08a", "#b79ae0", "#e8c25a",
)  # fmt: skip
LEFT, TOP, WIDE, HIGH, GAP = 74.0, 84.0, 560.0, 340.0, 210.0
LONGEST = 230  # pixels of a name
#: how far above or below its spot a name may lie
STEPS = sorted((sign * 13 * k for k in range(8) for sign in (-1, 1)), key=abs)
ABOUT = (
    "Every byte that is needed to have all tasks counts: what is kept once (a trunk, a pool) and the file of each task. "
    "Large squares, joined: no other method has as few megabytes and as good an accuracy. A network is judged as it is "
    "read back from these files."
)


@dataclass(frozen=True)
class Spot:
    name: str
    megabytes: float
    percent: float
    tip: str


def best_of(spots: Sequence[Spot]) -> list[str]:
    """The names on the front: no other spot has as few megabytes and as good an accuracy, and one of both better.

    >>> best_of([Spot("a", 1, 90, ""), Spot("b", 2, 95, ""), Spot("c", 3, 94, "")])
    ['a', 'b']
    """
    places = [(s.megabytes, -s.percent) for s in spots]
    return [
        s.name
        for s, own in zip(spots, places, strict=True)
        if not any(o[0] <= own[0] and o[1] <= own[1] and o != own for o in places)
    ]


def draw_spots(spots: Sequence[Spot]) -> Drawing:
    """The spots over a logarithmic axis of megabytes; the caller adds its table."""
    front = best_of(spots)
    inks = {spot.name: COLOURS[k % len(COLOURS)] for k, spot in enumerate(spots)}
    low, high = decades([spot.megabytes for spot in spots])
    floor, roof = whole_fives(_near_the_best([spot.percent for spot in spots]))

    def place(spot: Spot) -> tuple[float, float]:
        across = LEFT + WIDE * (math.log10(spot.megabytes) - low) / (high - low)
        return across, TOP + HIGH * (roof - max(floor, spot.percent)) / (roof - floor)

    marks: list[Mark] = [Text(24, 34, "Accuracy against megabytes", 18, bold=True)]
    for value in np.linspace(floor, roof, 6):
        line = place(Spot("", 1, value, ""))[1]
        marks.append(Line(LEFT, line, LEFT + WIDE, line, GRID))
        marks.append(Text(LEFT - 8, line + 4, f"{value:g}%", 11, "end", colour=PALE))
    for value in log_ticks(low, high):
        line = place(Spot("", value, floor, ""))[0]
        marks.append(Line(line, TOP, line, TOP + HIGH, GRID))
        marks.append(Text(line, TOP + HIGH + 18, f"{value:g}", 11, "middle", colour=PALE))
    marks.append(Text(LEFT + WIDE / 2, TOP + HIGH + 40, "megabytes of all files, all tasks", 13, "middle"))
    marks.append(Text(24, 56, "average accuracy after the last task", 13, colour=PALE))
    best = sorted((s for s in spots if s.name in front), key=lambda s: s.megabytes)
    joins = [(*place(a), *place(b)) for a, b in pairwise(best)]
    marks += [Line(*join, "#8a939c", 1.5) for join in joins]
    said = {s.name: s.name if s.percent >= floor else f"{s.name}, {s.percent:.1f}% ↓" for s in spots}
    inner = [spot.name for spot in sorted(spots, key=lambda s: (s.name not in front, -s.percent))]
    places = {name: place(spot) for name in inner for spot in spots if spot.name == name}
    marks += _labels(places, said, inks, [box for join in joins for box in _along(join)])
    for spot in spots:
        (x, y), size = place(spot), 11.0 if spot.name in front else 7.0
        name, *numbers = spot.tip.split("\n")
        tip = "\n".join([f"{name}, on the front" if spot.name in front else name, *numbers])
        marks.append(Rectangle(x - size / 2, y - size / 2, size, size, inks[spot.name], tip))
    return Drawing("Accuracy against megabytes", LEFT + WIDE + GAP, TOP + HIGH + 56, tuple(marks), ABOUT)


def _near_the_best(percents: Sequence[float]) -> list[float]:
    """Without values so far below that they would press all others together; those are drawn on the lower edge.

    >>> _near_the_best([95, 94, 93, 88, 32]), _near_the_best([90, 60, 30])
    ([95, 94, 93, 88], [90, 60, 30])
    """
    best = max(percents)
    room = max(10.0, 4 * (best - float(np.median(percents))))
    return [value for value in percents if best - value <= room]


Box = tuple[float, float, float, float]


def _along(join: Box) -> list[Box]:
    """Small boxes along a line, so that names keep clear of it."""
    x1, y1, x2, y2 = join
    parts = max(1, round(math.hypot(x2 - x1, y2 - y1) / 4))
    spots = [(x1 + (x2 - x1) * k / parts, y1 + (y2 - y1) * k / parts) for k in range(parts + 1)]
    return [(x - 2, y - 1, x + 2, y + 1) for x, y in spots]


def _labels(
    spots: dict[str, tuple[float, float]],
    said: dict[str, str],
    inks: dict[str, str],
    lines: Sequence[Box] = (),
) -> list[Mark]:
    """Names beside their spots, the first ones first; where no place is free near by, the tip and the table tell."""
    marks: list[Mark] = []
    taken = [*((x - 6, y - 6, x + 6, y + 6) for x, y in spots.values()), *lines]
    for name, (x, y) in spots.items():
        text = shortened(said[name], 12, LONGEST)
        wide = text_width(text, 12)
        for line, right in ((y + 4 + step, side) for step in STEPS for side in (True, False)):
            left = x + 9 if right else x - 9 - wide
            box = (left, line - 10, left + wide, line + 3)
            outside = left < LEFT or box[2] > LEFT + WIDE + GAP or box[1] < TOP - 14 or box[3] > TOP + HIGH
            if outside or any(
                box[0] < o[2] and o[0] < box[2] and box[1] < o[3] and o[1] < box[3] for o in taken
            ):
                continue
            taken.append(box)
            if abs(line - y - 4) > 12:
                marks.append(Line(x, y, left - 1 if right else left + wide + 1, line - 4, inks[name], 1, 0.6))
            marks.append(Text(left, line, text, 12))
            break
    return marks


def decades(values: Sequence[float]) -> tuple[float, float]:
    """The range of a logarithmic axis, with some room."""
    low, high = math.log10(min(values)), math.log10(max(values))
    room = max(0.15, 0.06 * (high - low))
    return low - room, high + room


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, … between two powers of ten; over many decades the powers alone."""
    kinds = (1, 2, 5) if high - low < 4 else (1,)
    every = [k * 10.0**d for d in range(math.floor(low), math.ceil(high) + 1) for k in kinds]
    return [value for value in every if low <= math.log10(value) <= high]


def whole_fives(percents: Sequence[float]) -> tuple[float, float]:
    """Whole fives around the values, at most from 0 to 100."""
    low, high = 5 * math.floor(min(percents) / 5), 5 * math.ceil(max(percents) / 5)
    return float(max(0, low - (5 if low == high else 0))), float(max(5, min(100, high)))
