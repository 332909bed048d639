"""A cancellation drawn: how well each prediction does, what the first task is left with, and every layer's terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from brickwork.algebra.cancellation_result import ALL, PREDICTIONS, Cancellation
from brickwork.report.drawing import PALE, Drawing, Line, Mark, Rectangle, Text, shortened
from brickwork.report.heat import CURVES
from brickwork.words import counted

PANEL, HIGH, GAP, LEFT, TOP = 250.0, 190.0, 66.0, 66.0, 138.0
LOWEST, HIGHEST = -4, 2  # decades of the errors that are shown
NETWORKS = {
    "first": "trained on it alone",
    "sequential": "in sequence",
    "assigned": "assigned",
    "assigned + ggc": "assigned + GGC",
}
WHAT = (
    "D is the network trained on the first task and then on the second, minus θ₀ + g₁ + g₂. At first order D is 0, an error "
    "of 1 (the red line); below it a prediction helps. GGC is the paper's term, Ĥ₂ĝ₁ at θ₀, with T steps taken as one of T "
    "times the rate; the path's prediction uses the Hessian at every step; the secant needs no Hessian, and is exact for "
    "one step on all images. Where GGC fails already at one step, the gradient changed otherwise than its derivative says: "
    "ReLU and maxima switched, or the step is too long. Errors below 0.0001 and above 100 are drawn at the edge."
)


def draw_cancellation(found: Cancellation) -> Drawing:
    """Errors over the steps (or the rates, if there are more of them), the first task's accuracy, bars for every layer."""
    whole = found.whole
    conflict = "–" if whole.conflict is None else f"{whole.conflict:.3f}"
    marks: list[Mark] = [
        Text(24, 34, f"{found.data[0]} first, then {found.data[1]}: in sequence against θ₀ + g₁ + g₂", 18, bold=True),
        Text(
            24,
            58,
            f"conflict cos(ĝ₁, ĝ₂) {conflict}  ·  ‖Ĥ₂ĝ₁‖ / ‖ĝ₂‖ {_ratio(whole.ggc, whole.second)}  ·  "
            f"curvature ĝ₁ᵀĤ₂ĝ₁ {whole.curvature:.3g}",
            13,
            colour=PALE,
        ),
        Text(
            24, 98, "Error ‖P − D‖ / ‖D‖ of what is predicted for the difference D of the two networks", 15, bold=True
        ),
    ]
    over_steps = len(found.steps) >= len(found.lr)
    for number, (name, told) in enumerate(PREDICTIONS.items()):
        marks += _errors(found, name, told, LEFT + number * (PANEL + GAP), over_steps)
    if found.judged[0].accuracy[0] is not None:
        marks += _accuracies(found, LEFT + 3 * (PANEL + GAP), over_steps)
    bars, bottom = _bars(found, TOP + HIGH + 132)
    head = (
        "lr",
        "steps",
        "‖D‖ / ‖g₂‖",
        "cosine: ggc",
        *(f"error: {name}" for name in PREDICTIONS),
        "loss₁: in sequence",
        "assigned",
        "accuracy₁: in sequence",
        "assigned",
    )
    rows = tuple(_row(found, lr, steps) for lr in found.lr for steps in found.steps)
    title = f"Cancellation: {found.data[0]} first, then {found.data[1]}"
    width = LEFT + 4 * (PANEL + GAP)
    return Drawing(title, width, bottom + 24, tuple(marks + bars), WHAT, head, rows, part="algebra")


def _row(found: Cancellation, lr: float, steps: int) -> tuple[str, ...]:
    fit = found.fit(lr, steps)
    ends = [found.judge(lr, steps, name) for name in ("sequential", "assigned")]
    rates = ["–" if j.accuracy[0] is None else f"{j.accuracy[0]:.1%}" for j in ends]
    return (
        f"{lr:g}",
        str(steps),
        _short(fit.share),
        _short(fit.cosine["ggc"]),
        *map(_short, fit.error.values()),
        *(f"{j.loss[0]:.4f}" for j in ends),
        *rates,
    )


