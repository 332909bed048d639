"""Accuracy against megabytes: a spot a method, the front that none beats joined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from brickwork.report.drawing import PALE, Drawing, Line, Mark, Rectangle, Text, shortened, text_width
from brickwork.report.gallery import GRID
from brickwork.report.labels import Point, Segment, place_labels

COLOURS = (
    "#1f6fb4",
    "#d1261c",
    "#3a8f3a",
    "#7a4fb0",
    "#d1861c",
    "#2b9ea3",
    "#8a6a3a",
    "#c2408f",
    "#6b7a1c",
    "#5a6472",
    "#4f6fe0",
    "#f08a7a",
    "#8fd08a",
    "#b79ae0",
    "#e8c25a",
)
LEFT, TOP, WIDE, HIGH, GAP = 66.0, 84.0, 624.0, 360.0, 70.0  # 760 in all: a phone does not shrink it
JOIN = "#8a939c"  # lines: seen on white and on a dark screen
LONGEST = 180  # pixels of a line of a name, which has two at most
ABOUT = (
    "Every byte that is needed to have all tasks counts: what is kept once (a trunk, a pool) and the file of each task. "
    "Large squares, joined: no other method has as few megabytes and as good an accuracy. A network is judged as it is "
    "read back from these files. Point at a square for its name and numbers; in a crowd not every name has room."
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
    marks += [Line(*join, JOIN, 1.5) for join in joins]
    said = {s.name: s.name if s.percent >= floor else f"{s.name}, {s.percent:.1f}% ↓" for s in spots}
    inner = [spot.name for spot in sorted(spots, key=lambda s: (s.name not in front, -s.percent))]
    places = {name: place(spot) for name in inner for spot in spots if spot.name == name}
    sizes = {spot.name: 11.0 if spot.name in front else 7.0 for spot in spots}
    marks += _names(places, sizes, said, joins, front)
    for spot in spots:
        (x, y), size = place(spot), sizes[spot.name]
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


def _names(
    spots: dict[str, tuple[float, float]],
    sizes: dict[str, float],
    said: dict[str, str],
    lines: Sequence[Segment],
    front: Sequence[str],
) -> list[Mark]:
    """Names beside their spots, those on the front first; where no place is free near by, the tip and the table tell."""
    texts = {name: _two_lines(said[name]) for name in spots}
    points = {
        n: Point(x, y, sizes[n], max(text_width(line, 12) for line in texts[n]), len(texts[n]))
        for n, (x, y) in spots.items()
    }
    frame = (LEFT, TOP - 14, LEFT + WIDE + GAP, TOP + HIGH)
    marks: list[Mark] = []
    for name, label in place_labels(points, frame, lines, first=front).items():
        if label.line:
            marks.append(Line(*label.line, JOIN, 0.8))
        for k, line in enumerate(texts[name]):
            marks.append(Text(label.x, label.y + 13 * k, line, 12, label.anchor))
    return marks


def _two_lines(name: str) -> list[str]:
    """A name on one line or two, broken between words; what is longer loses its middle.

    >>> _two_lines("one network"), _two_lines("pool: weight search, free for 60 % of the run")
    (['one network'], ['pool: weight search,', 'free for 60 % of the run'])
    """
    if text_width(name, 12) <= LONGEST:
        return [name]
    words = name.split(" ")
    breaks = [(" ".join(words[:k]), " ".join(words[k:])) for k in range(1, len(words))] or [(name, "")]
    best = min(breaks, key=lambda lines: max(text_width(line, 12) for line in lines))
    return [shortened(line, 12, LONGEST) for line in best if line]


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
