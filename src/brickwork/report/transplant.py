"""Adapters compared: where each puts the images of a category (paper 3, Figure 5), and its error over labelled images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from brickwork.errors import RequestError
from brickwork.report.drawing import PALE, Drawing, Line, Mark, Rectangle, Text, text_width
from brickwork.transplant.spaces import Space
from brickwork.words import counted

COLOURS = ("#1f6fb4", "#d1261c", "#3a8f3a", "#7a4fb0", "#d1861c", "#2b9ea3", "#8a6a3a", "#444444")
GRID = "#e3e6ea"
LEFT, SIDE, GAP, WIDE, HIGH, TOP = 60.0, 320.0, 110.0, 420.0, 320.0, 118.0


@dataclass(frozen=True)
class Judged:
    """The error of one adapter on the test images; labels None: it used no labels, so any number of them is the same."""

    category: str
    way: str
    labels: int | None
    error: float


def draw_transplant(
    spaces: Sequence[Space], errors: Sequence[Judged], *, task: str, teachers: dict[str, float] | None = None
) -> Drawing:
    """A line of panels for each category: the plane of the features, and error over labelled images a class."""
    if not spaces and not errors:
        raise RequestError("there is nothing to draw; give features or errors of one adapter or more.")
    categories = list(dict.fromkeys([*(s.category for s in spaces), *(e.category for e in errors)]))
    names = list(dict.fromkeys([*(n for s in spaces for n in s.points), *(e.way for e in errors)]))
    inks = {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(names)}
    columns = ([LEFT] if spaces else []) + ([LEFT + (SIDE + GAP if spaces else 0)] if errors else [])
    width = columns[-1] + (WIDE + 130 if errors else SIDE + 40)
    marks: list[Mark] = [Text(24, 34, f"Adapters to {task}", 18, bold=True)]
    marks += _legend(names, inks, width)
    pitch = HIGH + 92
    for row, category in enumerate(categories):
        top = TOP + row * pitch
        space = next((s for s in spaces if s.category == category), None)
        own = [e for e in errors if e.category == category]
        if space is not None:
            marks += draw_space(space, inks, LEFT, top)
        if own:
            marks += draw_errors(own, inks, columns[-1], top, (teachers or {}).get(category))
    head = ("category", "adapter", "labels a class", "error on test images", "spread of the features drawn")
    about = (
        "Left: features of the test images that the task's last layer reads (or a layer that was named), projected on the "
        "first two principal components of all adapters' features together; of each way the adapter with the most labels. "
        "The spread is the root of their total variance. Right: share of the test images (pixels, for a segmenter) that are "
        "wrong; the grey line is the category's own task module. Adapters that use no labels are drawn across."
    )
    rows = _rows(spaces, errors)
    return Drawing(
        f"Adapters to {task}",
        width,
        TOP + len(categories) * pitch - 10,
        tuple(marks),
        about,
        head,
        rows,
        part="transplant",
    )


def draw_space(space: Space, inks: dict[str, str], left: float, top: float) -> list[Mark]:
    """Points of every adapter in one plane, on one scale both ways."""
    every = np.concatenate(list(space.points.values()))
    low, high = every.min(0), every.max(0)
    reach = float((high - low).max()) * 1.08 or 1.0
    middle = (low + high) / 2
    marks: list[Mark] = [Text(left, top - 14, f"{space.category}: hidden features", 14, bold=True)]
    for share in (0.0, 0.5, 1.0):
        marks.append(Line(left + SIDE * share, top, left + SIDE * share, top + HIGH, GRID))
        marks.append(Line(left, top + HIGH * share, left + SIDE, top + HIGH * share, GRID))
    for name, points in space.points.items():
        for number, (x, y) in enumerate(points):
            across = left + SIDE * (0.5 + (x - middle[0]) / reach)
            down = top + HIGH * (0.5 - (y - middle[1]) / reach)
            tip = f"{name}\nimage {number}\n{x:.3g}, {y:.3g}"
            marks.append(Rectangle(across - 2, down - 2, 4, 4, inks[name], tip))
    told = f"first and second component, {space.explained:.0%} of the variance"
    marks.append(Text(left + SIDE / 2, top + HIGH + 20, told, 12, "middle", colour=PALE))
    return marks


def draw_errors(
    found: Sequence[Judged], inks: dict[str, str], left: float, top: float, teacher: float | None = None
) -> list[Mark]:
    """Error over the number of labels, a curve for every way; numbers of labels stand at equal distances."""
    counts = sorted({e.labels for e in found if e.labels is not None}) or [0]
    places = {c: left + WIDE * ((k + 0.5) / len(counts)) for k, c in enumerate(counts)}
    most = max([0.1, *(e.error for e in found), *([] if teacher is None else [teacher])])
    most = min(1.0, np.ceil(most * 10) / 10)

    def down(error: float) -> float:
        return top + HIGH * (1 - min(error, most) / most)

    marks: list[Mark] = [Text(left, top - 14, f"{found[0].category}: error on test images", 14, bold=True)]
    for k in range(6):
        value = most * k / 5
        marks.append(Line(left, down(value), left + WIDE, down(value), GRID))
        marks.append(Text(left - 8, down(value) + 4, f"{value:.0%}", 11, "end", colour=PALE))
    for count, x in places.items():
        marks.append(Text(x, top + HIGH + 18, str(count), 11, "middle", colour=PALE))
    marks.append(Text(left + WIDE / 2, top + HIGH + 36, "labelled images a class", 12, "middle"))
    if teacher is not None:
        marks.append(Line(left, down(teacher), left + WIDE, down(teacher), "#8a939c", 1.5))
        marks.append(Text(left + WIDE + 8, down(teacher) + 4, f"its own task {teacher:.1%}", 11, colour=PALE))
    for way in dict.fromkeys(e.way for e in found):
        own = [e for e in found if e.way == way]
        free = next((e for e in own if e.labels is None), None)
        if free is not None:
            marks.append(Line(left, down(free.error), left + WIDE, down(free.error), inks[way], 2, 0.75))
            tip = f"{way}\nno labels used\n{free.error:.2%}"
            marks.append(Rectangle(left - 3.5, down(free.error) - 3.5, 7, 7, inks[way], tip))
        points = sorted((e.labels, e.error) for e in own if e.labels is not None)
        spots = [(places[c], down(error), f"{way}\n{counted(c, 'label')} a class\n{error:.2%}") for c, error in points]
        marks += [Line(a[0], a[1], b[0], b[1], inks[way], 2) for a, b in pairwise(spots)]
        marks += [Rectangle(x - 3.5, y - 3.5, 7, 7, inks[way], tip) for x, y, tip in spots]
    return marks


def _rows(spaces: Sequence[Space], errors: Sequence[Judged]) -> tuple[tuple[str, ...], ...]:
    """The numbers of the picture; the spread stands beside the adapter whose features are drawn."""
    spread = {(s.category, name): f"{value:.4g}" for s in spaces for name, value in s.spread.items()}
    last = {(e.category, e.way): number for number, e in enumerate(errors)}
    rows = [
        (
            e.category,
            e.way,
            "any" if e.labels is None else str(e.labels),
            f"{e.error:.2%}",
            spread.get((e.category, e.way), "–") if last[e.category, e.way] == number else "",
        )
        for number, e in enumerate(errors)
    ]
    return (*rows, *((c, name, "–", "–", value) for (c, name), value in spread.items() if (c, name) not in last))


def _legend(names: Sequence[str], inks: dict[str, str], width: float) -> list[Mark]:
    marks: list[Mark] = []
    x, y = 24.0, 58.0
    for name in names:
        wide = text_width(name, 12) + 36
        if x + wide > width - 10 and x > 24:
            x, y = 24.0, y + 18
        marks += [Rectangle(x, y - 9, 10, 10, inks[name]), Text(x + 16, y, name, 12)]
        x += wide
    return marks
