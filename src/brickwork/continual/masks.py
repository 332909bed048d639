"""Kernel-wise soft masks (KSM, Yang et al. 2021): a task scales the kernels of a trunk that stays as it is."""

import torch
from torch import Tensor, nn

from brickwork.continual.base import TaskFiles
from brickwork.continual.bench import Bench
from brickwork.continual.computed import compute, rules, settle
from brickwork.continual.networks import halved, kernels_of
from brickwork.continual.options import passes, rate
from brickwork.continual.registry import method


@method("ksm")
class SoftMasks(TaskFiles):
    """A real factor for every kernel (output × input channel) per task, stored in float16; batch norms and a head."""

    lr: float = rate(0.015)
    epochs: int | None = passes()

    optimizer = "adam"
    weight_decay = 0.0

    def prepare(self, model: nn.Module, bench: Bench, number: int) -> None:
        for layer in kernels_of(model).values():
            layer.weight.requires_grad_(False)
        compute(model, lambda name, layer: Mask(layer.weight))

    def added(self, model: nn.Module) -> dict[str, Tensor]:
        return {f"mask.{name}": halved(rule.off.detach()) for name, rule in rules(model).items()}

    def settle(self, model: nn.Module) -> None:
        settle(model)

    def restore(self, model: nn.Module, stored: dict[str, Tensor]) -> None:
        for name, layer in kernels_of(model).items():
            rule = Mask(layer.weight)
            rule.off.copy_(stored[f"mask.{name}"])
            layer.weight.copy_(rule(layer.weight))


class Mask(nn.Module):
    """W · (1 + off), one number per kernel; at first 1, so that training begins with the trunk itself."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.off = nn.Parameter(torch.zeros(weight.shape[:2], device=weight.device, dtype=weight.dtype))

    def forward(self, weight: Tensor) -> Tensor:
        return weight * (1 + self.off).reshape(*weight.shape[:2], *[1] * (weight.dim() - 2))
