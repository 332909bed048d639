"""Collect the moments of chosen layers in one pass over a stream of batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.blueprint.record import record
from brickwork.errors import BadData, RequestError, UnknownName
from brickwork.moments.batches import ImageBatches
from brickwork.moments.gram import Moments
from brickwork.moments.layers import Layer, find_layers, groups_of, positions, rows_of
from brickwork.moments.program import Program
from brickwork.moments.windows import add_windows, has_windows
from brickwork.progress import bar


def collect_moments(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    layers: Collection[str] | None = None,
    places: int | Callable[[Layer], int | None] | None = None,
    output: str | int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> dict[str, Moments]:
    """For every chosen layer: XᵀX of what it reads and XᵀY with what it makes, over all batches, in one pass.

    batches: tensors, or tuples whose first entry is one (a DataLoader's). A convolution's rows are the patches it
    reads, (groups, rows, channels × kernel); `places` takes a random sample of that many places of an image.
    Memory: one batch and the Gram matrices.

    >>> net = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> found = collect_moments(net, [torch.ones(4, 3), torch.ones(2, 3)], progress=False)
    >>> found["0"].rows, found["0"].gram.shape
    (6.0, torch.Size([1, 3, 3]))
    """
    if isinstance(places, int) and places < 1:
        raise RequestError(f"places must be 1 or more, not {places}")
    totals: dict[str, Moments] = {}
    recorded: dict[tuple[int, ...], tuple[Any, list[Layer]]] = {}
    device = next(model.parameters()).device
    first = batches.bounds[0][0] if isinstance(batches, ImageBatches) else 0
    before = first  # images before the batch
    with bar("collecting", None, show=progress) as advance:
        for number, batch in enumerate(batches):
            images = (batch[0] if isinstance(batch, (tuple, list)) else batch).to(device)
            if tuple(images.shape) not in recorded:
                graph = record(model, images, output=output)
                recorded[tuple(images.shape)] = graph, _chosen(find_layers(graph, model), layers)
            graph, chosen = recorded[tuple(images.shape)]
            program = Program(model, graph, [images])
            for layer in chosen:
                x, y = program.get(layer.input)[0], program.get(layer.output)[0]
                if not bool(torch.isfinite(x).all() and torch.isfinite(y).all()):
                    raise BadData(f"activations at {layer.path} became NaN or infinite in batch {number}")
                if layer.path not in totals:
                    totals[layer.path] = _empty(model, layer)
                limit = places(layer) if callable(places) else places
                if limit is None and has_windows(layer):
                    add_windows(totals[layer.path], layer, x, y)
                else:
                    totals[layer.path].add(*rows_of(layer, x, y, positions(layer, limit, seed, before)))
            before += len(images)
            advance(1)
    if before == first:
        raise BadData("no images were given to collect moments on")
    return totals


def _chosen(found: list[Layer], wanted: Collection[str] | None) -> list[Layer]:
    known = [layer.path for layer in found]
    for name in wanted or ():
        if name not in known:
            raise UnknownName("layer", name, known)
    return [layer for layer in found if wanted is None or layer.path in set(wanted)]


def _empty(model: nn.Module, layer: Layer) -> Moments:
    weight = model.get_submodule(layer.path).weight
    assert isinstance(weight, Tensor)
    groups = groups_of(layer)
    return Moments.empty(weight[0].numel(), len(weight) // groups, weight.device, groups=groups)
