"""Adapters compared: where each puts the images of a category (paper 3, Figure 5), and its error over labelled images."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from brickwork.errors import RequestError
from brickwork.report.chart import GRID, RULE, SERIES, Axis, Panel, dot, heading, legend
from brickwork.report.drawing import PALE, Drawing, Line, Mark, Text
from brickwork.transplant.spaces import FeatureSpace
from brickwork.words import counted

LEFT, SIDE, GAP, WIDE, HIGH, TOP = 60.0, 320.0, 110.0, 420.0, 320.0, 118.0
ABOUT = (
    "To choose the adapter between one network's features and another's task, and to see how many labels it needs.\n"
    "Left: features of the test images that the task's last layer reads (or a layer that was named), projected on the "
    "first two principal components of all adapters' features together; of each way the adapter with the most labels. "
    "The spread is the root of their total variance. Right: share of the test images (pixels, for a segmenter) that are "
    "wrong; the grey line is the category's own task module. Adapters that use no labels are drawn across.\n"
    "The nearer a curve to the grey line, the less is lost; one that lies flat needs no more labels."
)


@dataclass(frozen=True)
class Judged:
    """The error of one adapter on the test images; labels None: it used no labels, so any number of them is the same."""

    category: str
    way: str
    labels: int | None
    error: float


def draw_transplant(
    spaces: Sequence[FeatureSpace], errors: Sequence[Judged], *, task: str, teachers: Mapping[str, float] | None = None
) -> Drawing:
    """A line of panels for each category: the plane of the features, and error over labelled images per class."""
    if not spaces and not errors:
        raise RequestError("there is nothing to draw; give features or errors of one adapter or more.")
    categories = list(dict.fromkeys([*(s.category for s in spaces), *(e.category for e in errors)]))
    names = list(dict.fromkeys([*(n for s in spaces for n in s.points), *(e.way for e in errors)]))
    colours = {name: SERIES[k % len(SERIES)] for k, name in enumerate(names)}
    right = LEFT + (SIDE + GAP if spaces else 0)  # where the errors begin
    width = right + WIDE + 130 if errors else LEFT + SIDE + 40
    title, pitch = f"Adapters to {task}", HIGH + 92
    marks = [*heading(title), *legend(colours.items(), 24, 58, width - 10, longest=width - 60)[0]]
    for row, category in enumerate(categories):
        top = TOP + row * pitch
        for space in [s for s in spaces if s.category == category][:1]:
            marks += _space(space, colours, top)
        own = [e for e in errors if e.category == category]
        if own:
            marks += _errors(own, colours, right, top, (teachers or {}).get(category))
    head = ("category", "adapter", "labels a class", "error on test images", "spread of the features drawn")
    size = width, TOP + len(categories) * pitch - 10
    return Drawing(title, *size, tuple(marks), ABOUT, head, _rows(spaces, errors), part="transplant")


def _space(space: FeatureSpace, colours: Mapping[str, str], top: float) -> list[Mark]:
    """Points of every adapter in one plane, on one scale both ways."""
    every = np.concatenate(list(space.points.values()))
    low, high = every.min(0), every.max(0)
    reach = float((high - low).max()) * 1.08 or 1.0
    first, second = (low + high - reach) / 2, (low + high + reach) / 2
    panel = Panel(Axis(first[0], second[0], LEFT, LEFT + SIDE), Axis(first[1], second[1], top + HIGH, top))
    marks: list[Mark] = [panel.title(f"{space.category}: hidden features", 14)]
    for share in (0.0, 0.5, 1.0):
        marks.append(Line(LEFT + SIDE * share, top, LEFT + SIDE * share, top + HIGH, GRID))
        marks.append(Line(LEFT, top + HIGH * share, LEFT + SIDE, top + HIGH * share, GRID))
    for name, points in space.points.items():
        for number, (x, y) in enumerate(points):
            tip = f"{name}\nimage {number}\n{x:.3g}, {y:.3g}"
            marks.append(dot(panel.x(x), panel.y(y), 4, colours[name], tip))
    label = f"first and second component, {space.explained:.0%} of the variance"
    return [*marks, panel.below(label, colour=PALE)]


def _errors(
    errors: Sequence[Judged], colours: Mapping[str, str], left: float, top: float, teacher: float | None
) -> list[Mark]:
    """Error over the number of labels, a curve for every way; numbers of labels stand at equal distances."""
    counts = sorted({e.labels for e in errors if e.labels is not None}) or [0]
    places = {count: number + 0.5 for number, count in enumerate(counts)}
    most = max([0.1, *(e.error for e in errors), *([] if teacher is None else [teacher])])
    most = min(1.0, math.ceil(most * 10) / 10)
    panel = Panel(Axis(0, len(counts), left, left + WIDE), Axis(0, most, top + HIGH, top))
    marks: list[Mark] = [panel.title(f"{errors[0].category}: error on test images", 14)]
    marks += panel.levels([most * k / 5 for k in range(6)], "{:.0%}")
    for count, place in places.items():
        marks.append(Text(panel.x(place), top + HIGH + 18, str(count), 11, "middle", colour=PALE))
    marks.append(panel.below("labelled images a class"))
    if teacher is not None:
        y = panel.y.clip(teacher)
        marks.append(Line(left, y, left + WIDE, y, RULE, 1.5))
        marks.append(Text(left + WIDE + 8, y + 4, f"its own task {teacher:.1%}", 11, colour=PALE))
    for way in dict.fromkeys(e.way for e in errors):
        own = [e for e in errors if e.way == way]
        for error in [e.error for e in own if e.labels is None][:1]:
            y = panel.y.clip(error)
            marks.append(Line(left, y, left + WIDE, y, colours[way], 2, 0.75))
            marks.append(dot(left, y, 7, colours[way], f"{way}\nno labels used\n{error:.2%}"))
        points = sorted((e.labels, e.error) for e in own if e.labels is not None)
        tips = [f"{way}\n{counted(count, 'label')} a class\n{error:.2%}" for count, error in points]
        curve = [(places[count], error, tip) for (count, error), tip in zip(points, tips, strict=True)]
        marks += panel.curve(curve, colours[way])
    return marks


def _rows(spaces: Sequence[FeatureSpace], errors: Sequence[Judged]) -> tuple[tuple[str, ...], ...]:
    """The numbers of the picture; the spread stands beside the adapter whose features are drawn."""
    spread = {(s.category, name): f"{value:.4g}" for s in spaces for name, value in s.spread.items()}
    last = {(e.category, e.way): number for number, e in enumerate(errors)}
    rows = []
    for number, e in enumerate(errors):
        own = spread.get((e.category, e.way), "–") if last[e.category, e.way] == number else ""
        rows.append((e.category, e.way, "any" if e.labels is None else str(e.labels), f"{e.error:.2%}", own))
    return (*rows, *((c, name, "–", "–", value) for (c, name), value in spread.items() if (c, name) not in last))
