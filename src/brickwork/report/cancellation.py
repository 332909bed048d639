"""A cancellation drawn: how well each prediction does, what the first task is left with, and every layer's terms."""

from collections.abc import Mapping, Sequence

from brickwork.algebra.cancellation_result import ALL, PREDICTIONS, Cancellation
from brickwork.report.chart import BLUE, CURVES, ORANGE, RED, RULE, Axis, Panel, heading, legend
from brickwork.report.drawing import PALE, Drawing, Line, Mark, Rectangle, Text, shortened
from brickwork.words import counted

PANEL, HIGH, GAP, LEFT, TOP = 250.0, 190.0, 66.0, 66.0, 138.0
DECADES = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0)  # of the errors that are shown
NETWORKS = {
    "first": "trained on it alone",
    "sequential": "in sequence",
    "assigned": "assigned",
    "assigned + ggc": "assigned + GGC",
}
WHAT = (
    "To understand why training on a second task undoes the first, and how far that can be foretold from gradients.\n"
    "θ₀ is the common start, g₁ and g₂ what each task alone would add to it. D is the network trained on the "
    "first task and then on the second, minus θ₀ + g₁ + g₂. At first order D is 0, an error "
    "of 1 (the red line); below it a prediction helps. GGC is the paper's term, Ĥ₂ĝ₁ at θ₀, with T steps taken as one of T "
    "times the rate; the path's prediction uses the Hessian at every step; the secant needs no Hessian, and is exact for "
    "one step on all images. Errors below 0.0001 and above 100 are drawn at the edge.\n"
    "A curve below the red line foretells more than the assumption that tasks simply add up. Where"
    " GGC fails already at one step, the gradient changed otherwise than its derivative says: "
    "ReLU and maxima switched, or the step is too long."
)


def draw_cancellation(result: Cancellation) -> Drawing:
    """Errors over the steps (or the rates, if there are more of them), the first task's accuracy, bars for every layer."""
    first, second = result.data
    whole = result.whole
    conflict = "–" if whole.conflict is None else f"{whole.conflict:.3f}"
    ratio = f"{whole.ggc / whole.second:.3g}" if whole.second else "–"
    terms = f"conflict cos(ĝ₁, ĝ₂) {conflict}  ·  ‖Ĥ₂ĝ₁‖ / ‖ĝ₂‖ {ratio}  ·  curvature ĝ₁ᵀĤ₂ĝ₁ {whole.curvature:.3g}"
    what = "Error ‖P − D‖ / ‖D‖ of what is predicted for the difference D of the two networks"
    marks = [*heading(f"{first} first, then {second}: in sequence against θ₀ + g₁ + g₂", terms)]
    marks.append(Text(24, 98, what, 15, bold=True))
    for number, (name, title) in enumerate(PREDICTIONS.items()):
        marks += _errors(result, name, title, LEFT + number * (PANEL + GAP))
    if result.judged[0].accuracy[0] is not None:
        marks += _accuracies(result, LEFT + 3 * (PANEL + GAP))
    bars, bottom = _bars(result, TOP + HIGH + 132)
    errors = (f"error: {name}" for name in PREDICTIONS)
    ends = ("loss₁: in sequence", "assigned", "accuracy₁: in sequence", "assigned")
    head = ("lr", "steps", "‖D‖ / ‖g₂‖", "cosine: ggc", *errors, *ends)
    rows = tuple(_row(result, lr, steps) for lr in result.lr for steps in result.steps)
    title, width = f"Cancellation: {first} first, then {second}", LEFT + 4 * (PANEL + GAP)
    return Drawing(title, width, bottom + 24, (*marks, *bars), WHAT, head, rows, part="algebra")


def _row(result: Cancellation, lr: float, steps: int) -> tuple[str, ...]:
    fit = result.fit(lr, steps)
    ends = [result.judge(lr, steps, name) for name in ("sequential", "assigned")]
    losses = [f"{end.loss[0]:.4f}" for end in ends]
    rates = ["–" if end.accuracy[0] is None else f"{end.accuracy[0]:.1%}" for end in ends]
    numbers = map(_short, (fit.share, fit.cosine["ggc"], *fit.error.values()))
    return (f"{lr:g}", str(steps), *numbers, *losses, *rates)


def _run(lr: float, steps: int) -> str:
    return f"lr {lr:g}, {counted(steps, 'step')}"


def _over_steps(result: Cancellation) -> bool:
    """Whether steps stand across and every rate has a curve; else the other way round."""
    return len(result.steps) >= len(result.lr)


def _curve_runs(result: Cancellation, curve: float) -> list[tuple[float, float, int]]:
    """The runs of one curve: its number across, its rate, its steps."""
    if _over_steps(result):
        return [(steps, curve, steps) for steps in result.steps]
    return [(lr, lr, int(curve)) for lr in result.lr]


def _panel(result: Cancellation, left: float, title: str, y: Axis) -> tuple[Panel, list[Mark]]:
    """A chart with the steps or the rates across, and its frame."""
    across: Sequence[float] = result.steps if _over_steps(result) else result.lr
    panel = Panel(Axis(across[0], across[-1], left, left + PANEL, log=True), y)
    label = panel.below("steps on each task" if _over_steps(result) else "lr")
    return panel, [panel.title(title), *panel.ticks(across, room=34), label]