def _errors(found: Cancellation, name: str, told: str, left: float, over_steps: bool) -> list[Mark]:
    """One prediction's error, a curve for every rate (or number of steps)."""
    across, marks = _frame(
        left, told, "steps on each task" if over_steps else "lr", found.steps if over_steps else found.lr
    )

    def down(value: float) -> float:
        place = min(max(math.log10(max(value, 1e-300)), LOWEST), HIGHEST)
        return TOP + HIGH * (HIGHEST - place) / (HIGHEST - LOWEST)

    for decade in range(LOWEST, HIGHEST + 1):
        ink = "#d1261c" if decade == 0 else "#e3e6ea"
        marks.append(Line(left, down(10.0**decade), left + PANEL, down(10.0**decade), ink))
        marks.append(Text(left - 8, down(10.0**decade) + 4, f"{10.0**decade:g}", 11, "end", colour=PALE))
    curves = found.lr if over_steps else found.steps
    for number, curve in enumerate(curves):
        points = []
        for x in found.steps if over_steps else found.lr:
            lr, steps = (curve, x) if over_steps else (x, curve)
            error = found.fit(float(lr), int(steps)).error[name]
            if error is not None:
                points.append(
                    (
                        across(x),
                        down(error),
                        f"lr {lr:g}, {_counted(int(steps))}\nerror {error:.4g}\n"
                        f"cosine {_short(found.fit(float(lr), int(steps)).cosine[name])}",
                    )
                )
        marks += _curve(points, CURVES[number % len(CURVES)])
    if name == next(iter(PREDICTIONS)):
        words = [f"lr {c:g}" if over_steps else _counted(int(c)) for c in curves]
        marks += _legend(left, TOP + HIGH + 54, words)
    return marks


def _accuracies(found: Cancellation, left: float, over_steps: bool) -> list[Mark]:
    """What the first task is left with, for the largest rate (or the most steps)."""
    fixed = found.lr[-1] if over_steps else found.steps[-1]
    shown = f"lr {fixed:g}" if over_steps else _counted(int(fixed))
    across, marks = _frame(
        left,
        shortened(f"accuracy on {found.data[0]}, {shown}", 13, PANEL),
        "steps on each task" if over_steps else "lr",
        found.steps if over_steps else found.lr,
    )
    marks.append(Text(left - 42, 98, "What the first task is left with", 15, bold=True))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = TOP + HIGH * (1 - share)
        marks.append(Line(left, y, left + PANEL, y, "#e3e6ea"))
        marks.append(Text(left - 8, y + 4, f"{share:.0%}", 11, "end", colour=PALE))
    for number, (network, told) in enumerate(NETWORKS.items()):
        points = []
        for x in found.steps if over_steps else found.lr:
            lr, steps = (fixed, x) if over_steps else (x, fixed)
            value = found.judge(float(lr), int(steps), network).accuracy[0]
            assert value is not None
            points.append(
                (across(x), TOP + HIGH * (1 - value), f"{told}\nlr {lr:g}, {_counted(int(steps))}\n{value:.1%}")
            )
        marks += _curve(points, CURVES[number % len(CURVES)])
    return marks + _legend(left - 30, TOP + HIGH + 54, list(NETWORKS.values()))


def _frame(left: float, title: str, below: str, values: Sequence[float]) -> tuple[Callable[[float], float], list[Mark]]:
    """Title and a logarithmic axis across."""
    low, high = math.log10(values[0]), math.log10(values[-1])

    def across(value: float) -> float:
        return left + PANEL * ((math.log10(value) - low) / (high - low) if high > low else 0.5)

    marks: list[Mark] = [Text(left, TOP - 14, title, 13, bold=True)]
    last = -100.0
    for value in values:
        if across(value) - last >= 34:  # room for its label
            marks.append(Text(across(value), TOP + HIGH + 17, f"{value:g}", 11, "middle", colour=PALE))
            last = across(value)
    marks.append(Text(left + PANEL / 2, TOP + HIGH + 34, below, 12, "middle"))
    return across, marks


