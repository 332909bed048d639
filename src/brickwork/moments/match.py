"""Response matching: solve a network's layers, from the input up, for the responses that source networks had.

min over W of Σ_i w_i · mean ‖X_i W + b − Y_i‖² + ridge, where X_i is what arrives at the layer now, with all
layers below already solved, and Y_i what network i answered on its own features. Needs unlabelled images only.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.record import record
from brickwork.devices import without_tf32
from brickwork.errors import BadData, BadModel, RequestError
from brickwork.moments.batches import ImageBatches, SlicedImages, fitting
from brickwork.moments.gram import Moments
from brickwork.moments.layers import Layer, ancestors, find_layers, patches, positions, responses
from brickwork.moments.processes import share_batches, summed
from brickwork.moments.program import Program
from brickwork.moments.ridge import RIDGES, best_ridge, solve_ridge
from brickwork.moments.writing import effective, write, write_choice
from brickwork.progress import bar

#: bytes of activations that are stored between two layers, of the student and of each source
ROOM = {"cpu": 2**30, "cuda": 3 * 2**29}
PATCHES = 2**28  # bytes of what a layer reads that are laid out at once
#: (name of the layer, the weight found for it, Gram matrix of its inputs) -> the weight it may have, None: that one
Choose = Callable[[str, Tensor, Tensor], Tensor | None]


@dataclass(frozen=True)
class Source:
    """A network whose responses are to be matched, on images of its own.

    rows: for each layer, which of the source's output channels the student's outputs stand for; all, if absent.
    own: the same images as the source takes them, where it wants them prepared otherwise than the student.
    """

    model: nn.Module
    images: SlicedImages  # (n, …) as the networks take them: a tensor, or what makes slices of them on demand
    rows: Mapping[str, np.ndarray] | None = None
    weight: float = 1.0
    own: SlicedImages | None = None


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
    ridge: float | None = 1e-4,
    shrink_to: str = "weights",
    layers: Collection[str] | Callable[[str], bool] | None = None,
    choose: Choose | None = None,
    batch_size: int | None = None,
    feedback: bool = True,
    places: int | str | None = "auto",
    seed: int = 0,
    progress: bool = True,
) -> Matched:
    """A copy of `student` whose layers answer as the sources' do; the given networks are left unchanged.

    ridge: None: for each layer the one that errs least on a fifth of the images, held out; then all are fitted.
    shrink_to: where the ridge pulls: to the student's own "weights", or to "zero".
    layers: which ones to solve (names, or a test of a name); all convolutions and linear layers by default.
    choose: says which weight a layer may have instead of the one found, from the layer's name, that weight and the
        (centred) Gram matrix (groups, d, d) of its inputs; None leaves it free. Bias and norm are fitted to the choice.
    feedback: in front of a residual sum, make good what the other summand got wrong.
    places: at most so many output places of an image are used; "auto" uses all on a GPU and, on a CPU, as many
        as keep the moments about as cheap as the forward pass; None uses all.
    """
    _check(student, sources, batch_size, ridge, places)
    if shrink_to not in ("weights", "zero"):
        raise RequestError(f"shrink_to must be 'weights' or 'zero', not {shrink_to!r}")
    student = copy.deepcopy(student)
    modes = [(m, m.training) for m in student.modules()]
    student.eval()
    size = batch_size or min(fitting(student, s.images) for s in sources)
    runs = [_Run(student, s, size) for s in sources]
    wanted = _wanted(layers, runs[0].layers)
    fits = []
    with without_tf32(), bar("matching", len(wanted), show=progress) as advance:
        for path, use_feedback in _order(runs[0], wanted):
            fits.append(
                _solve_layer(student, runs, path, use_feedback and feedback, ridge, shrink_to, places, seed, choose)
            )
            advance(1, path)
    for module, mode in modes:
        module.training = mode
    return Matched(student, tuple(fits))


def _check(
    student: nn.Module, sources: Sequence[Source], batch_size: int | None, ridge: float | None, places: int | str | None
) -> None:
    if next(student.parameters(), None) is None:
        raise BadModel("a network without parameters has nothing to match")
    if ridge is not None and not ridge >= 0:
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


class _Run:
    """Student and source over one source's images, batch by batch."""

    def __init__(self, student: nn.Module, source: Source, batch_size: int) -> None:
        self.source = source
        like = next(student.parameters())
        room = ROOM["cuda" if like.is_cuda else "cpu"]
        every, mine = share_batches(source.images, batch_size, like)
        theirs = mine if source.own is None else share_batches(source.own, batch_size, like)[1]
        teacher = _alike(source.model, like)
        self.mine: list[Program] = []
        self.theirs: list[Program] = []
        for size in every.sizes:  # at most two: whole batches, and ones that are one image shorter
            example = every.of_size(size)[0]
            self.mine.append(Program(student, record(student, example), mine.of_size(size), room=room))
            self.theirs.append(Program(teacher, record(teacher, example), theirs.of_size(size), room=room))
        self.images = len(source.images)
        self.layers = find_layers(self.mine[0].graph, student)
        self.by_path = [{layer.path: layer for layer in find_layers(p.graph, student)} for p in self.mine]
        self.theirs_by_path = [{layer.path: layer for layer in find_layers(p.graph, teacher)} for p in self.theirs]
        self.rows = source.rows or {}

    def forget(self, path: str) -> None:
        """A layer has new weights: whatever was computed behind it is stale."""
        for program, layers in zip(self.mine, self.by_path, strict=True):
            program.forget(layers[path].output)


