"""Heat maps, and a sweep drawn: a heat map for every data set and one of the worst of them, or curves where only α moves."""

import math
from collections.abc import Sequence

import numpy as np

from brickwork.algebra.sweep_result import SweepResult
from brickwork.report.chart import CURVES, GRID, RED, Axis, Panel, heading, legend
from brickwork.report.drawing import PALE, Drawing, Line, Mark, Rectangle, Text

#: from nothing to everything; each step is lighter, so that it reads in grey too
SHADES = ("#1d1e4f", "#2f4a86", "#2b7a96", "#3aa58b", "#8cca6a", "#f4e35a")
STOPS = np.linspace(0, 1, len(SHADES))
CHANNELS = [[int(colour[k : k + 2], 16) for colour in SHADES] for k in (1, 3, 5)]


def draw_sweep(sweep: SweepResult) -> Drawing:
    """Heat maps with the balanced point framed; curves over α for a sweep of one dimension."""
    best = sweep.balanced()
    point = f"α = {best['alpha']:g}" + (f", β = {best['beta']:g}" if len(sweep.beta) > 1 else "")
    summary = " and ".join(f"{value:.1%} of {name}" for name, value in best["accuracy"].items())
    who = "a is the first network" if len(sweep.beta) == 1 else "a is the first network, b the second"
    kind = (
        "A curve is one data set" if len(sweep.beta) == 1 else "A light cell is a network that gets most images right"
    )
    about = (
        "To find how much of each network to take when their weights are added up.\n"
        f"θ₀ is the start that both were trained from, {who}, {sweep.formula} the network that is tried. {kind}; "
        f"{'the red line' if len(sweep.beta) == 1 else 'the red frame'} marks the balanced point, where the worst data set "
        "does best.\n"
        f"At the balanced point, {point}, one network gets {summary} right{_ends(sweep)}."
    )
    head = ("alpha", "beta", "data", "accuracy")
    rows = tuple((f"{a:g}", f"{b:g}", n, f"{v:.2%}") for a, b, n, v in sweep.rows)
    marks, width, height, cuts = _curves(sweep) if len(sweep.beta) == 1 else _maps(sweep)
    cards = (("worst data set, best weighted sum", f"{min(best['accuracy'].values()):.1%}"),)
    every = (*heading("Accuracy of the sum", sweep.formula), *marks)
    title = "How much of each network"
    return Drawing(title, width, height, every, about, head, rows, cards, part="algebra", cuts=cuts)


def _ends(sweep: SweepResult) -> str:
    """What the better of the two networks gets right of every data set, where the grid has both of them."""
    alone = {n: [v for a, b, name, v in sweep.rows if name == n and (a, b) in ((1, 0), (0, 1))] for n in sweep.data}
    if len(sweep.beta) == 1 or any(len(found) < 2 for found in alone.values()):
        return ""
    return "; the better of the two alone " + " and ".join(f"{max(found):.1%} of {n}" for n, found in alone.items())


def shade(value: float) -> str:
    """The colour of a share between 0 and 1.

    >>> shade(0.0), shade(1.0), shade(float("nan"))
    ('#1d1e4f', '#f4e35a', '#e3e6ea')
    """
    if math.isnan(value):
        return GRID
    return "#" + "".join(f"{round(np.interp(value, STOPS, channel)):02x}" for channel in CHANNELS)


def cell(x: float, y: float, size: float, value: float, tip: str) -> list[Mark]:
    """A cell of a heat map, with its share in per cent where that fits."""
    marks: list[Mark] = [Rectangle(x, y, size - 1, size - 1, shade(value), tip)]
    if size >= 30 and not math.isnan(value):
        marks.append(number_in(value, x + size / 2, y + size / 2 + 4))
    return marks


def number_in(value: float, x: float, y: float) -> Text:
    """A share in per cent on a cell of its colour; not in the ink of the page, which a dark screen exchanges."""
    ink = "#ffffff" if value < 0.55 else "#1b1f25"
    return Text(x, y, f"{100 * value:.0f}", 11, "middle", colour=ink)


