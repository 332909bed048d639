"""A comparison drawn: accuracy against megabytes with the Pareto front, both over the tasks, and accuracy matrices."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from brickwork.continual.result import MB, Comparison, ContinualResult
from brickwork.report.drawing import PALE, Drawing, Line, Mark, Rectangle, Text, shortened
from brickwork.report.front import COLOURS, Spot, best_of, decades, draw_spots, log_ticks, whole_fives
from brickwork.report.gallery import GRID, Gallery
from brickwork.report.heat import colour

PART = "pools"  # of a report: pools are what these comparisons are for
LEFT, TOP, WIDE, HIGH, GAP = 74.0, 84.0, 560.0, 340.0, 210.0


def draw_comparison(found: Comparison) -> Gallery:
    """One page: the front, the course over the tasks, a matrix for every method."""
    drawings = [draw_front(found), draw_course(found), draw_matrices(found)]
    return Gallery(f"Continual learning: {found.scenario}", "", drawings)


def inks_of(found: Comparison) -> dict[str, str]:
    return {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(found.results)}


def draw_front(found: Comparison) -> Drawing:
    """Average accuracy over the megabytes of all files, logarithmic; what no method beats is joined."""
    spots = [Spot(name, r.total_bytes / MB, 100 * r.average_accuracy, _tip(r)) for name, r in found.results.items()]
    front = best_of(spots)
    head = ("method", "average accuracy", "forgetting", "MB a task", "MB shared", "MB in all", "on the front")
    rows = tuple(
        (
            n,
            f"{r.average_accuracy:.2%}",
            _points(r.forgetting),
            f"{r.bytes_per_task / MB:.4f}",
            f"{r.shared_bytes / MB:.3f}",
            f"{r.total_bytes / MB:.3f}",
            "yes" if n in front else "",
        )
        for n, r in found.results.items()
    )
    top = max(found.results.values(), key=lambda r: r.average_accuracy)
    near = [r for r in found.results.values() if r.average_accuracy >= top.average_accuracy - 0.01]
    light = min(near, key=lambda r: r.total_bytes)
    cards = (
        ("most accurate", f"{top.method}: {top.average_accuracy:.1%}"),
        ("fewest megabytes within a point of it", f"{light.method}: {light.total_bytes / MB:.3g} MB"),
    )
    return replace(draw_spots(spots), head=head, rows=rows, cards=cards, part=PART)


def draw_course(found: Comparison) -> Drawing:
    """Megabytes after each task, and the mean accuracy on the tasks so far."""
    inks = inks_of(found)
    count = max(len(r.tasks) for r in found.results.values())
    marks: list[Mark] = [Text(24, 34, "Over the tasks", 18, bold=True)]
    sizes = {n: [b / MB for b in r.curve] for n, r in found.results.items()}
    means = {n: [100 * float(np.mean(r.seen[i, : i + 1])) for i in range(count)] for n, r in found.results.items()}
    known = [v for values in sizes.values() for v in values if v > 0]
    low, high = decades(known)
    floor, roof = whole_fives([v for values in means.values() for v in values if not math.isnan(v)])
    panels = (
        ("megabytes of all files", sizes, lambda v: (math.log10(v) - low) / (high - low) if v > 0 else math.nan),
        ("mean accuracy on the tasks so far", means, lambda v: (v - floor) / (roof - floor)),
    )
    wide, high_px = 400.0, 280.0
    for number, (title, values, place) in enumerate(panels):
        left = LEFT + number * (wide + 110)
        marks.append(Text(left, TOP - 14, title, 13, bold=True))
        ticks = (
            [(v, f"{v:g}") for v in log_ticks(low, high)]
            if number == 0
            else [(v, f"{v:g}%") for v in np.linspace(floor, roof, 6)]
        )
        for value, told in ticks:
            y = TOP + high_px * (1 - place(value))
            marks += [Line(left, y, left + wide, y, GRID), Text(left - 8, y + 4, told, 11, "end", colour=PALE)]
        steps = [left + wide * (k + 0.5) / count for k in range(count)]
        for k in range(0, count, max(1, count // 10)):
            marks.append(Text(steps[k], TOP + high_px + 17, str(k + 1), 11, "middle", colour=PALE))
        marks.append(Text(left + wide / 2, TOP + high_px + 36, "tasks learned", 12, "middle"))
        for name, own in values.items():
            spots = [
                (steps[k], TOP + high_px * (1 - place(v)), v) for k, v in enumerate(own) if not math.isnan(place(v))
            ]
            marks += [Line(a[0], a[1], b[0], b[1], inks[name], 2) for a, b in pairwise(spots)]
            for k, (x, y, v) in enumerate(spots):
                told = f"{v:.3f} MB" if number == 0 else f"{v:.2f} %"
                tip = f"{name}\nafter task {count - len(spots) + k + 1}\n{told}"
                marks.append(Rectangle(x - 2.5, y - 2.5, 5, 5, inks[name], tip))
    x = LEFT + 2 * (wide + 110) - 60
    for k, (name, ink) in enumerate(inks.items()):
        marks += [Rectangle(x, TOP + 18 * k, 10, 10, ink), Text(x + 16, TOP + 18 * k + 9, shortened(name, 12, 180), 12)]
    height = max(TOP + high_px + 52, TOP + 18 * len(inks) + 10)
    return Drawing("Over the tasks", x + 210, height, tuple(marks), part=PART)


def draw_matrices(found: Comparison) -> Drawing:
    """The accuracy on task j (across) after task i (down), one square a method."""
    count = max(len(r.tasks) for r in found.results.values())
    cell = float(max(7, min(26, 220 // count)))
    side, columns = count * cell, 4
    marks: list[Mark] = [Text(24, 34, "Accuracy on every task after every task", 18, bold=True)]
    every = [100 * v for r in found.results.values() for v in r.seen.ravel() if not math.isnan(v)]
    floor = whole_fives(every)[0] / 100
    for number, (name, result) in enumerate(found.results.items()):
        left = 40 + (number % columns) * (side + 60)
        top = 84 + (number // columns) * (side + 62)
        marks.append(Text(left, top - 10, shortened(name, 13, side + 40), 13, bold=True))
        for i in range(count):
            for j in range(i + 1):
                value = float(result.seen[i, j])
                told = "no network yet" if math.isnan(value) else f"{value:.2%}"
                tip = f"{name}\n{result.tasks[j]} after {result.tasks[i]}\n{told}"
                shade = colour((value - floor) / (1 - floor)) if not math.isnan(value) else colour(math.nan)
                marks.append(Rectangle(left + j * cell, top + i * cell, cell - 1, cell - 1, shade, tip))
    rows = -(-len(found.results) // columns)
    bottom = 84 + rows * (side + 62)
    marks += [Rectangle(40 + 3 * k, bottom - 24, 4, 12, colour(k / 60)) for k in range(61)]
    marks += [Text(40, bottom + 6, f"{floor:.0%}", 11, colour=PALE), Text(220, bottom + 6, "100%", 11, colour=PALE)]
    about = "Down: after which task; across: on which. A row that fades to the left is forgetting."
    width = 40 + min(columns, len(found.results)) * (side + 60) + 20
    return Drawing("Accuracy matrices", max(width, 900.0), bottom + 22, tuple(marks), about, part=PART)


def _tip(result: ContinualResult) -> str:
    return (
        f"{result.method}\naverage accuracy {result.average_accuracy:.2%}\n"
        f"forgetting {_points(result.forgetting)}\n{result.bytes_per_task / MB:.4f} MB a task, "
        f"{result.shared_bytes / MB:.3f} MB shared\n{result.total_bytes / MB:.3f} MB in all"
    )


def _points(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.2f}"
