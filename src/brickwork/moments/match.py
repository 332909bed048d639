"""Response matching: solve a network's layers, from the input up, for the responses that source networks had.

min over W of Σ_i w_i · mean ‖X_i W + b − Y_i‖² + ridge, where X_i is what arrives at the layer now, with all
layers below already solved, and Y_i what network i answered on its own features. Needs unlabelled images only.

Where a response is read by rectifiers alone, what they take away need not be matched: the layer is fitted again to the
responses that pass, and to its own where both it and the source's are cut off (the nonlinear case of Zhang et al., 1505.06798).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.copying import copy_module
from brickwork.devices import without_tf32
from brickwork.errors import BadData, BadModel, RequestError
from brickwork.moments.batches import fitting
from brickwork.moments.gathering import Run, Source, Target
from brickwork.moments.gram import Moments
from brickwork.moments.layers import ancestors, groups_of
from brickwork.moments.processes import summed
from brickwork.moments.ridge import RIDGES, best_ridge, solve_ridge
from brickwork.moments.writing import effective, write, write_choice
from brickwork.progress import bar

#: a refit whose normal equations hold no better is left: of responses near nothing there are rounding errors alone
SOLVED = 1e-6
#: (name of the layer, the weight found for it, Gram matrix of its inputs) -> the weight it may have, None: that one
Choose = Callable[[str, Tensor, Tensor], Tensor | None]


@dataclass(frozen=True)
class LayerFit:
    """How one layer's fit went."""

    layer: str
    rows: int
    inputs: int
    unexplained: float  # share of the response's variance that the new network does not give
    error: float  # of the normal equations
    ridge: float | None = None  # folders written before 18 November 2026 do not say it

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Matched:
    """The new network, and how each of its layers was fitted."""

    model: nn.Module
    fits: tuple[LayerFit, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"layers": [f.to_dict() for f in self.fits]}


def match_responses(
    student: nn.Module,
    sources: Sequence[Source],
    *,
    ridge: float | Sequence[float] | None = 1e-4,
    shrink_to: str = "weights",
    layers: Collection[str] | Callable[[str], bool] | None = None,
    choose: Choose | None = None,
    batch_size: int | None = None,
    feedback: bool = True,
    refits: int = 0,
    places: int | str | None = "auto",
    seed: int = 0,
    progress: bool = True,
) -> Matched:
    """A copy of `student` whose layers answer as the sources' do; the given networks are left unchanged.

    ridge: None or several: for each layer the one that errs least on a fifth of the images, held out; then all are fitted.
    shrink_to: where the ridge pulls: to the student's own "weights", or to "zero".
    layers: which ones to solve (names, or a test of a name); all convolutions and linear layers by default.
    choose: says which weight a layer may have instead of the one found, from the layer's name, that weight and the
        (centred) Gram matrix (groups, d, d) of its inputs; None leaves it free. Bias and norm are fitted to the choice.
    feedback: in front of a residual sum, make good what the other summand got wrong.
    refits: how often a layer in front of rectifiers is fitted again, to what passes them.
    places: at most so many output places of an image are used; None: all of them; "auto": all, but for kernels of one place and
        grouped layers on a CPU, which use as many as keep the moments about as cheap as the forward pass.
    """
    ridges = RIDGES if ridge is None else (ridge,) if isinstance(ridge, int | float) else tuple(ridge)
    _check(student, sources, batch_size, ridges, places)
    if refits < 0:
        raise RequestError(f"refits must be 0 or more, not {refits}")
    if shrink_to not in ("weights", "zero"):
        raise RequestError(f"shrink_to must be 'weights' or 'zero', not {shrink_to!r}")
    student = copy_module(student)
    modes = [(m, m.training) for m in student.modules()]
    student.eval()
    size = batch_size or min(fitting(student, s.images) for s in sources)
    runs = [Run(student, s, size) for s in sources]
    wanted = _wanted(layers, runs)
    fits = []
    with without_tf32(), bar("matching", len(wanted), show=progress) as advance:
        for path, use_feedback in _order(runs[0], wanted):
            target = Target(path, use_feedback and feedback, places, seed)
            fits.append(_solve_layer(student, runs, target, ridges, shrink_to, refits, choose))
            advance(1, path)
    for module, mode in modes:
        module.training = mode
    return Matched(student, tuple(fits))


