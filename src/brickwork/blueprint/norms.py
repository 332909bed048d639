"""Normalisation over channels of which some were cut: the statistics still count the absent ones as zeros.

A plain LayerNorm over fewer channels is another function than the original with those channels at zero.
These modules keep the original's count, so that a cut stays exact, and can be cut again.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def _with_layers(norm: nn.Module, x: Tensor) -> Tensor:
    """What the norm's own layers make of it: an activation or a dropout, where the norm it stands for has one."""
    for layer in norm.children():
        x = layer(x)
    return x


class SparseLayerNorm(nn.Module):
    """LayerNorm over `full` channels of which only some are present; the others are zero.

    >>> x = torch.tensor([[1.0, 0.0, 3.0, 0.0]])
    >>> part = SparseLayerNorm(2, full=4)
    >>> torch.allclose(part(x[:, [0, 2]]), nn.LayerNorm(4)(x)[:, [0, 2]], atol=1e-6)
    True
    """

    def __init__(self, present: int, full: int, *, eps: float = 1e-5, dim: int = -1, bias: bool = True) -> None:
        super().__init__()
        self.full, self.eps, self.dim = full, eps, dim
        self.weight = nn.Parameter(torch.ones(present))
        self.bias = nn.Parameter(torch.zeros(present)) if bias else None
        self.present: Tensor
        self.register_buffer("present", torch.ones(present))

    def forward(self, x: Tensor) -> Tensor:
        if self.dim != -1:
            x = x.movedim(self.dim, -1)
        mean = x.sum(-1, keepdim=True) / self.full
        centred = (x - mean) * self.present
        absent = self.full - self.present.sum()  # each absent channel deviates from the mean by the mean itself
        variance = ((centred * centred).sum(-1, keepdim=True) + absent * mean * mean) / self.full
        # the bound changes no number, and ONNX's optimiser would take an eps of 1e-12 for nothing
        x = centred * torch.rsqrt((variance + self.eps).clamp(min=self.eps)) * self.weight
        if self.bias is not None:
            x = x + self.bias
        return _with_layers(self, x.movedim(-1, self.dim) if self.dim != -1 else x)

    def extra_repr(self) -> str:
        return f"{len(self.weight)} of {self.full}, eps={self.eps}"


class SparseGroupNorm(nn.Module):
    """GroupNorm of which some channels are absent: `member[g, c]` is 1 where channel c belongs to group g.

    >>> x = torch.randn(2, 6, 3)
    >>> x[:, [1, 5]] = 0
    >>> part = SparseGroupNorm(torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]), group_size=3)
    >>> torch.allclose(part(x[:, [0, 2, 3, 4]]), nn.GroupNorm(2, 6)(x)[:, [0, 2, 3, 4]], atol=1e-6)
    True
    """

    def __init__(self, member: Tensor, group_size: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.group_size, self.eps = group_size, eps
        self.weight = nn.Parameter(torch.ones(member.shape[1]))
        self.bias = nn.Parameter(torch.zeros(member.shape[1]))
        self.member: Tensor
        self.register_buffer("member", member)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(2)
        places = flat.shape[2]
        count = self.group_size * places
        mean = flat.sum(2) @ self.member.t() / count  # (batch, group)
        centred = flat - (mean @ self.member).unsqueeze(2)
        squares = (centred * centred * self.member.sum(0).unsqueeze(1)).sum(2) @ self.member.t()
        absent = (self.group_size - self.member.sum(1)) * places
        variance = (squares + absent * mean * mean) / count
        scale = torch.rsqrt(variance + self.eps) @ self.member
        x = (centred * (scale * self.weight).unsqueeze(2)).reshape(x.shape)
        return _with_layers(self, x + self.bias.reshape(1, -1, *([1] * (x.dim() - 2))))

    def extra_repr(self) -> str:
        groups, channels = self.member.shape
        return f"{channels} of {groups * self.group_size} channels in {groups} groups, eps={self.eps}"
