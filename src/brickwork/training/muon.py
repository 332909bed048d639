"""Muon: the weights of layers go by momentum whose directions are made equally long, everything else by AdamW.

A gradient has a few strong directions and many weak ones; a layer learns from all of them when its momentum M = UΣVᵀ is
replaced by UVᵀ (Jordan et al. 2024). A polish goes further in as many steps than by AdamW (docs/bricks.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

ITERATIONS = 5
QUINTIC = (3.4445, -4.7750, 2.0315)  # singular values from 0.05 up end between 0.7 and 1.2, which is near enough to 1
OTHERS = 0.1  # the rate of AdamW beside a rate of 1 here, which is a share of a weight's size
BETAS, EPS = (0.9, 0.999), 1e-8
LEAST = (
    0.01  # per row, the size that a weight is taken to have at least: one that begins at zero has to begin somewhere
)


class Muon(torch.optim.Optimizer):
    """lr is relative: a step of 0.01 changes a layer's weights by a hundredth of their norm.

    >>> layer = nn.Linear(4, 3)
    >>> optimizer = Muon(layer.parameters(), lr=0.01)
    >>> before = layer.weight.detach().clone()
    >>> layer(torch.ones(2, 4)).sum().backward()
    >>> optimizer.step()
    >>> round(((layer.weight.detach() - before).norm() / before.norm()).item(), 4)
    0.01
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, *, momentum: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            moved: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}  # by shape: those of one go together
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                if is_matrix(parameter):
                    direction = self._momentum(parameter, group["momentum"]).flatten(1)
                    moved.setdefault((direction.shape[0], direction.shape[1]), []).append((parameter, direction))
                else:
                    self._adam(parameter, OTHERS * group["lr"])
            for pairs in moved.values():
                even = orthogonal(torch.stack([direction for _, direction in pairs]))
                for (parameter, _), step in zip(pairs, even, strict=True):
                    size = parameter.norm().clamp(min=LEAST * len(parameter) ** 0.5) / step.norm().clamp(min=EPS)
                    parameter.sub_(step.view_as(parameter) * (group["lr"] * size))

    def _momentum(self, parameter: Tensor, momentum: float) -> Tensor:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        mean: Tensor = state["momentum"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(mean, momentum)

    def _adam(self, parameter: Tensor, rate: float) -> None:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if "step" not in state:
            state |= {"step": 0, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
        state["step"] += 1
        first, second = (1 - beta ** state["step"] for beta in BETAS)
        mean = state["exp_avg"].lerp_(gradient, 1 - BETAS[0])
        square = state["exp_avg_sq"].lerp_(gradient.square(), 1 - BETAS[1])
        parameter.addcdiv_(mean, (square / second).sqrt_().add_(EPS), value=-rate / first)


def is_matrix(parameter: Tensor) -> bool:
    """Whether it maps channels to channels: not a bias, a norm, a table of positions or a depthwise kernel.

    >>> shapes = (64, 32), (64, 32, 3, 3), (64,), (1, 65, 192), (64, 1, 3, 3)
    >>> [is_matrix(torch.zeros(shape)) for shape in shapes]
    [True, True, False, False, False]
    """
    return parameter.dim() >= 2 and min(parameter.shape[:2]) > 1


def orthogonal(matrices: Tensor) -> Tensor:
    """Of some matrices (n, rows, columns), nearly UVᵀ of their UΣVᵀ: Newton and Schulz's iteration.

    >>> near = orthogonal(torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(0)))
    >>> values = torch.linalg.svdvals(near)
    >>> bool((values > 0.6).all() and (values < 1.3).all())
    True
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x.to(torch.bfloat16 if x.is_cuda else torch.promote_types(x.dtype, torch.float32))
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=EPS)
    a, b, c = QUINTIC
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return (x.mT if tall else x).to(matrices.dtype)