def _alike(model: nn.Module, like: Tensor) -> nn.Module:
    """The model itself, or a copy on the device and in the precision of the student."""
    floats = [t for t in [*model.parameters(), *model.buffers()] if t.is_floating_point()]
    if all(t.device == like.device and t.dtype == like.dtype for t in floats):
        return model
    return copy.deepcopy(model).to(like)


def _wanted(layers: Any, known: list[Layer]) -> list[str]:
    paths = [layer.path for layer in known]
    if layers is None:
        return paths
    if callable(layers):
        return [p for p in paths if layers(p)]
    missing = [p for p in layers if p not in paths]
    if missing:
        raise RequestError(f"layer {missing[0]!r} cannot be matched; layers that can: {', '.join(paths)}")
    return [p for p in paths if p in set(layers)]


def _order(run: _Run, wanted: list[str]) -> list[tuple[str, bool]]:
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
    runs: list[_Run],
    path: str,
    feedback: bool,
    ridge: float | None,
    shrink_to: str,
    places: int | str | None,
    seed: int,
    choose: Choose | None,
) -> LayerFit:
    module: Any = student.get_submodule(path)
    layer = runs[0].by_path[0][path]
    groups = int(layer.op.args[8]) if layer.op is not None else 1
    weight = module.weight
    outputs, inputs = weight.shape[0] // groups, weight[0].numel()
    parts = 1 if ridge is not None else 2  # all rows, or those to fit to and those held out
    totals = [Moments.empty(inputs, outputs, weight.device, groups=groups) for _ in range(parts)]
    count = 0
    for run in runs:
        own = [Moments.empty(inputs, outputs, weight.device, groups=groups) for _ in range(parts)]
        _gather(run, path, groups, feedback, _limit(places, run, layer, inputs, weight), seed, own)
        own = [summed(moments) for moments in own]
        rows = sum(moments.rows for moments in own)
        count += int(rows)
        totals = [t.plus(moments.scaled(run.source.weight / rows)) for t, moments in zip(totals, own, strict=True)]
    total = totals[0] if parts == 1 else totals[0].plus(totals[1])
    norm = student.get_submodule(layer.norm) if layer.norm else None
    prior = effective(module, norm).reshape(groups, outputs, inputs).mT if shrink_to == "weights" else None
    if not all(bool(torch.isfinite(t).all()) for t in (weight, prior) if t is not None):
        raise BadModel(f"the weights of {path} hold NaN or infinite values; there is nothing to start from")
    has_bias = norm is not None or module.bias is not None
    if ridge is None:
        ridge = best_ridge(*totals, bias=has_bias, prior=prior) if all(t.rows for t in totals) else RIDGES[0]
    fit = solve_ridge(total, ridge=ridge, bias=has_bias, prior=prior)
    if choose is None or not write_choice(module, norm, fit, total, partial(choose, path)):
        write(module, norm, fit, total)
    for run in runs:
        run.forget(path)
    return LayerFit(path, count, inputs, fit.unexplained, fit.error, ridge)