def shade_bar(x: float, y: float, labels: Sequence[str]) -> list[Mark]:
    """The colours of a heat map from 0 to 1, with labels at equal distances."""
    marks: list[Mark] = [Rectangle(x + 3 * k, y, 4, 12, shade(k / 80)) for k in range(81)]
    steps = [240 * k / (len(labels) - 1) for k in range(len(labels))]
    return marks + [
        Text(x + at, y + 28, label, 11, "middle", colour=PALE) for at, label in zip(steps, labels, strict=True)
    ]


def _maps(sweep: SweepResult) -> tuple[list[Mark], float, float, tuple[float, ...]]:
    panels = [*sweep.data, *(["the worst of them"] if len(sweep.data) > 1 else [])]
    columns, rows = len(sweep.alpha), len(sweep.beta)
    size = float(min(46, max(14, 250 // max(columns, rows))))
    top, wide, high = 104.0, columns * size, rows * size
    step = max(wide + 66, 320.0)  # a panel is as narrow as a phone, and three fit a desk
    best = sweep.balanced()
    marks: list[Mark] = []
    for number, name in enumerate(panels):
        grid = sweep.grid(None if number == len(sweep.data) else name)
        left = 56 + number * step
        x, y = Axis(0, columns, left, left + wide), Axis(0, rows, top + high, top)
        panel = Panel(x, y)
        marks += [panel.title(name, 14), panel.below("α", 13), Text(left - 42, top + high / 2, "β", 13, "middle")]
        for i, j in np.ndindex(grid.shape):
            value = float(grid[i, j])
            accuracy = "not measured" if math.isnan(value) else f"{value:.2%}"
            tip = f"{name}\nα = {sweep.alpha[j]:g}, β = {sweep.beta[i]:g}\n{accuracy}"
            marks += cell(x(j), y(i + 1), size, value, tip)
        for j in _labelled(columns, size):
            marks.append(Text(x(j + 0.5), top + high + 16, f"{sweep.alpha[j]:g}", 11, "middle", colour=PALE))
        for i in _labelled(rows, size):
            marks.append(Text(left - 8, y(i + 0.5) + 4, f"{sweep.beta[i]:g}", 11, "end", colour=PALE))
        marks += _frame(x(sweep.alpha.index(best["alpha"])) - 1, y(sweep.beta.index(best["beta"]) + 1) - 1, size + 1)
    marks += shade_bar(56, top + high + 52, ("0%", "50%", "100%"))
    width = 16 + len(panels) * step
    return marks, width, top + high + 96, tuple(4 + step * k for k in range(1, len(panels)))


def _labelled(count: int, size: float) -> list[int]:
    """The cells with a label: every one where there is room, else every second, third, … and the last."""
    return [k for k in range(count) if k % max(1, -(-26 // int(size))) == 0 or k == count - 1]


def _frame(x: float, y: float, size: float) -> list[Mark]:
    corners = [(x, y), (x + size, y), (x + size, y + size), (x, y + size)]
    return [Line(*corners[k], *corners[(k + 1) % 4], RED, 2.5) for k in range(4)]


def _curves(sweep: SweepResult) -> tuple[list[Mark], float, float, tuple[float, ...]]:
    panel = Panel(Axis(min(sweep.alpha), max(sweep.alpha), 70, 690), Axis(0, 1, 390, 70))
    marks = panel.levels((0.0, 0.25, 0.5, 0.75, 1.0), "{:.0%}")
    marks += [*panel.ticks(sweep.alpha), panel.below("α", 13)]
    colours = {name: CURVES[number % len(CURVES)] for number, name in enumerate(sweep.data)}
    for name, colour in colours.items():
        points = [(a, v, f"{name}\nα = {a:g}\n{v:.2%}") for a, _, n, v in sorted(sweep.rows) if n == name]
        marks += panel.curve(points, colour, size=6, series=name)
    marks += legend(colours.items(), 714, 88, 714)[0]
    best = panel.x(sweep.balanced()["alpha"])
    return [*marks, Line(best, 70, best, 390, RED, 1.5, 0.6)], 950, 460, ()
