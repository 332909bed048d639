"""Names beside points of a picture: near their point where there is room, on a short line where there is not, or nowhere."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

    def label(self, x: float, y: float, side: int, line: Segment | None = None) -> Label:
        """Its name right of (x, y), left of it, or with its middle there; y is the middle of its height."""
        left = x - (self.wide if side < 0 else 0 if side else self.wide / 2)
        top, anchor = y - self.lines * HIGH / 2, {1: "start", -1: "end", 0: "middle"}[side]
        return Label(x, top + ASCENT, anchor, (left, top, left + self.wide, top + self.lines * HIGH), line)


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
    taken = [box for line in lines for box in _along(line)]
    labels: dict[str, Label] = {}
    groups = [[n for n in points if n in first], [n for n in points if n not in first]]
    # near places of all go before far ones: a name on a line takes no place that is another's own
    for group, candidates in product(groups, (_near, _far)):
        for name in group:
            if name in labels:
                continue
            point, rest = points[name], [p for key, p in points.items() if key != name]
            of_name = [*taken, *(p.box(CLEAR) for p in rest), point.box()]
            of_line = [*taken, *(p.box(1) for p in rest)]
            for label in candidates(point):
                leader = _along(label.line) if label.line else []
                if _inside(label.box, frame) and not _meets([label.box], of_name) and not _meets(leader, of_line):
                    labels[name] = label
                    taken += [label.box, *leader]
                    break
    return labels


def _along(line: Segment) -> list[Box]:
    """Small boxes along a line, so that names keep clear of it."""
    x1, y1, x2, y2 = line
    parts = max(1, round(math.hypot(x2 - x1, y2 - y1) / 4))
    spots = [(x1 + (x2 - x1) * k / parts, y1 + (y2 - y1) * k / parts) for k in range(parts + 1)]
    return [(x - 2, y - 1, x + 2, y + 1) for x, y in spots]


def _near(point: Point) -> Iterator[Label]:
    """Beside a point, above and below it, at its corners."""
    half, high = point.size / 2, point.lines * HIGH / 2
    for dx, dy in ((1, 0), (-1, 0), (0, -1), (0, 1)):
        yield point.label(point.x + dx * (half + GAP), point.y + dy * (half + GAP + high), dx)
    for dx, dy in ((1, -1), (1, 1), (-1, -1), (-1, 1)):
        yield point.label(point.x + dx * half, point.y + dy * (half + high), dx)


def _far(point: Point) -> Iterator[Label]:
    """Further and further away in all directions, at the end of a line."""
    out = point.size / 2 + GAP
    for far, turn in product(REACH, TURNS):
        c, s = math.cos(math.radians(turn)), math.sin(math.radians(turn))
        x, y = point.x + (out + far) * c, point.y + (out + far) * s
        line = (point.x + out * c, point.y + out * s, x, y)
        if abs(c) >= 0.5:
            side = 1 if c > 0 else -1
            yield point.label(x + 2 * side, y, side, line)
            continue
        for side in (0, 1, -1):  # the line comes to the name from above or below
            yield point.label(x, y + math.copysign(point.lines * HIGH / 2, s), side, line)


def _inside(box: Box, frame: Box) -> bool:
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _meets(boxes: Iterable[Box], others: Collection[Box]) -> bool:
    return any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for a, b in product(boxes, others))
