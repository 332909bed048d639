"""A low-rank change of every layer per task, as LoRA (Hu et al. 2021) does: what many would do today."""

import math

import torch
from torch import Tensor, nn

from brickwork.continual.base import TaskFiles
from brickwork.continual.bench import Bench
from brickwork.continual.computed import compute, rules, settle
from brickwork.continual.networks import halved, kernels_of
from brickwork.continual.options import passes, rate
from brickwork.continual.registry import method
from brickwork.options import option


@method("lora")
class LowRank(TaskFiles):
    """W + BA with B (outputs × rank) and A (rank × the rest) per task, stored in float16; batch norms and a head."""

    rank: int = option(default=4, at_least=1, help="Rank of the change.")
    lr: float = rate(0.004)
    epochs: int | None = passes()

    optimizer = "adam"
    weight_decay = 0.0

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