def _curve(points: list[tuple[float, float, str]], ink: str) -> list[Mark]:
    marks: list[Mark] = [Line(a[0], a[1], b[0], b[1], ink, 2) for a, b in pairwise(points)]
    return marks + [Rectangle(x - 3.5, y - 3.5, 7, 7, ink, tip) for x, y, tip in points]


def _legend(left: float, y: float, words: Sequence[str]) -> list[Mark]:
    marks: list[Mark] = []
    for number, word in enumerate(words):
        x, row = left + (number % 2) * 150, y + 18 * (number // 2)
        marks.append(Rectangle(x, row - 9, 10, 10, CURVES[number % len(CURVES)]))
        marks.append(Text(x + 16, row, word, 12))
    return marks


def _bars(found: Cancellation, top: float) -> tuple[list[Mark], float]:
    """One line a layer: its conflict, its term, and the error of the prediction for the shortest and the longest run."""
    ends = [(found.lr[0], found.steps[0]), (found.lr[-1], found.steps[-1])]
    ends = ends[:1] if ends[0] == ends[1] else ends
    layers = [t for t in found.terms if t.layer != ALL]
    most = max((t.ggc for t in layers), default=1.0) or 1.0
    columns: list[tuple[str, Mapping[str, float | None], float, float]] = [
        ("conflict cos(ĝ₁, ĝ₂)", {t.layer: t.conflict for t in layers}, -1.0, 1.0),
        ("‖Ĥ₂ĝ₁‖", {t.layer: t.ggc for t in layers}, 0.0, most),
    ]
    for lr, steps in ends:
        told = f"error of GGC, lr {lr:g}, {_counted(steps)}"
        columns.append((told, {t.layer: found.fit(lr, steps, t.layer).error["ggc"] for t in layers}, 0.0, 2.0))
    names, wide, apart, row = 190.0, 180.0, 78.0, 19.0
    marks: list[Mark] = [Text(24, top - 34, "Layer by layer", 15, bold=True)]
    bottom = top + row * len(layers)
    for number, (title, values, low, high) in enumerate(columns):
        left = 24 + names + number * (wide + apart)
        zero = left + wide * -low / (high - low)
        marks.append(Text(left, top - 10, title, 12, bold=True))
        for place, terms in enumerate(layers):
            y, value = top + place * row, values[terms.layer]
            if number == 0:
                marks.append(Text(24, y + 13, shortened(terms.layer, 12, names - 12), 12, tip=terms.layer))
            if value is None:
                marks.append(Text(zero + 4, y + 13, "–", 11, colour=PALE))
                continue
            end = left + wide * (min(max(value, low), high) - low) / (high - low)
            ink = "#d1661c" if value < 0 or (title.startswith("error") and value >= 1) else "#1f6fb4"
            tip = f"{terms.layer}, {counted(terms.numbers, 'number')}\n{title}: {value:.4g}"
            marks.append(Rectangle(min(zero, end), y + 3, max(abs(end - zero), 1), row - 6, ink, tip))
            beyond = f"{value:.3g}" + ("  →" if value > high else "")
            marks.append(Text(max(zero, end) + 5, y + 13, beyond, 11, colour=PALE))
        for at in (0.0, 1.0) if title.startswith("error") else (0.0,):
            x = left + wide * (at - low) / (high - low)
            marks.append(Line(x, top, x, bottom, "#d1261c" if at else "#8a939c"))
    return marks, bottom


def _counted(steps: int) -> str:
    return f"{steps} step{'s' * (steps > 1)}"


def _ratio(a: float, b: float) -> str:
    return f"{a / b:.3g}" if b else "–"


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
