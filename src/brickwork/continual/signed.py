"""The change of a kernel in one bit: BitDelta (Liu et al. 2024), for tasks after one trunk."""

import torch
from torch import Tensor, nn

from brickwork.continual.base import TaskFiles
from brickwork.continual.bench import Bench
from brickwork.continual.computed import compute, rules, settle
from brickwork.continual.files import pack, unpack
from brickwork.continual.networks import kernels_of
from brickwork.continual.options import passes, rate
from brickwork.continual.registry import method
from brickwork.options import option


@method("bitdelta")
class SignedChange(TaskFiles):
    """What a task changes of every kernel as signs and a step per output channel, in float32; batch norms and a head."""

    aware: bool = option(default=True, help="Take the change by its signs in the forward pass of training.")
    lr: float = rate(0.02)
    epochs: int | None = passes()

    def prepare(self, model: nn.Module, bench: Bench, number: int) -> None:
        compute(model, lambda name, layer: Signed(layer.weight.detach().clone(), self.aware))

    def added(self, model: nn.Module) -> dict[str, Tensor]:
        stored = {}
        layers = kernels_of(model)
        for name, rule in rules(model).items():
            change = layers[name].parametrizations.weight.original.detach() - rule.base
            stored[f"signs.{name}"] = pack((change >= 0).long(), 1)
            stored[f"step.{name}"] = step_of(change)
        return stored

    def settle(self, model: nn.Module) -> None:
        settle(model)

    def restore(self, model: nn.Module, stored: dict[str, Tensor]) -> None:
        for name, layer in kernels_of(model).items():
            weight = layer.weight
            signs = 2 * unpack(stored[f"signs.{name}"], 1, weight.numel()).reshape(weight.shape).to(weight) - 1
            weight += signs * _wide(stored[f"step.{name}"].to(weight), weight)


def step_of(change: Tensor) -> Tensor:
    """Of every output channel the mean size of its changes: the step that leaves the least squared error beside their signs.

    >>> step_of(torch.tensor([[1.0, -3.0], [0.0, 0.0]])).tolist()
    [2.0, 0.0]
    """
    return change.flatten(1).abs().mean(1).float()


class Signed(nn.Module):
    """The base and the signs of what was changed, times a step; the gradient passes as if all of the change were there."""

    def __init__(self, base: Tensor, aware: bool) -> None:
        super().__init__()
        self.register_buffer("base", base, persistent=False)
        self.base: Tensor
        self.aware = aware

    def forward(self, weight: Tensor) -> Tensor:
        if not self.aware:
            return weight
        change = (weight - self.base).detach()
        signs = torch.where(change >= 0, 1.0, -1.0).to(weight.dtype)
        return weight + (self.base + signs * _wide(step_of(change).to(weight.dtype), change) - weight).detach()


def _wide(step: Tensor, weight: Tensor) -> Tensor:
    return step.reshape(-1, *[1] * (weight.dim() - 1))