def _errors(result: Cancellation, name: str, title: str, left: float) -> list[Mark]:
    """One prediction's error, a curve for every rate (or number of steps)."""
    y = Axis(DECADES[0], DECADES[-1], TOP + HIGH, TOP, log=True)
    panel, marks = _panel(result, left, title, y)
    marks += [*panel.levels(DECADES, "{:g}"), Line(left, y(1.0), left + PANEL, y(1.0), RED)]
    curves: Sequence[float] = result.lr if _over_steps(result) else result.steps
    colours = {curve: CURVES[number % len(CURVES)] for number, curve in enumerate(curves)}
    for curve, colour in colours.items():
        points = []
        for x, lr, steps in _curve_runs(result, curve):
            fit = result.fit(lr, steps)
            error = fit.error[name]
            if error is not None:
                points.append((x, error, f"{_run(lr, steps)}\nerror {error:.4g}\ncosine {_short(fit.cosine[name])}"))
        marks += panel.curve(points, colour)
    if name == next(iter(PREDICTIONS)):
        labels = [(_curve_name(result, curve), colour) for curve, colour in colours.items()]
        marks += legend(labels, left, TOP + HIGH + 58, left + PANEL)[0]
    return marks


def _accuracies(result: Cancellation, left: float) -> list[Mark]:
    """What the first task is left with, for the largest rate (or the most steps)."""
    last = result.lr[-1] if _over_steps(result) else result.steps[-1]
    title = shortened(f"accuracy on {result.data[0]}, {_curve_name(result, last)}", 13, PANEL)
    panel, marks = _panel(result, left, title, Axis(0, 1, TOP + HIGH, TOP))
    marks.append(Text(left - 42, 98, "What the first task is left with", 15, bold=True))
    marks += panel.levels((0.0, 0.25, 0.5, 0.75, 1.0), "{:.0%}")
    for (network, name), colour in zip(NETWORKS.items(), CURVES, strict=False):
        points = []
        for x, lr, steps in _curve_runs(result, last):
            value = result.judge(lr, steps, network).accuracy[0]
            assert value is not None
            points.append((x, value, f"{name}\n{_run(lr, steps)}\n{value:.1%}"))
        marks += panel.curve(points, colour)
    names = zip(NETWORKS.values(), CURVES, strict=False)
    return marks + legend(names, left - 30, TOP + HIGH + 58, left + PANEL + 30)[0]


def _curve_name(result: Cancellation, curve: float) -> str:
    return f"lr {curve:g}" if _over_steps(result) else counted(int(curve), "step")


def _bars(result: Cancellation, top: float) -> tuple[list[Mark], float]:
    """One line per layer: its conflict, its term, and the error of the prediction for the shortest and the longest run."""
    layers = [terms for terms in result.terms if terms.layer != ALL]
    most = max((terms.ggc for terms in layers), default=1.0) or 1.0
    runs = dict.fromkeys([(result.lr[0], result.steps[0]), (result.lr[-1], result.steps[-1])])
    columns: list[tuple[str, Mapping[str, float | None], float, float]] = [
        ("conflict cos(ĝ₁, ĝ₂)", {t.layer: t.conflict for t in layers}, -1.0, 1.0),
        ("‖Ĥ₂ĝ₁‖", {t.layer: t.ggc for t in layers}, 0.0, most),
    ]
    for lr, steps in runs:
        errors = {t.layer: result.fit(lr, steps, t.layer).error["ggc"] for t in layers}
        columns.append((f"error of GGC, {_run(lr, steps)}", errors, 0.0, 2.0))
    names, wide, apart, row = 190.0, 180.0, 78.0, 19.0
    marks: list[Mark] = [Text(24, top - 34, "Layer by layer", 15, bold=True)]
    for place, terms in enumerate(layers):
        marks.append(Text(24, top + place * row + 13, shortened(terms.layer, 12, names - 12), 12, tip=terms.layer))
    bottom = top + row * len(layers)
    for number, (title, values, low, high) in enumerate(columns):
        left = 24 + names + number * (wide + apart)
        axis, is_error = Axis(low, high, left, left + wide), title.startswith("error")
        zero = axis(0)
        marks.append(Text(left, top - 10, title, 12, bold=True))
        for place, terms in enumerate(layers):
            y, value = top + place * row, values[terms.layer]
            if value is None:
                marks.append(Text(zero + 4, y + 13, "–", 11, colour=PALE))
                continue
            end = axis.clip(value)
            colour = ORANGE if value < 0 or (is_error and value >= 1) else BLUE
            tip = f"{terms.layer}, {counted(terms.numbers, 'number')}\n{title}: {value:.4g}"
            marks.append(Rectangle(min(zero, end), y + 3, max(abs(end - zero), 1), row - 6, colour, tip))
            beyond = f"{value:.3g}" + ("  →" if value > high else "")
            marks.append(Text(max(zero, end) + 5, y + 13, beyond, 11, colour=PALE))
        marks.append(Line(zero, top, zero, bottom, RULE))
        if is_error:
            marks.append(Line(axis(1), top, axis(1), bottom, RED))
    return marks, bottom


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
