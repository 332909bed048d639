"""Forwards that write into a slice of a tensor, as torchvision's Swin does: followed, or refused, never dropped."""

from __future__ import annotations

import copy
import importlib.util

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import brickwork
from brickwork import zoo
from brickwork.bricks.cut import cut_and_repair
from brickwork.errors import Unsupported

QUIET = {"repair": "match", "progress": False}


class KeyBias(nn.Module):
    """The middle third of a bias counts as zero (Swin v2)."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 12), nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, x):
        bias = self.b.bias.clone()
        third = bias.numel() // 3
        bias[third : 2 * third].zero_()
        return self.c(F.linear(self.a(x), self.b.weight, bias).relu())


class Regions(nn.Module):
    """Slices of slices of what a convolution made, written to one after the other, and an older slice read."""

    def __init__(self):
        super().__init__()
        self.a, self.c, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 1), nn.Linear(4, 3)

    def forward(self, x):
        y = self.a(x).clone()
        y[:, :, 1:3, 0:2].mul_(2.0)
        y[:, :, 2:4, 1:3].relu_()
        return self.head(self.c(y).mean((2, 3)))


class Unread(nn.Module):
    """Uneven pieces, which a cut needs explicit gathers for, and a write that nobody reads the result of."""

    def __init__(self):
        super().__init__()
        self.a, self.one, self.two, self.c = nn.Linear(6, 9), nn.Linear(3, 4), nn.Linear(6, 4), nn.Linear(8, 3)

    def forward(self, x):
        y = self.a(x)
        y.relu_()
        one, two = y.split([3, 6], 1)
        return self.c(torch.cat([self.one(one), self.two(two)], 1))


class Mask(nn.Module):
    """A table made in forward, slice by slice (Swin's shifted windows)."""

    def __init__(self):
        super().__init__()
        self.a, self.c = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 3)

    def forward(self, x):
        table = x.new_zeros((6, 6))
        for k, rows in enumerate((slice(0, -3), slice(-3, -1), slice(-1, None))):
            for columns in (slice(0, -3), slice(-3, None)):
                table[rows, columns] = k + 1.0
        return self.c((self.a(x) * table).relu().mean((2, 3)))


def network(kind):
    torch.manual_seed(0)
    x = torch.randn(5, 6) if kind in (KeyBias, Unread) else torch.randn(5, 3, 6, 6)
    return kind().double().eval(), x.double()


@pytest.mark.parametrize(
    ("kind", "keep"),
    [
        (KeyBias, {"a": [0, 2, 3, 5]}),
        (KeyBias, {"output": [0, 4, 8]}),
        (KeyBias, {"output": [1, 3, 4, 6, 9, 11]}),
        (Regions, {"a": [0, 2, 5], "c": [1, 3]}),
        (Unread, {"a": [0, 2, 3, 4, 7]}),
        (Mask, {"a": [1, 6]}),
    ],
)
def test_cuts_are_exact(kind, keep):
    net, x = network(kind)
    bp, before = brickwork.trace(net, x), copy.deepcopy(net.state_dict())
    part, blank = bp.select(net, keep), bp.zero(net, keep)
    assert torch.allclose(part(x), blank(x), rtol=0, atol=1e-12)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("keep", [[4, 5, 8, 9], [0, 1, 2, 3], [0, 1, 4, 8]])
def test_a_slice_that_would_end_elsewhere_is_refused(keep):
    """Explicit gathers must not hide it: torch.fx leaves out writes that nobody reads."""
    net, x = network(KeyBias)
    with pytest.raises(Unsupported, match="this cut is not exact"):
        brickwork.trace(net, x).select(net, {"output": keep})


@pytest.mark.parametrize("kind", [Regions, Mask])
def test_parts_are_repaired(kind):
    net, x = network(kind)
    bp = brickwork.trace(net, x)
    cut = cut_and_repair(net, bp, {"a": list(range(8))}, [0, 1, 2], x, **QUIET)
    assert torch.allclose(cut.model(x), net(x), atol=1e-6)


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="needs the extra timm")
@pytest.mark.parametrize("arch", ["torchvision:swin_t", "torchvision:swin_v2_t"])
def test_torchvisions_swin_is_cut_and_repaired(arch):
    """Shifted windows write a mask into slices, and version 2 part of a bias."""
    torch.manual_seed(0)
    net, x = zoo.build(arch, num_classes=3).eval(), torch.rand(6, 3, 64, 64)
    bp = brickwork.trace(net, x[:2])
    kept = {name: list(range(0, size, 2)) for name, size in bp.spaces.items() if name.endswith("mlp.0")}
    cut = cut_and_repair(net, bp, kept, [0, 1, 2], x, **QUIET)
    assert cut.model(x).shape == (6, 3) and bool(torch.isfinite(cut.model(x)).all())
    assert cut.fits
