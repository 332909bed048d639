"""REPAIR for networks without batch norm (Jordan et al. 2023, arXiv 2211.08403).

The responses of a mean of networks vary less than those of any of them, the less the deeper. Layer after layer, from the
input up, every channel of a convolution or linear layer gets the mean and the spread that lie between those of the
networks that were merged, by a new scale of its weights and a new bias: nothing is added to the network.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from brickwork.algebra.inputs import ModelTask, seen_by
from brickwork.blueprint.plan import trace
from brickwork.blueprint.record import record
from brickwork.copying import copy_module
from brickwork.devices import number_of
from brickwork.errors import BadData, BadModel, RequestError
from brickwork.moments.batches import ImageBatches, SlicedImages, fitting
from brickwork.moments.gathering import ROOM
from brickwork.moments.layers import find_layers
from brickwork.moments.program import Program
from brickwork.progress import bar


def has_statistics(model: nn.Module) -> bool:
    return any(isinstance(m, _BatchNorm) and m.running_mean is not None for m in model.modules())


def refuse_unrepairable(model: nn.Module, example: Tensor) -> None:
    """Networks whose responses cannot be set by weights and biases alone, by the name of the layer."""
    if has_statistics(model):
        raise RequestError(
            "`repair` is for networks without batch norm, and these have some, which are given statistics of the images "
            "(`bn` recalibrate); leave it out."
        )
    bp = trace(model, example)
    known = {layer.path for layer in find_layers(bp.graph, model)}
    for site in bp.sites:
        if site.kind in ("conv", "linear") and site.module not in known:
            raise BadModel(
                f"{site.called} cannot be repaired: it runs more than once, shares its weight, is transposed "
                "or is not a plain convolution or linear layer; merge without `repair`."
            )
    for path in sorted(known):
        if model.get_submodule(path).bias is None:
            raise BadModel(
                f"{path} has no bias, which the mean of its responses is set by; merge without `repair`, or give it one of zeros."
            )


def responses_between(
    parents: Sequence[nn.Module], tasks: Sequence[ModelTask], shares: Sequence[float], *, prepared: nn.Module
) -> dict[str, Tensor]:
    """Mean and spread of every layer's channels, (2, channels), those of all parents weighed by their shares.

    The parents have their channels in one order. Statistics are those of the images of all tasks. prepared: the network that
    the tasks' images are prepared for.
    """
    wanted: dict[str, Tensor] = {}
    for parent, share in zip(parents, shares, strict=True):
        for path, found in response_statistics(parent, seen_by(parent, prepared, tasks)).items():
            part = share / sum(shares) * found
            wanted[path] = wanted[path] + part if path in wanted else part
    return wanted


def responses_of_pairs(parents: Sequence[nn.Module], tasks: Sequence[ModelTask]) -> dict[str, Tensor]:
    """Mean and spread of what every parent answers on its own task, all images together: what the merged one is to give."""
    wanted: dict[str, Tensor] = {}
    total = sum(len(task.images) for task in tasks)
    for parent, task in zip(parents, tasks, strict=True):
        for path, (mean, spread) in response_statistics(parent, task.own).items():
            part = len(task.images) / total * torch.stack([mean, mean.square() + spread.square()])
            wanted[path] = wanted[path] + part if path in wanted else part
    return {path: torch.stack([m, (q - m.square()).clamp(min=0).sqrt()]) for path, (m, q) in wanted.items()}


def response_statistics(model: nn.Module, images: SlicedImages) -> dict[str, Tensor]:
    """Mean and spread of every layer's channels, (2, channels), float64."""
    run = _Responses(model, images)
    return {path: run.statistics(path) for path in run.paths}


def set_responses(
    merged: nn.Module, wanted: Mapping[str, Tensor], tasks: Sequence[ModelTask], progress: bool
) -> nn.Module:
    """A copy of the merged network whose responses have the mean and spread that are wanted, from the input up."""
    refuse_unrepairable(merged, tasks[0].images[:2])
    new = copy_module(merged).eval()
    run = _Responses(new, seen_by(merged, merged, tasks))
    with bar("repairing", len(run.paths), show=progress) as advance:
        for path in run.paths:
            _set_response(new.get_submodule(path), run.statistics(path), wanted[path])
            run.forget(path)
            advance(1, path)
    return new


def _set_response(layer: nn.Module, now: Tensor, wanted: Tensor) -> None:
    """Statistics are (2, channels): mean and spread. A channel that never changes keeps its weights."""
    weight, bias = layer.weight, layer.bias
    assert isinstance(weight, Tensor) and isinstance(bias, Tensor)
    (mean, spread), (goal, width) = now, wanted
    alive = spread > 1e-6 * (mean.square() + spread.square()).sqrt()
    scale = torch.where(alive, width / torch.where(alive, spread, 1.0), 1.0)
    with torch.no_grad():
        weight.copy_(weight.double() * scale.reshape(-1, *[1] * (weight.dim() - 1)))
        bias.copy_(goal + scale * (bias.double() - mean))


class _Responses:
    """What the layers of a network answer on some images; its layers may change from the input up."""

    def __init__(self, model: nn.Module, images: SlicedImages) -> None:
        like = number_of(model)
        batches = ImageBatches(images, fitting(model, images), like)
        room = ROOM["cuda" if like.is_cuda else "cpu"]
        some = [batches.of_size(size) for size in batches.sizes]
        self.programs = [Program(model, record(model, one[0]), one, room=room) for one in some]
        self.layers = [{layer.path: layer for layer in find_layers(p.graph, model)} for p in self.programs]
        self.paths = list(self.layers[0])

    def statistics(self, path: str) -> Tensor:
        """Mean and spread of every channel, (2, channels), float64."""
        count, total, squares = 0, torch.zeros(()), torch.zeros(())
        for rows in self._rows(path):
            if not bool(torch.isfinite(rows).all()):
                raise BadData(f"activations at {path} became NaN or infinite; they cannot be repaired.")
            count, total, squares = count + len(rows), total + rows.sum(0), squares + rows.square().sum(0)
        mean = total / count
        return torch.stack([mean, (squares / count - mean.square()).clamp(min=0).sqrt()])

    def forget(self, path: str) -> None:
        for program, layers in zip(self.programs, self.layers, strict=True):
            program.forget(layers[path].output)

    def _rows(self, path: str) -> Iterator[Tensor]:
        for program, layers in zip(self.programs, self.layers, strict=True):
            dim = -1 if layers[path].op is None else 1
            for (y,) in program.each([layers[path].output]):
                yield y.double().movedim(dim, -1).flatten(0, -2)