def _check(
    student: nn.Module,
    sources: Sequence[Source],
    batch_size: int | None,
    ridges: Sequence[float],
    places: int | str | None,
) -> None:
    if next(student.parameters(), None) is None:
        raise BadModel("a network without parameters has nothing to match")
    if not ridges:
        raise RequestError("ridge is an empty list; give a number, several, or None")
    for ridge in ridges:
        if not ridge >= 0:
            raise RequestError(f"ridge must be 0 or more, not {ridge}")
    if not (places is None or places == "auto" or (isinstance(places, int) and places >= 1)):
        raise RequestError(f"places must be 'auto', None (all) or a number from 1 up, not {places!r}")
    if not sources:
        raise RequestError("response matching needs at least one source network")
    if batch_size is not None and batch_size < 1:
        raise RequestError(f"batch_size must be 1 or more, not {batch_size}")
    for k, source in enumerate(sources):
        if len(source.images) == 0:
            raise BadData(f"source {k} has no images; give it some hundred unlabelled ones")
        if source.own is not None and source.own.shape != source.images.shape:
            shapes = tuple(source.own.shape), tuple(source.images.shape)
            raise BadData(f"own images of source {k} are {shapes[0]} and images {shapes[1]}; they must be the same")
        given = source.images
        if isinstance(given, Tensor) and not all(bool(torch.isfinite(part).all()) for part in given.split(1000)):
            raise BadData(f"the images of source {k} hold NaN or infinite values")
        if not 0 < source.weight < float("inf"):
            raise RequestError(f"the weight of source {k} must be a positive number, not {source.weight}")


def _wanted(layers: Any, runs: list[Run]) -> list[str]:
    """One that runs over places, once for each channel, has no channels that were cut; nor could its rows be compared."""
    paths = [layer.path for layer in runs[0].layers if all(run.same_rows(layer.path) for run in runs)]
    if layers is None:
        return paths
    if callable(layers):
        return [p for p in paths if layers(p)]
    missing = [p for p in layers if p not in paths]
    if missing:
        raise RequestError(f"layer {missing[0]!r} cannot be matched; layers that can: {', '.join(paths)}")
    return [p for p in paths if p in set(layers)]


def _order(run: Run, wanted: list[str]) -> list[tuple[str, bool]]:
    """Layers in the order of the forward; whatever a residual sum adds is settled before the layer that mends it."""
    graph, known = run.mine[0].graph, {layer.path: layer for layer in run.layers}
    order: dict[str, bool] = {}

    def settle(paths: list[str], met: set[int]) -> None:
        for path in paths:
            if path in order:
                continue
            layer = known[path]
            # of two layers that meet in one sum the first to be reached mends it, the other is matched by itself
            use = layer.other is not None and layer.response.index not in met
            if use and layer.other is not None:
                above = ancestors(graph, layer.other)
                use = layer.output.index not in above
                settle(
                    [p for p in wanted if use and p not in order and known[p].output.index in above],
                    met | {layer.response.index},
                )
            order[path] = use

    settle(wanted, set())
    return list(order.items())


def _solve_layer(
    student: nn.Module,
    runs: list[Run],
    target: Target,
    ridges: Sequence[float],
    shrink_to: str,
    refits: int,
    choose: Choose | None,
) -> LayerFit:
    path = target.path
    module: Any = student.get_submodule(path)
    layer = runs[0].by_path[0][path]
    groups, weight = groups_of(layer), module.weight
    outputs, inputs = weight.shape[0] // groups, weight[0].numel()
    parts = 1 if len(ridges) == 1 else 2  # all rows, or those to fit to and those held out
    totals = [Moments.empty(inputs, outputs, weight.device, groups=groups) for _ in range(parts)]
    counts = []
    for run in runs:
        own = [Moments.empty(inputs, outputs, weight.device, groups=groups) for _ in range(parts)]
        run.gather(target, own)
        own = [summed(moments) for moments in own]
        counts.append(sum(moments.rows for moments in own))
        share = run.source.weight / counts[-1]
        totals = [t.plus(moments.scaled(share)) for t, moments in zip(totals, own, strict=True)]
    total = totals[0] if parts == 1 else totals[0].plus(totals[1])
    norm = student.get_submodule(layer.norm) if layer.norm else None
    prior = effective(module, norm).reshape(groups, outputs, inputs).mT if shrink_to == "weights" else None
    if not all(bool(torch.isfinite(t).all()) for t in (weight, prior) if t is not None):
        raise BadModel(f"the weights of {path} hold NaN or infinite values; there is nothing to start from")
    has_bias = norm is not None or module.bias is not None
    ridge = ridges[0]
    if parts == 2 and all(t.rows for t in totals):
        ridge = best_ridge(*totals, bias=has_bias, prior=prior, ridges=ridges)
    fit = solve_ridge(total, ridge=ridge, bias=has_bias, prior=prior)
    for _ in range(refits if all(run.passes(target) for run in runs) else 0):
        passing = total.responses_alone()
        for run, rows in zip(runs, counts, strict=True):
            some = total.responses_alone()
            run.gather_passing(target, fit, some)
            passing = passing.plus(summed(some).scaled(run.source.weight / rows))
        again = solve_ridge(total.with_responses(passing), ridge=ridge, bias=has_bias, prior=prior)
        if not again.error < SOLVED:
            break
        fit = again
    if choose is None or not write_choice(module, norm, fit, total, partial(choose, path)):
        write(module, norm, fit, total)
    for run in runs:
        run.forget(path)
    return LayerFit(path, int(sum(counts)), inputs, fit.unexplained, fit.error, ridge)
