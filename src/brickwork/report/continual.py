"""A comparison drawn: accuracy against megabytes with the Pareto front, both over the tasks, and accuracy matrices."""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from brickwork.continual.result import MB, Comparison, ContinualResult
from brickwork.report.book import Book, gallery
from brickwork.report.chart import SERIES, Axis, Panel, heading, legend
from brickwork.report.drawing import Drawing, Text, shortened
from brickwork.report.front import Spot, best_of, draw_spots
from brickwork.report.heat import cell, shade_bar
from brickwork.report.ticks import log_range, log_ticks, percent_levels, percent_range

PART = "pools"  # of a report: pools are what these comparisons are for
LEFT, TOP, WIDE, HIGH = 60.0, 84.0, 270.0, 260.0


def draw_comparison(comparison: Comparison) -> Book:
    """One page: the front, the course over the tasks, a matrix for every method."""
    drawings = [draw_front(comparison), draw_course(comparison), draw_matrices(comparison)]
    return gallery(f"Continual learning: {comparison.scenario}", drawings)


def draw_front(comparison: Comparison) -> Drawing:
    """Average accuracy over the megabytes of all files, logarithmic; what no method beats is joined."""
    results = comparison.results
    spots = [Spot(name, r.total_bytes / MB, 100 * r.average_accuracy, _tip(r)) for name, r in results.items()]
    front = best_of(spots)
    head = ("method", "average accuracy", "forgetting", "MB a task", "MB shared", "MB in all", "on the front")
    rows = []
    for name, r in results.items():
        own, shared, total = (size / MB for size in (r.bytes_per_task, r.shared_bytes, r.total_bytes))
        sizes = f"{own:.4f}", f"{shared:.3f}", f"{total:.3f}"
        on_front = "yes" if name in front else ""
        rows.append((name, f"{r.average_accuracy:.2%}", _points(r.forgetting), *sizes, on_front))
    top = max(results.values(), key=lambda r: r.average_accuracy)
    near = [r for r in results.values() if r.average_accuracy >= top.average_accuracy - 0.01]
    light = min(near, key=lambda r: r.total_bytes)
    cards = (
        ("most accurate", f"{top.method}: {top.average_accuracy:.1%}"),
        ("fewest megabytes within a point of it", f"{light.method}: {light.total_bytes / MB:.3g} MB"),
    )
    return replace(draw_spots(spots), head=head, rows=tuple(rows), cards=cards, part=PART)


def draw_course(comparison: Comparison) -> Drawing:
    """Megabytes after each task, and the mean accuracy on the tasks so far."""
    results = comparison.results
    colours = {name: SERIES[k % len(SERIES)] for k, name in enumerate(results)}
    count = max(len(r.tasks) for r in results.values())
    sizes = {name: [b / MB if b > 0 else math.nan for b in r.curve] for name, r in results.items()}
    means = {n: [100 * float(np.mean(r.seen[i, : i + 1])) for i in range(count)] for n, r in results.items()}
    small, large = log_range(_known(sizes.values()))
    low, high = percent_range(_known(means.values()))
    marks = heading("Over the tasks")
    for number, (title, values, y, levels, form, unit) in enumerate(
        (
            ("megabytes of all files", sizes, (small, large), log_ticks(small, large), "{:g}", "{:.3f} MB"),
            ("mean accuracy on the tasks so far", means, (low, high), percent_levels(low, high), "{:g}%", "{:.2f} %"),
        )
    ):
        left = LEFT + number * (WIDE + 86)
        panel = Panel(Axis(0.5, count + 0.5, left, left + WIDE), Axis(*y, TOP + HIGH, TOP, log=number == 0))
        marks += [panel.title(title), *panel.levels(levels, form), panel.below("tasks learned")]
        marks += panel.ticks(range(1, count + 1, max(1, count // 10)), room=0)
        for name, own in values.items():
            known = [(k, value) for k, value in enumerate(own, 1) if not math.isnan(value)]
            points = [(k, value, f"{name}\nafter task {k}\n{unit.format(value)}") for k, value in known]
            marks += panel.curve(points, colours[name], size=5)
    left = LEFT + 2 * (WIDE + 86) - 46
    names, bottom = legend(colours.items(), left, TOP + 10, left)
    about = (
        "To see what every further task costs.\nLeft, the megabytes of all files after each task; right, the mean accuracy "
        "on the tasks so far.\nA curve that rises at the left buys each task with disk; one that falls at the right forgets."
    )
    size, cuts = (left + 210, max(TOP + HIGH + 52, bottom)), (LEFT + WIDE + 40, left - 16)
    return Drawing("Over the tasks", *size, (*marks, *names), about, part=PART, cuts=cuts)


def draw_matrices(comparison: Comparison) -> Drawing:
    """The accuracy on task j (across) after task i (down), one square per method."""
    results = comparison.results
    count = max(len(r.tasks) for r in results.values())
    size = float(max(7, min(26, 220 // count)))
    side, columns = count * size, 4
    marks = heading("Accuracy on every task after every task")
    floor = percent_range(100 * v for v in _known(r.seen.ravel() for r in results.values()))[0] / 100
    for number, (name, result) in enumerate(results.items()):
        left = 40 + (number % columns) * (side + 60)
        top = 84 + (number // columns) * (side + 62)
        marks.append(Text(left, top - 10, shortened(name, 13, side + 40), 13, bold=True))
        for i, j in zip(*np.tril_indices(count), strict=True):
            value = float(result.seen[i, j])
            accuracy = "no network yet" if math.isnan(value) else f"{value:.2%}"
            tip = f"{name}\n{result.tasks[j]} after {result.tasks[i]}\n{accuracy}"
            marks += cell(left + j * size, top + i * size, size, (value - floor) / (1 - floor), tip)
    bottom = 84 + -(-len(results) // columns) * (side + 62)
    marks += shade_bar(40, bottom - 24, (f"{floor:.0%}", "100%"))
    about = (
        "To see which tasks are forgotten, and when.\nDown: after which task; across: on which task; a light cell is right "
        "more often.\nA row that fades to the left is forgetting; a method whose columns keep their colour forgets nothing."
    )
    width = max(60 + min(columns, len(results)) * (side + 60), 900.0)
    return Drawing("Accuracy matrices", width, bottom + 22, tuple(marks), about, part=PART)


def _known(rows: Iterable[Iterable[float]]) -> list[float]:
    return [value for row in rows for value in row if not math.isnan(value)]


def _tip(result: ContinualResult) -> str:
    return (
        f"{result.method}\naverage accuracy {result.average_accuracy:.2%}\n"
        f"forgetting {_points(result.forgetting)}\n{result.bytes_per_task / MB:.4f} MB a task, "
        f"{result.shared_bytes / MB:.3f} MB shared\n{result.total_bytes / MB:.3f} MB in all"
    )


def _points(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.2f}"