def _limit(places: int | str | None, run: _Run, layer: Layer, inputs: int, weight: Tensor) -> int | None:
    if places is None or layer.op is None:
        return None
    if isinstance(places, int):
        return places
    full = int(np.prod(layer.output.shape[2:]))
    needed = -(-16 * inputs // run.images)  # enough of them to determine the weights
    row = layer.op.args[0].shape[1] * weight[0, 0].numel() * weight.element_size()  # bytes of what is read at one place
    room = PATCHES // (row * layer.output.shape[0])
    if weight.is_cuda:
        return max(1, needed, min(full, room))
    cheap = full * weight.shape[0] // max(1, inputs)  # as many rows as make the Gram cost what the layer costs
    return max(1, needed, min(cheap, room))


def _gather(
    run: _Run, path: str, groups: int, feedback: bool, limit: int | None, seed: int, parts: list[Moments]
) -> None:
    """Rows of all images into the first of the moments, or of every fifth image into a second."""
    rows = run.rows.get(path)
    for k, (mine, theirs) in enumerate(zip(run.mine, run.theirs, strict=True)):
        layer, target = run.by_path[k][path], run.theirs_by_path[k].get(path)
        if target is None:
            raise BadModel(f"a source network has no layer {path!r} to match")
        use = feedback and layer.other is not None and target.other is not None
        point = target.response if use else target.own
        index = None if rows is None else torch.as_tensor(rows, device=mine.device)
        dim = 1 if layer.op is not None else -1
        asked = [layer.input, layer.other] if use and layer.other is not None else [layer.input]
        assert isinstance(mine.batches, ImageBatches)
        made = zip(mine.batches.bounds, mine.each(asked), theirs.each([point]), strict=True)
        for (before, after), (x, *besides), (y,) in made:
            if index is not None:
                y = y.index_select(dim, index)
            if y.shape[dim] != layer.output.shape[dim]:
                raise BadModel(
                    f"{path} makes {layer.output.shape[dim]} channels and is to match {y.shape[dim]} of a source;"
                    " give the source's channels that they stand for in Source.rows"
                )
            if besides:
                y = y - besides[0]
            if layer.op is not None:
                chosen = positions(layer, limit, seed, before)
                rows_x, rows_y = patches(layer, x, chosen), responses(y, groups, chosen)
            else:
                rows_x, rows_y = x.reshape(1, -1, x.shape[-1]), y.reshape(1, -1, y.shape[-1])
            if not bool(torch.isfinite(rows_x).all() and torch.isfinite(rows_y).all()):
                raise BadData(f"activations at {path} became NaN or infinite in the batch from image {before} on")
            held = _held_out(x, rows_x.shape[1], range(before, after)) if len(parts) == 2 else None
            if held is None:
                parts[0].add(rows_x, rows_y)
                continue
            for moments, some in zip(parts, (~held, held), strict=True):
                moments.add(rows_x[:, some], rows_y[:, some])


def _held_out(x: Tensor, rows: int, images: range) -> Tensor | None:
    """Which rows are of every fifth image; None where a layer's input does not say which rows are of which image.

    Tokens and windows may lie in the first dimension together with the images, each image's one after the other.
    """
    count = len(images)
    behind = x.dim() > 2 and len(x) != count and x.shape[1] == count  # tokens first, then images
    if behind or len(x) % count or rows % count:
        return None
    return (images.start + torch.arange(rows, device=x.device) // (rows // count)) % 5 == 4
