"""Names beside points of a picture: near their point where there is room, on a short line where there is not, or nowhere."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

Box = tuple[float, float, float, float]  # left, top, right, bottom
Segment = tuple[float, float, float, float]  # x, y of the one end and of the other

HIGH, ASCENT = 13.0, 10.0  # of a line of letters of 12, and what of it is above its baseline
GAP = 3.0  # between a point and its name
CLEAR = 4.0  # other points keep so much more, or a name would seem to be theirs
REACH = (14.0, 22.0, 32.0, 44.0, 58.0, 74.0, 92.0)  # how far a name is moved away
TURNS = tuple(sorted((k * 22.5 for k in range(-7, 9)), key=lambda a: (min(abs(a), 180 - abs(a)), abs(a), a)))


@dataclass(frozen=True)
class Point:
    """A square of side `size` at (x, y), how wide its name is, and on how many lines it stands."""

    x: float
    y: float
    size: float
    wide: float
    lines: int = 1

    def box(self, more: float = 0.0) -> Box:
        half = self.size / 2 + more
        return self.x - half, self.y - half, self.x + half, self.y + half


@dataclass(frozen=True)
class Label:
    """Where a name stands; y is the baseline of its first line. line: from the point to a name that was moved away."""

    x: float
    y: float
    anchor: str
    box: Box
    line: Segment | None = None


def place_labels(
    points: Mapping[str, Point], frame: Box, lines: Sequence[Segment] = (), *, first: Collection[str] = ()
) -> dict[str, Label]:
    """A place for every name that finds one; no name lies on a name, a point or a line. first: those that choose first.

    >>> spots = {"a": Point(50, 50, 6, 40), "b": Point(100, 50, 6, 40)}
    >>> {name: label.anchor for name, label in place_labels(spots, (0, 0, 200, 100)).items()}
    {'a': 'end', 'b': 'start'}
    """
    taken = [box for line in lines for box in along(line)]
    found: dict[str, Label] = {}
    groups = [[n for n in points if n in first], [n for n in points if n not in first]]
    # near places of all go before far ones: a name on a line takes no place that is another's own
    for group, tries in product(groups, (_near, _far)):
        for name in group:
            if name in found:
                continue
            point, rest = points[name], [p for key, p in points.items() if key != name]
            of_name = [*taken, *(p.box(CLEAR) for p in rest), point.box()]
            of_line = [*taken, *(p.box(1) for p in rest)]
            for label in tries(point):
                leader = along(label.line) if label.line else []
                if not _inside(label.box, frame) or _meets(label.box, of_name):
                    continue
                if not any(_meets(box, of_line) for box in leader):
                    found[name] = label
                    taken += [label.box, *leader]
                    break
    return found


def along(line: Segment) -> list[Box]:
    """Small boxes along a line, so that names keep clear of it."""
    x1, y1, x2, y2 = line
    parts = max(1, round(math.hypot(x2 - x1, y2 - y1) / 4))
    spots = [(x1 + (x2 - x1) * k / parts, y1 + (y2 - y1) * k / parts) for k in range(parts + 1)]
    return [(x - 2, y - 1, x + 2, y + 1) for x, y in spots]


def _near(point: Point) -> Iterator[Label]:
    """Beside a point, above and below it, at its corners."""
    x, y, half, high = point.x, point.y, point.size / 2, point.lines * HIGH / 2
    for dx, dy in ((1, 0), (-1, 0), (0, -1), (0, 1)):
        yield _label(point, x + dx * (half + GAP), y + dy * (half + GAP + high), dx)
    for dx, dy in ((1, -1), (1, 1), (-1, -1), (-1, 1)):
        yield _label(point, x + dx * half, y + dy * (half + high), dx)


def _far(point: Point) -> Iterator[Label]:
    """Further and further away in all directions, at the end of a line."""
    x, y, out = point.x, point.y, point.size / 2 + GAP
    for far in REACH:
        for turn in TURNS:
            c, s = math.cos(math.radians(turn)), math.sin(math.radians(turn))
            end = x + (out + far) * c, y + (out + far) * s
            line = (x + out * c, y + out * s, *end)
            steep = abs(c) < 0.5  # the line comes to the name from above or below, else from the side
            for side in (0, 1, -1) if steep else (1 if c > 0 else -1,):
                over = math.copysign(point.lines * HIGH / 2, s) if steep else 0
                place = _label(point, end[0] + (0 if steep else 2 * side), end[1] + over, side)
                yield replace(place, line=line)


def _label(point: Point, x: float, y: float, side: int) -> Label:
    """A name right of (x, y), left of it, or with its middle there; y is the middle of its height."""
    left = x - (point.wide if side < 0 else 0 if side else point.wide / 2)
    top, anchor = y - point.lines * HIGH / 2, {1: "start", -1: "end", 0: "middle"}[side]
    return Label(x, top + ASCENT, anchor, (left, top, left + point.wide, top + point.lines * HIGH))


def _inside(box: Box, frame: Box) -> bool:
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _meets(box: Box, others: Iterable[Box]) -> bool:
    return any(box[0] < o[2] and o[0] < box[2] and box[1] < o[3] and o[1] < box[3] for o in others)
