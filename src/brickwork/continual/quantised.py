"""A network of few bits per task: fine-tuned, its kernels rounded to a uniform grid per channel."""

from pathlib import Path

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


@method("quantised")
class Quantised(TaskFiles):
    """Fine-tuned with rounding in the forward pass or rounded afterwards; one whole network per task, weights only."""

    bits: int = option(default=8, at_least=2, at_most=16, help="Bits per weight.")
    aware: bool = option(default=True, help="Round in the forward pass of training.")
    lr: float = rate(0.05)
    epochs: int | None = passes()

    def begin(self, bench: Bench) -> None:
        """Nothing is shared: each task's network stands alone."""

    def shared(self, bench: Bench, after: int) -> list[Path]:
        return []

    def opening(self, bench: Bench, number: int) -> nn.Module:
        return bench.start

    def prepare(self, model: nn.Module, bench: Bench, number: int) -> None:
        if self.aware:
            compute(model, lambda name, layer: Rounded(self.bits))

    def added(self, model: nn.Module) -> dict[str, Tensor]:
        stored = {}
        aware = rules(model)
        for name, layer in kernels_of(model).items():
            weight = layer.parametrizations.weight.original if name in aware else layer.weight
            codes, scale = coded(weight.detach(), self.bits)
            stored[f"codes.{name}"] = pack(codes, self.bits)
            stored[f"scale.{name}"] = scale
        return stored

    def settle(self, model: nn.Module) -> None:
        settle(model)

    def restore(self, model: nn.Module, stored: dict[str, Tensor]) -> None:
        for name, layer in kernels_of(model).items():
            codes = unpack(stored[f"codes.{name}"], self.bits, layer.weight.numel())
            scale = stored[f"scale.{name}"].to(layer.weight.device)
            values = codes.to(layer.weight.device).reshape(layer.weight.shape)
            layer.weight.copy_(decoded(values, scale, self.bits))


def coded(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes from 0 to 2^bits − 2 about a zero in their middle, and the step of every output channel (float32).

    >>> codes, scale = coded(torch.tensor([[-1.0, 0.0, 0.5]]), 3)
    >>> codes.tolist(), [round(x, 3) for x in decoded(codes, scale, 3)[0].tolist()]
    ([[0, 3, 5]], [-1.0, 0.0, 0.667])
    """
    top = 2 ** (bits - 1) - 1
    most = weight.flatten(1).abs().amax(1)
    scale = (most / top).clamp(min=torch.finfo(torch.float32).tiny)
    codes = (weight / _wide(scale, weight)).round().clamp(-top, top) + top
    return codes.long(), scale.float()


def decoded(codes: Tensor, scale: Tensor, bits: int) -> Tensor:
    return (codes - (2 ** (bits - 1) - 1)).float() * _wide(scale, codes)


class Rounded(nn.Module):
    """The nearest value of the grid forwards; the gradient passes as if nothing had been rounded."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits

    def forward(self, weight: Tensor) -> Tensor:
        codes, scale = coded(weight.detach(), self.bits)
        return weight + (decoded(codes, scale, self.bits).to(weight.dtype) - weight).detach()


def _wide(scale: Tensor, weight: Tensor) -> Tensor:
    return scale.reshape(-1, *[1] * (weight.dim() - 1))
