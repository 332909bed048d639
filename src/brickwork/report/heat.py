"""A sweep drawn: a heat map for every data set and one of the worst of them, or curves where only α moves."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from brickwork.algebra.sweep_result import SweepResult
from brickwork.report.drawing import PALE, Drawing, Line, Mark, Rectangle, Text

#: from nothing to everything; each step is lighter, so that it reads in grey too
SCALE = ("#1d1e4f", "#2f4a86", "#2b7a96", "#3aa58b", "#8cca6a", "#f4e35a")
CURVES = ("#1f6fb4", "#d1661c", "#3a8f3a", "#7a4fb0", "#8a6a3a", "#444444")
MISSING = "#e3e6ea"


def number_in(value: float, x: float, y: float) -> Text:
    """A share in per cent on a cell of its colour; not in the ink of the page, which a dark screen exchanges."""
    ink = "#ffffff" if value < 0.55 else "#1b1f25"
    return Text(x, y, f"{100 * value:.0f}", 11, "middle", colour=ink)


def draw_sweep(found: SweepResult) -> Drawing:
    """Heat maps with the balanced point framed; curves over α for a sweep of one dimension."""
    best = found.balanced()
    point = f"α = {best['alpha']:g}" + (f", β = {best['beta']:g}" if len(found.beta) > 1 else "")
    told = ", ".join(f"{name} {value:.1%}" for name, value in best["accuracy"].items())
    about = f"{found.formula}. The frame marks the balanced point, {point}: {told}."
    head = ("alpha", "beta", "data", "accuracy")
    rows = tuple((f"{a:g}", f"{b:g}", n, f"{v:.2%}") for a, b, n, v in found.rows)
    if len(found.beta) == 1:
        marks, width, height = _curves(found)
    else:
        marks, width, height = _maps(found)
    cards = (("the worse task at the balanced point", f"{min(best['accuracy'].values()):.1%}"),)
    title = f"Sweep: {found.formula}"
    return Drawing(title, width, height, tuple(marks), about, head, rows, cards, part="algebra")


def colour(value: float) -> str:
    """Of an accuracy between 0 and 1.

    >>> colour(0.0), colour(1.0)
    ('#1d1e4f', '#f4e35a')
    """
    if np.isnan(value):
        return MISSING
    place = min(max(value, 0.0), 1.0) * (len(SCALE) - 1)
    low = min(int(place), len(SCALE) - 2)
    ends = [[int(SCALE[k][i : i + 2], 16) for i in (1, 3, 5)] for k in (low, low + 1)]
    mixed = [round(a + (b - a) * (place - low)) for a, b in zip(*ends, strict=True)]
    return "#" + "".join(f"{v:02x}" for v in mixed)


def _maps(found: SweepResult) -> tuple[list[Mark], float, float]:
    panels = [*found.data, *(["the worst of them"] if len(found.data) > 1 else [])]
    columns, rows = len(found.alpha), len(found.beta)
    cell = float(min(46, max(14, 380 // max(columns, rows))))
    wide, high = columns * cell, rows * cell
    step = max(wide + 90, 240)
    best = found.balanced()
    marks: list[Mark] = [Text(24, 34, f"Accuracy of {found.formula}", 18, bold=True)]
    for number, name in enumerate(panels):
        grid = found.grid(None if number == len(found.data) else name)
        left, top = 70 + number * step, 84.0
        marks.append(Text(left, top - 14, name, 14, bold=True))
        for i, b in enumerate(found.beta):
            y = top + (rows - 1 - i) * cell
            for j, a in enumerate(found.alpha):
                value = grid[i, j]
                tip = f"{name}\nα = {a:g}, β = {b:g}\n{'not measured' if np.isnan(value) else f'{value:.2%}'}"
                marks.append(Rectangle(left + j * cell, y, cell - 1, cell - 1, colour(value), tip))
                if cell >= 32 and not np.isnan(value):
                    marks.append(number_in(value, left + (j + 0.5) * cell, y + cell / 2 + 4))
            if _labelled(i, rows, cell):
                marks.append(Text(left - 8, y + cell / 2 + 4, f"{b:g}", 11, "end", colour=PALE))
        for j, a in enumerate(found.alpha):
            if _labelled(j, columns, cell):
                marks.append(Text(left + (j + 0.5) * cell, top + high + 16, f"{a:g}", 11, "middle", colour=PALE))
        marks.append(Text(left + wide / 2, top + high + 36, "α", 13, "middle"))
        marks.append(Text(left - 46, top + high / 2, "β", 13, "middle"))
        i, j = found.beta.index(best["beta"]), found.alpha.index(best["alpha"])
        marks += _frame(left + j * cell - 1, top + (rows - 1 - i) * cell - 1, cell + 1)
    width = 70 + len(panels) * step
    marks += _legend(70, 84 + high + 62)
    return marks, max(width, 520.0), 84 + high + 116


def _labelled(number: int, count: int, cell: float) -> bool:
    """Every cell has its label where there is room, else every second, third, …"""
    return number % max(1, -(-26 // int(cell))) == 0 or number == count - 1


def _frame(x: float, y: float, size: float) -> list[Mark]:
    corners = [(x, y), (x + size, y), (x + size, y + size), (x, y + size)]
    return [Line(*corners[k], *corners[(k + 1) % 4], "#d1261c", 2.5) for k in range(4)]


def _legend(x: float, y: float) -> list[Mark]:
    marks: list[Mark] = [Rectangle(x + 3 * k, y, 4, 12, colour(k / 80)) for k in range(81)]
    for share in (0.0, 0.5, 1.0):
        marks.append(Text(x + 240 * share, y + 28, f"{share:.0%}", 11, "middle", colour=PALE))
    return marks


def _curves(found: SweepResult) -> tuple[list[Mark], float, float]:
    left, top, wide, high = 70.0, 70.0, 620.0, 320.0
    low, top_alpha = min(found.alpha), max(found.alpha)
    across = lambda a: left + wide * ((a - low) / (top_alpha - low) if top_alpha > low else 0.5)  # noqa: E731
    down = lambda v: top + high * (1 - v)  # noqa: E731
    marks: list[Mark] = [Text(24, 34, f"Accuracy of {found.formula}", 18, bold=True)]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        marks.append(Line(left, down(share), left + wide, down(share), "#e3e6ea"))
        marks.append(Text(left - 8, down(share) + 4, f"{share:.0%}", 11, "end", colour=PALE))
    last = -100.0
    for a in found.alpha:
        if across(a) - last >= 28:  # room for its label
            marks.append(Text(across(a), top + high + 18, f"{a:g}", 11, "middle", colour=PALE))
            last = across(a)
    marks.append(Text(left + wide / 2, top + high + 40, "α", 13, "middle"))
    for number, name in enumerate(found.data):
        ink = CURVES[number % len(CURVES)]
        values = [(a, v) for a, _, n, v in sorted(found.rows) if n == name]
        for (a, v), (c, w) in pairwise(values):
            marks.append(Line(across(a), down(v), across(c), down(w), ink, 2, series=name))
        for a, v in values:
            tip = f"{name}\nα = {a:g}\n{v:.2%}"
            marks.append(Rectangle(across(a) - 3, down(v) - 3, 6, 6, ink, tip, name))
        marks.append(Rectangle(left + wide + 24, top + 8 + 24 * number, 12, 12, ink))
        marks.append(Text(left + wide + 42, top + 18 + 24 * number, name, 12))
    best = across(found.balanced()["alpha"])
    marks.append(Line(best, top, best, top + high, "#d1261c", 1.5, 0.6))
    return marks, left + wide + 260, top + high + 70
