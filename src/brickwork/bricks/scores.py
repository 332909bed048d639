"""Scores of every channel for every class, summed over all places where a coupled space is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.plan import CLASSES, Blueprint, trace
from brickwork.blueprint.record import Graph, Value
from brickwork.blueprint.walk import rule_name
from brickwork.bricks.attribution import Attribution, get
from brickwork.bricks.contribution import contributions
from brickwork.bricks.image_rows import Rows, image_rows, two_or_more
from brickwork.errors import BadData
from brickwork.moments.layers import Layer, find_layers
from brickwork.moments.program import run_with_grad
from brickwork.outputs import in_rows, place_rows
from brickwork.prediction import eval_mode
from brickwork.progress import bar

ACTIVATIONS = ("relu", "leaky_relu", "hardtanh", "gelu", "silu", "elu", "hardswish", "threshold")


def above_mean(table: np.ndarray, factor: float) -> np.ndarray:
    """Of every row, what exceeds `factor` × the row's mean: the paper's threshold."""
    return table > factor * table.mean(1, keepdims=True)


@dataclass(frozen=True)
class Scores:
    """scores[space] is (classes, channels), in the ids of the original network; every layer weighs the same."""

    scores: dict[str, np.ndarray]
    counts: np.ndarray  # samples used of each class
    attribution: str

    def of(self, classes: list[int]) -> dict[str, np.ndarray]:
        """One score a channel for a set of classes: each class's mean score, summed."""
        return {name: table[classes].sum(0) for name, table in self.scores.items()}

    def routes(self, threshold: float) -> dict[str, np.ndarray]:
        """{space: (classes, channels)}: on a class's route is what scores above threshold × its layer's mean (paper 2)."""
        return {name: above_mean(table, threshold) for name, table in self.scores.items()}

    def within(self, spaces: Collection[str]) -> Scores:
        """Of these spaces only; the others are left whole by whoever cuts by these scores."""
        return replace(self, scores={name: t for name, t in self.scores.items() if name in spaces})

    def with_sizes(self, bp: Blueprint, model: nn.Module) -> Scores:
        """The same; of a space that nothing was seen of, as of layers that run more than once, how large its weights are."""
        silent = {name: _sizes(bp, model, name) for name, table in self.scores.items() if not table.any()}
        return replace(
            self, scores={n: np.tile(silent[n], (len(t), 1)) if n in silent else t for n, t in self.scores.items()}
        )


def _sizes(bp: Blueprint, model: nn.Module, name: str) -> np.ndarray:
    """Of every channel of a space the squares of what makes it times those of what reads it, as shares of all.

    A product, since a layer may be larger by what the next is smaller.
    """
    made, read = np.zeros((2, bp.spaces[name]))
    transposed = {site.weight: site.transposed for site in bp.sites if site.kind in ("conv", "linear")}
    for tensor in [name for name in bp.parameters if name in transposed]:
        squares = model.get_parameter(tensor).detach().double().square().cpu()
        for dim, axis in enumerate(bp.axes[tensor][:2]):
            into = read if (dim == 1) != transposed[tensor] else made
            for space, mine, there in bp.places(axis.units) if axis is not None else ():
                if space == name:
                    np.add.at(into, there, squares.sum([d for d in range(squares.dim()) if d != dim]).numpy()[mine])
    result = made * read if made.any() and read.any() else made + read
    if not result.any():  # weights are computed of what runs over it, as over the rank of a product
        result = np.prod(_sizes_along(bp, model, name) or [np.ones(len(result))], axis=0)
    return result / max(result.sum(), 1e-300)


def _sizes_along(bp: Blueprint, model: nn.Module, name: str) -> list[np.ndarray]:
    """For every axis of a parameter that runs over the space, the squares of its numbers by channel."""
    found = []
    for tensor in bp.parameters:
        for dim, axis in enumerate(bp.axes[tensor]):
            for space, mine, there in bp.places(axis.units) if axis is not None else ():
                if space == name:
                    rows = model.get_parameter(tensor).detach().double().cpu().movedim(dim, 0)
                    found.append(np.zeros(bp.spaces[name]))
                    np.add.at(found[-1], there, rows.reshape(len(rows), -1).square().sum(1).numpy()[mine])
    return found


