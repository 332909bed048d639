"""RegMean and RegMean++: layers solved for what each network's own layer answers, biases and the rest averaged.

RegMean (2212.09849) takes the inputs of a layer from each network by itself, all layers at once; RegMean++ (2508.03121) from
the merged network, whose layers below are merged already.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from brickwork.algebra.inputs import ModelTask
from brickwork.algebra.merging import merge
from brickwork.blueprint.record import record
from brickwork.devices import number_of
from brickwork.moments import Moments, collect_moments, solve_ridge
from brickwork.moments.batches import ImageBatches, fitting
from brickwork.moments.gathering import ROOM
from brickwork.moments.layers import Layer, find_layers, patches, positions
from brickwork.moments.program import Program
from brickwork.progress import bar

ROWS = 16  # for every input of a layer


def regmean(
    models: list[nn.Module], tasks: list[ModelTask], *, shares: list[float], progress: bool, **solving: float
) -> tuple[nn.Module, dict[str, Any]]:
    """W = (Σ G_i)⁻¹ Σ G_i W_i; solving: `shrink` and `ridge`."""
    merged = merge(models, weights=[w / sum(shares) for w in shares])
    grams = [collect_moments(m, t.own.split(250), progress=progress) for m, t in zip(models, tasks, strict=True)]
    for path in grams[0]:
        _write(merged, models, path, [gram[path] for gram in grams], shares, **solving)
    return merged, {}


def regmean_plus(
    models: list[nn.Module],
    tasks: list[ModelTask],
    *,
    shares: list[float],
    progress: bool,
    seed: int = 0,
    **solving: float,
) -> tuple[nn.Module, dict[str, Any]]:
    """The same, layer after layer, G_i of what the merged network makes of task i."""
    merged = merge(models, weights=[w / sum(shares) for w in shares]).eval()
    runs = [_Features(merged, task, seed) for task in tasks]
    paths = runs[0].paths
    with bar("merging", len(paths), show=progress) as advance:
        for path in paths:
            _write(merged, models, path, [run.moments(path) for run in runs], shares, **solving)
            for run in runs:
                run.forget(path)
            advance(1, path)
    return merged, {}


def _write(
    merged: nn.Module,
    models: Sequence[nn.Module],
    path: str,
    moments: Sequence[Moments],
    shares: Sequence[float],
    shrink: float = 0.9,
    ridge: float = 1e-6,
) -> None:
    """Give a layer the weight that answers most like each network's on that one's inputs.

    shrink: factor of the off-diagonal of each Gram matrix.
    """
    total: Moments | None = None
    for model, seen, share in zip(models, moments, shares, strict=True):
        weight = _matrix(model.get_submodule(path), seen.gram.shape[0])
        gram = seen.gram * shrink + torch.diag_embed(seen.gram.diagonal(dim1=-2, dim2=-1) * (1 - shrink))
        cross = gram @ weight
        part = Moments(
            gram=gram,
            cross=cross,
            sum_x=torch.zeros_like(seen.sum_x),
            sum_y=torch.zeros_like(cross[..., 0, :]),
            sum_yy=(weight * cross).sum(-2),
            rows=seen.rows,
        ).scaled(share / seen.rows)
        total = part if total is None else total.plus(part)
    assert total is not None
    layer = merged.get_submodule(path)
    solved = solve_ridge(total, ridge=ridge, bias=False, prior=_matrix(layer, total.gram.shape[0])).weight
    own = layer.weight
    assert isinstance(own, Tensor)
    with torch.no_grad():
        own.copy_(solved.mT.reshape(own.shape))


class _Features:
    """What arrives at the layers of a network that changes from the input up, on the images of one task."""

    def __init__(self, model: nn.Module, task: ModelTask, seed: int) -> None:
        like = number_of(model)
        self.count = len(task.images)
        images = ImageBatches(task.images, fitting(model, task.images), like)
        room = ROOM["cuda" if like.is_cuda else "cpu"]
        batches = [images.of_size(size) for size in images.sizes]
        self.programs = [Program(model, record(model, some[0]), some, room=room) for some in batches]
        self.layers: list[Mapping[str, Layer]] = [
            {layer.path: layer for layer in find_layers(program.graph, model)} for program in self.programs
        ]
        self.seed = seed

    @property
    def paths(self) -> list[str]:
        return list(self.layers[0])

    def moments(self, path: str) -> Moments:
        total: Moments | None = None
        for some in self._rows(path):  # a batch at a time: all of them together grow with the images
            total = total or Moments.empty(some.shape[-1], 0, some.device, groups=len(some))
            total.add(some, some[..., :0])
        assert total is not None
        return total

    def forget(self, path: str) -> None:
        for program, layers in zip(self.programs, self.layers, strict=True):
            program.forget(layers[path].output)

    def _rows(self, path: str) -> Iterator[Tensor]:
        for program, layers in zip(self.programs, self.layers, strict=True):
            layer = layers[path]
            assert isinstance(program.batches, ImageBatches)
            for (before, _), (x,) in zip(program.batches.bounds, program.each([layer.input]), strict=True):
                if layer.op is None:
                    yield x.reshape(1, -1, x.shape[-1])
                else:
                    inputs = math.prod(layer.op.args[1].shape[1:])
                    yield patches(layer, x, positions(layer, -(-ROWS * inputs // self.count), self.seed, before))


def _matrix(layer: nn.Module, groups: int) -> Tensor:
    """A layer's weight as (groups, inputs of a group, outputs of a group), float64."""
    weight = layer.weight
    assert isinstance(weight, Tensor) and isinstance(layer, nn.Linear | _ConvNd)
    return weight.detach().double().reshape(groups, weight.shape[0] // groups, -1).mT
