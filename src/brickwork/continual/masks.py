"""Kernel-wise masks (KSM, Yang et al. 2021): a task scales the kernels of a trunk that stays as it is, or leaves some out."""

import torch
from torch import Tensor, nn

from brickwork.continual.base import TaskFiles
from brickwork.continual.bench import Bench
from brickwork.continual.computed import compute, rules, settle
from brickwork.continual.files import pack, unpack
from brickwork.continual.networks import halved, kernels_of
from brickwork.continual.options import passes, rate
from brickwork.continual.registry import method
from brickwork.options import option

LEAVE = -0.5  # a binary mask leaves out what has lost more than half


@method("ksm")
class SoftMasks(TaskFiles):
    """A factor for every kernel (output × input channel) per task, real in float16 or a bit; batch norms and a head."""

    binary: bool = option(default=False, help="A kernel is there or not: one bit instead of a factor.")
    lr: float = rate(0.015)
    epochs: int | None = passes()

    optimizer = "adam"
    weight_decay = 0.0

    def prepare(self, model: nn.Module, bench: Bench, number: int) -> None:
        for layer in kernels_of(model).values():
            layer.weight.requires_grad_(False)
        compute(model, lambda name, layer: Mask(layer.weight, self.binary))

    def added(self, model: nn.Module) -> dict[str, Tensor]:
        offs = {f"mask.{name}": rule.off.detach() for name, rule in rules(model).items()}
        return {name: pack((off > LEAVE).long(), 1) if self.binary else halved(off) for name, off in offs.items()}

    def settle(self, model: nn.Module) -> None:
        settle(model)

    def restore(self, model: nn.Module, stored: dict[str, Tensor]) -> None:
        for name, layer in kernels_of(model).items():
            rule, off = Mask(layer.weight), stored[f"mask.{name}"]
            if self.binary:
                off = unpack(off, 1, rule.off.numel()).reshape(rule.off.shape) - 1
            rule.off.copy_(off)
            layer.weight.copy_(rule(layer.weight))


class Mask(nn.Module):
    """W · (1 + off), one number per kernel; at first 1, so that training begins with the trunk itself.

    binary: 1 or 0, whichever is nearer; the gradient passes as if it were the number.
    """

    def __init__(self, weight: Tensor, binary: bool = False) -> None:
        super().__init__()
        self.binary = binary
        self.off = nn.Parameter(torch.zeros(weight.shape[:2], device=weight.device, dtype=weight.dtype))

    def forward(self, weight: Tensor) -> Tensor:
        factor = 1 + self.off
        if self.binary:
            factor = factor + ((self.off > LEAVE).to(factor.dtype) - factor).detach()
        return weight * factor.reshape(*weight.shape[:2], *[1] * (weight.dim() - 2))
