"""A low-rank change of every layer a task, as LoRA (Hu et al. 2021) does: what many would do today."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from brickwork.continual.base import TaskFiles, check_positive
from brickwork.continual.bench import Bench
from brickwork.continual.computed import compute, rules, settle
from brickwork.continual.networks import halved, kernels_of
from brickwork.continual.registry import method
from brickwork.errors import RequestError


@method("lora")
@dataclass(frozen=True)
class LowRank(TaskFiles):
    """W + BA with B (outputs × rank) and A (rank × the rest) a task, stored in float16; batch norms and a head."""

    rank: int = 4
    lr: float = 0.004
    epochs: int | None = None

    optimizer = "adam"
    weight_decay = 0.0

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, epochs=self.epochs)
        if not (isinstance(self.rank, int) and self.rank >= 1):
            raise RequestError(f"rank is {self.rank!r}; it must be a whole number from 1 up.")

    def prepare(self, model: nn.Module, bench: Bench, number: int) -> None:
        source = torch.Generator().manual_seed(1000 * bench.seed + number)
        for layer in kernels_of(model).values():
            layer.weight.requires_grad_(False)
        compute(model, lambda name, layer: Change(layer.weight, self.rank, source))

    def added(self, model: nn.Module) -> dict[str, Tensor]:
        return {
            f"{part}.{name}": halved(getattr(rule, part).detach())
            for name, rule in rules(model).items()
            for part in ("a", "b")
        }

    def settle(self, model: nn.Module) -> None:
        settle(model)

    def restore(self, model: nn.Module, stored: dict[str, Tensor]) -> None:
        for name, layer in kernels_of(model).items():
            rule = Change(layer.weight, self.rank)
            rule.a.copy_(stored[f"a.{name}"])
            rule.b.copy_(stored[f"b.{name}"])
            layer.weight.copy_(rule(layer.weight))


class Change(nn.Module):
    """W + BA; B is 0 at first. The rank is never more than the smaller side: more would only cost."""

    def __init__(self, weight: Tensor, rank: int, source: torch.Generator | None = None) -> None:
        super().__init__()
        outputs, rest = weight.shape[0], weight[0].numel()
        rank = min(rank, outputs, rest)
        drawn = torch.zeros(rank, rest)
        if source is not None:
            drawn = torch.randn(rank, rest, generator=source) / math.sqrt(rest)
        self.a = nn.Parameter(drawn.to(weight))
        self.b = nn.Parameter(torch.zeros(outputs, rank).to(weight))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + (self.b @ self.a).reshape(weight.shape)
