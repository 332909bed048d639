"""Muon: the weights of layers go by momentum whose directions are made equally long, everything else by AdamW.

A gradient has a few strong directions and many weak ones; a layer learns from all of them when its momentum M = UΣVᵀ is
replaced by UVᵀ (Jordan et al. 2024). A polish goes further in as many steps than by AdamW (docs/bricks-studies.md).
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
            given: list[Tensor] = [p for p in group["params"] if p.grad is not None]
            if not given:
                continue
            if group["weight_decay"]:
                torch._foreach_mul_(given, 1 - group["lr"] * group["weight_decay"])
            self._orthogonally([p for p in given if is_matrix(p)], group["lr"], group["momentum"])
            self._adam([p for p in given if not is_matrix(p)], OTHERS * group["lr"])

    def _orthogonally(self, matrices: list[Tensor], rate: float, momentum: float) -> None:
        if not matrices:
            return
        gradients = _gradients(matrices)
        means = self._kept(matrices, "momentum")
        torch._foreach_lerp_(means, gradients, 1 - momentum)
        directions = [d.flatten(1) for d in torch._foreach_lerp(gradients, means, momentum)]
        alike: dict[torch.Size, list[int]] = {}  # those of one shape go together
        for k, direction in enumerate(directions):
            alike.setdefault(direction.shape, []).append(k)
        for which in alike.values():
            for k, made in zip(which, orthogonal(torch.stack([directions[k] for k in which])), strict=True):
                directions[k] = made
        lengths = torch._foreach_norm(directions)
        sizes = torch._foreach_norm(matrices)
        for p, step, size, length in zip(matrices, directions, sizes, lengths, strict=True):
            size = size.clamp(min=LEAST * len(p) ** 0.5) / length.clamp(min=EPS)
            p.sub_(step.view_as(p) * (rate * size))

    def _adam(self, others: list[Tensor], rate: float) -> None:
        if not others:
            return
        gradients = _gradients(others)
        means, squares = self._kept(others, "exp_avg"), self._kept(others, "exp_avg_sq")
        for p in others:
            self.state[p]["step"] = self.state[p].get("step", 0) + 1
        torch._foreach_lerp_(means, gradients, 1 - BETAS[0])
        torch._foreach_mul_(squares, BETAS[1])
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - BETAS[1])
        first, second = ([1 - beta ** self.state[p]["step"] for p in others] for beta in BETAS)
        roots = torch._foreach_sqrt(torch._foreach_div(squares, second))
        torch._foreach_add_(roots, EPS)
        torch._foreach_addcdiv_(others, means, roots, [-rate / correction for correction in first])

    def _kept(self, parameters: list[Tensor], name: str) -> list[Tensor]:
        """A tensor of each parameter's state, zeros at first."""
        for p in parameters:
            if name not in self.state[p]:
                self.state[p][name] = torch.zeros_like(p)
        return [self.state[p][name] for p in parameters]


def _gradients(parameters: list[Tensor]) -> list[Tensor]:
    return [p.grad for p in parameters if p.grad is not None]


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
