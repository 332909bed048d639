"""Kernels that are no plain parameters: built in forward, or borrowed from another layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from checks import TOLERANCE, call, difference, fill, randomise, restricted
from constructs import IMAGE, conv
from torch import nn

import brickwork


class Blurred(nn.Module):
    """A depthwise blur whose kernel is made in forward, as anti-aliased networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.head = conv(3, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.c1(x))
        kernel = torch.ones(x.shape[1], 1, 3, 3, dtype=x.dtype) / 9
        return self.head(F.conv2d(x, kernel, groups=x.shape[1]).mean((2, 3)))


class TiedDecoder(nn.Module):
    """A decoder that has no weight of its own: it reads the encoder's, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 4), nn.Linear(4, 6)
        self.decode.weight = None  # type: ignore[assignment]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(F.relu(self.encode(x)), self.encode.weight.t(), self.decode.bias)


def test_kernel_built_in_forward():
    model = randomise(Blurred())
    bp, x = brickwork.trace(model, IMAGE), fill(IMAGE, 1)
    assert bp.count().parameters == sum(p.numel() for p in model.parameters())
    keep = {"classes": [0, 3]}
    wanted = restricted(bp, keep, call(bp.zero(model, keep), x))
    assert difference(call(bp.select(model, keep), x), wanted) <= TOLERANCE


def test_layer_without_a_weight_of_its_own():
    model = randomise(TiedDecoder())
    example = torch.zeros(2, 6, dtype=torch.float64)
    bp, x = brickwork.trace(model, example), fill(example, 1)
    keep = {"encode": [0, 2]}
    assert difference(call(bp.select(model, keep), x), call(bp.zero(model, keep), x)) <= TOLERANCE