def score_channels(
    model: nn.Module,
    bp: Blueprint,
    images: Tensor,
    labels: Tensor,
    *,
    attribution: str = "taylor",
    at: str | None = None,
    batch_size: int | None = None,
    answered: Callable[[Tensor], None] | None = None,
    numbers: bool = False,
    progress: bool = True,
) -> Scores:
    """One forward and backward pass a sample (contribution: forward only); a sample counts for its own class.

    at: where responses are looked at ("layer", "norm", "activation"), if not where the attribution says.
    answered: hears of every sample's output that is computed on the way, batch after batch in their order.
    numbers: of maps, whether they hold numbers instead of the logits of classes.
    """
    how = get(attribution)
    if batch_size is None:  # on a CPU a small batch is as fast, and half the memory
        batch_size = 100 if images.is_cuda else 50
    classes = bp.outputs
    if len(images) == 0:
        raise BadData("no images to score channels on")
    if how.score is None:
        tables, seen = contributions(model, bp, images, labels, batch_size=batch_size, progress=progress)
        tables = {name: t / np.maximum(t.sum(), 1e-300) for name, t in tables.items()}
        return Scores(tables, seen, attribution)
    points: dict[str, _Point] = {}
    counts = np.zeros(classes)
    # batches of one size, so that one recording serves all: the last one is filled up with images that do not count
    batch_size = max(2, math.ceil(len(images) / math.ceil(len(images) / batch_size)))
    with eval_mode(model), bar("scoring", len(images), show=progress) as advance:
        here = trace(model, two_or_more(images[:batch_size]), output=bp.output)
        responses = {f.path: _looked_at(f, here.graph, at or how.at) for f in find_layers(here.graph, model)}
        looked_at = _places(model, here, responses, bp, images)
        for x, y in zip(images.split(batch_size), labels.split(batch_size), strict=True):
            output = _score_batch(model, here.graph, looked_at, x, y, batch_size, how, points, counts, numbers)
            if answered is not None:
                answered(output)
            advance(len(x))
    totals = {name: np.zeros((classes, size)) for name, size in bp.spaces.items()}
    for point in points.values():
        size = point.scores.sum()
        for space, mine, there in bp.places(point.units) if size > 0 else ():
            np.add.at(totals[space].T, there, point.scores[:, mine].T / size)
    for table in totals.values():
        table /= np.maximum(counts, 1)[:, None]
    return Scores({n: t for n, t in totals.items() if n != CLASSES}, counts, attribution)


@dataclass
class _Point:
    """One place where a layer's response is looked at: the units there, and (classes, channels) so far."""

    units: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class _Place:
    path: str
    units: np.ndarray
    channels: int  # their axis
    rows: Rows


def _looked_at(layer: Layer, graph: Graph, at: str) -> Value:
    """Where a layer's response is looked at; behind its norm where no activation follows."""
    if at == "layer":
        return layer.output
    if at == "activation":
        for op in graph.live():
            if op.outputs[0] is not None and layer.response in op.inputs() and rule_name(op) in ACTIVATIONS:
                return op.outputs[0]
    return layer.response


def _places(
    model: nn.Module, here: Blueprint, responses: dict[str, Value], bp: Blueprint, images: Tensor
) -> dict[int, _Place]:
    """Where channels are looked at, by the number of the value in the recording `here`."""
    rows = image_rows(model, bp, images, here.graph, responses.values())
    result: dict[int, _Place] = {}
    for path, value in responses.items():
        channels = here.channels(value)
        # two layers may share one response, the sum they both go into: it counts once
        if channels is not None and value.index in rows and value.index not in result:
            result[value.index] = _Place(path, *channels, rows[value.index])
    return result


def _of_maps(how: Attribution, maps: Tensor, numbers: bool) -> Tensor:
    """The objective of every image's map: of the classes that its places are given; of numbers, their energy."""
    rows = place_rows(maps)
    each = rows.square().sum(1) / 2 if numbers else how.objective(rows, rows.argmax(1))
    return each.reshape(len(maps), -1).sum(1)


def _score_batch(
    model: nn.Module,
    graph: Graph,
    looked_at: dict[int, _Place],
    x: Tensor,
    y: Tensor,
    size: int,
    how: Attribution,
    points: dict[str, _Point],
    counts: np.ndarray,
    numbers: bool,
) -> Tensor:
    """Adds what a batch says to the points, and returns its output; fewer than `size` images are filled up."""
    real = len(x)
    if real < size:
        x, y = (torch.cat([t, t[-1:].expand(size - real, *t.shape[1:])]) for t in (x, y))
    score = how.score
    assert score is not None
    held: dict[str, Tensor] = {}

    def tell(index: int, response: Tensor, gradient: Tensor) -> None:
        at = looked_at[index]
        flat = [at.rows.laid_out(t, at.channels) for t in (response, gradient)]
        held[at.path] = one_hot.t() @ score(*flat).to(one_hot.dtype)
        if at.path not in points:
            points[at.path] = _Point(at.units, np.zeros(held[at.path].shape))

    output = in_rows(run_with_grad(model, graph, x, looked_at, tell))
    with torch.enable_grad():
        objective = how.objective(output, y) if output.ndim == 2 else _of_maps(how, output, numbers)
        if how.confident:
            sure = (output.softmax(1).gather(1, y[:, None])[:, 0] > how.confident).to(objective.dtype)
        else:
            sure = torch.ones_like(objective)
        sure = sure * (torch.arange(size, device=sure.device) < real)
        one_hot = torch.nn.functional.one_hot(y, len(counts)).to(output.dtype) * sure.detach()[:, None]
        if output.requires_grad:  # not where every layer runs more than once: there is nothing to look at
            (objective * sure).sum().backward()
    counts += one_hot.sum(0).detach().cpu().double().numpy()
    for path, found_here in held.items():
        points[path].scores += found_here.detach().cpu().double().numpy()
    return output.detach()[:real]
