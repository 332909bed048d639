"""A search over the numbers of a merge, drawn: every try, and the best so far."""

from collections.abc import Sequence
from itertools import pairwise

from brickwork.algebra.search_result import MergeSearch
from brickwork.report.chart import BLUE, RULE, Axis, Panel, dot, heading, legend
from brickwork.report.drawing import Drawing, Line, Mark
from brickwork.report.ticks import percent_levels, percent_range, round_ticks
from brickwork.words import counted

LEFT, TOP, WIDE, HIGH = 60.0, 110.0, 560.0, 260.0


def draw_search(result: MergeSearch, images: Sequence[int]) -> Drawing:
    """Accuracy over the tries; images: how many of each set they were judged on."""
    curve = [(100 * now, 100 * best) for now, best in result.curve()]
    low, high = percent_range([now for now, _ in curve])
    count = len(curve)
    panel = Panel(Axis(1, max(2, count), LEFT, LEFT + WIDE), Axis(low, high, TOP + HIGH, TOP))
    judged = "worst set" if result.score == "worst" else "mean of the sets"
    sizes = " + ".join(f"{size:,}" for size in images)
    note = f"{judged}, on {sizes} labelled images that choose; they do not judge"
    marks: list[Mark] = [*heading(f"Search over the numbers of {result.method}", note)]
    marks += legend([("a try", RULE), ("the best so far", BLUE)], LEFT, 86, LEFT + WIDE)[0]
    marks += [*panel.levels(percent_levels(low, high), "{:g}%"), panel.below("tries")]
    marks += panel.ticks([tick for tick in round_ticks(1, max(2, count)) if 1 <= tick <= count], room=24)
    steps = [(panel.x(k + 1), panel.y.clip(best)) for k, (_, best) in enumerate(curve)]
    for (x0, y0), (x1, y1) in pairwise(steps):
        marks += [Line(x0, y0, x1, y0, BLUE, 2), Line(x1, y0, x1, y1, BLUE, 2)]
    for k, ((now, _), point) in enumerate(zip(curve, result.tried, strict=True)):
        colour = BLUE if point is result.best else RULE
        tip = f"try {k + 1}: {now:.2f}%\n{point}"
        marks.append(dot(panel.x(k + 1), panel.y.clip(now), 9 if point is result.best else 6, colour, tip))
    rows = tuple(
        (str(k + 1), str(point), f"{now:.2f}%", f"{point.loss:.4f}")
        for k, ((now, _), point) in enumerate(zip(curve, result.tried, strict=True))
    )
    about = (
        "To see whether a search for the numbers of a merge was worth it, and whether it has settled.\n"
        "A grey square is one merge that was tried, in their order; the line is the best so far, the blue square the one taken. "
        f"The first is what the method takes by itself.\n{_so(result)}"
    )
    size = LEFT + WIDE + 24, TOP + HIGH + 60
    head = ("try", "values", "accuracy", "loss")
    return Drawing(f"Search: {result.method}", *size, tuple(marks), about, head, rows, part="algebra")


def _so(result: MergeSearch) -> str:
    curve = result.curve()
    first, best = curve[0][0], curve[-1][1]
    at = result.tried.index(result.best) + 1
    gain = f"{100 * (best - first):.1f} points more than at the start" if best > first else "no more than at the start"
    return f"After {counted(len(curve), 'try')} {best:.1%}, {gain}, at try {at} with {result.best}."
