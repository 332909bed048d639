"""Paper 1, appendix B: does its second-order term tell how training in sequence differs from adding up what was learned?

A LeNet learns two halves of a set, which share its outputs, from one start: one after the other, θ_0 → θ_1 → θ_12, or both
from θ_0, added up, θ_0 + g_1 + g_2. D is the difference of the two, and −β Ĥ_2 ĝ_1 (GGC) what the paper says of it; it gives
no number. Plain gradient descent in float64, without momentum or decay, as the appendix has it: one step on all images for
every rate, then many on batches. All is judged on the images that were trained on, as D is of their gradients.
"""

import math
from collections.abc import Iterator
from typing import Any

from brickwork import zoo
from brickwork.algebra import cancel as measure
from brickwork.algebra.cancellation_result import Cancellation
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, averaged, study

PER_CLASS = 1000  # images of each of five classes of either half
RATES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)
LONG: dict[str, Any] = {"lr": (0.1,), "steps": (1, 20, 100, 500, 1000), "batch_size": 32}
SMOKE: dict[str, Any] = {"lr": (0.1,), "steps": (1, 60), "batch_size": 20}


@study("cancel", paper="1, appendix B", trains=False)
def cancel(lab: Lab, *, archs: Names = None, seeds: int | None = None) -> Iterator[Row]:
    """How far the paper's term (GGC) foretells what training in sequence does to the first of two tasks."""
    runs = [lab.reseeded(k) for k in range(seeds or (3 if lab.full else 1))]
    for arch in archs or ("lenet",):
        yield from averaged([_one_run(run, arch) for run in runs])


def _one_run(lab: Lab, arch: str) -> Iterator[Row]:
    source, count = ("cifar10", PER_CLASS) if lab.full else ("digits", 8)
    tasks = [lab.data(f"{source}:{half}").take(count, seed=lab.seed) for half in "AB"]
    outputs, channels = len(tasks[0].classes), tasks[0].shape[2]
    net = zoo.build(arch, num_classes=outputs, in_channels=channels, seed=lab.seed).to(lab.where)
    asked: dict[str, Any] = {"seed": lab.seed, "device": lab.where, "progress": lab.progress}
    facts: Row = {"images": sum(len(task.train_labels) for task in tasks), "unit": "per cent", "seed": lab.seed}
    once = measure(net, tasks[0], tasks[1], lr=RATES if lab.full else (1e-6, 0.1), steps=(1,), **asked)
    for lr in once.lr:
        yield {**_step(once, lr), "what": f"{arch}, one step of {lr:g}: error of the paper's term", **facts}
    long = measure(net, tasks[0], tasks[1], **(LONG if lab.full else SMOKE), **asked)
    for lr in long.lr:
        for steps in long.steps:
            what = f"{arch}, {steps} steps of {lr:g}: the first task, added up − in sequence"
            yield {**_end(long, lr, steps), "what": what, **facts}


def _step(result: Cancellation, lr: float) -> Row:
    """Errors ‖P − D‖ / ‖D‖ of the term and of the secant."""
    fit = result.fit(lr, 1)
    return {
        "paper": None,
        "ours": _percent(fit.error["ggc"]),
        "secant": _percent(fit.error["secant"]),
        "cosine": None if fit.cosine["ggc"] is None else round(fit.cosine["ggc"], 4),
        "d_of_g2": _percent(fit.share),
    }


def _end(result: Cancellation, lr: float, steps: int) -> Row:
    """Accuracy on both tasks' images, and the error of the term where T steps are one of T times the rate."""
    first, second = (
        {who: _percent(result.judge(lr, steps, who).accuracy[k]) for who in ("first", "sequential", "assigned")}
        for k in (0, 1)
    )
    known = {"paper": None, "ours": round((first["assigned"] or 0) - (first["sequential"] or 0), 2)}
    known |= {"alone": first["first"], "in_sequence": first["sequential"], "added_up": first["assigned"]}
    known |= {"second_in_sequence": second["sequential"], "second_added_up": second["assigned"]}
    errors = result.fit(lr, steps).error
    return {**known, "error": _percent(errors["ggc"]), "error_path": _percent(errors["path"])}


def _percent(share: float | None) -> float | None:
    return None if share is None or not math.isfinite(share) else float(f"{100 * share:.4g}")
