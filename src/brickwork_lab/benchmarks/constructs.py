"""One short model for each construct that surgery meets, for the table of who handles what.

Widths are such that every other channel can go from every layer: groups keep equally many.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CONSTRUCTS: dict[str, Callable[[], nn.Module]] = {}
Layers = Callable[[], dict[str, nn.Module]]
Body = Callable[[Any, Tensor], Tensor]


def block(inside: int, outside: int, kernel: int = 3, **options: Any) -> nn.Sequential:
    padding = options.pop("padding", kernel // 2)
    layer = nn.Conv2d(inside, outside, kernel, padding=padding, **options)
    return nn.Sequential(layer, nn.BatchNorm2d(outside), nn.ReLU())


class Net(nn.Module):
    """A stem, a body made of some layers, global pooling and a head."""

    def __init__(self, body: Body, layers: Layers, width: int) -> None:
        super().__init__()
        self.body = body
        self.stem = block(3, 8)
        for name, layer in layers().items():
            self.add_module(name, layer)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(self, self.stem(x)).mean((2, 3)))


def construct(name: str, layers: Layers = lambda: {"a": block(8, 8)}, width: int = 8) -> Callable[[Body], Body]:
    """Register a body under a name, with its layers and the width of what it makes."""

    def register(body: Body) -> Body:
        CONSTRUCTS[name] = partial(Net, body, layers, width)
        return body

    return register


def example(name: str) -> Tensor:
    """Random input for a construct: a batch of two."""
    rng = torch.Generator().manual_seed(1)
    shape = (2, 5, 8) if name.startswith("attention") else (2, 3, 8, 8)
    return torch.randn(shape, generator=rng, dtype=torch.float64)


@construct("grouped", lambda: {"a": block(8, 16, groups=4)}, width=16)
@construct("dilated", lambda: {"a": block(8, 8, dilation=2, padding=2)})
@construct("plain")
def plain(net: Any, x: Tensor) -> Tensor:
    return net.a(x)


@construct("residual")
def residual(net: Any, x: Tensor) -> Tensor:
    return x + net.a(x)


@construct("projection", lambda: {"a": block(8, 12, stride=2), "side": nn.Conv2d(8, 12, 1, stride=2)}, width=12)
def projection(net: Any, x: Tensor) -> Tensor:
    return F.relu(net.a(x) + net.side(x))


@construct("option-A shortcut", lambda: {"a": block(8, 12, stride=2)}, width=12)
def option_a(net: Any, x: Tensor) -> Tensor:
    return net.a(x) + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2))


@construct("pre-activation", lambda: {"norm": nn.BatchNorm2d(8), "a": nn.Conv2d(8, 8, 3, padding=1)})
def pre_activation(net: Any, x: Tensor) -> Tensor:
    return x + net.a(F.relu(net.norm(x)))


@construct("depthwise", lambda: {"a": block(8, 8, groups=8), "b": block(8, 8, 1)})
def depthwise(net: Any, x: Tensor) -> Tensor:
    return net.b(net.a(x))


@construct("channel shuffle", lambda: {"a": block(8, 8, 1, groups=2), "b": block(8, 8, groups=2)})
def shuffle(net: Any, x: Tensor) -> Tensor:
    x = net.a(x)
    n, c, h, w = x.shape
    return net.b(x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w))


@construct("concat", lambda: {"a": block(8, 4), "b": block(8, 6), "c": block(10, 8)})
def concat(net: Any, x: Tensor) -> Tensor:
    return net.c(torch.cat([net.a(x), net.b(x)], 1))


@construct("dense connections", lambda: {"a": block(8, 4), "b": block(12, 4)}, width=16)
def dense(net: Any, x: Tensor) -> Tensor:
    for layer in (net.a, net.b):
        x = torch.cat([x, layer(x)], 1)
    return x


@construct("SE gate", lambda: {"a": block(8, 8), "down": nn.Linear(8, 4), "up": nn.Linear(4, 8)})
def gate(net: Any, x: Tensor) -> Tensor:
    x = net.a(x)
    return x * torch.sigmoid(net.up(F.relu(net.down(x.mean((2, 3))))))[:, :, None, None]


@construct("transposed", lambda: {"a": nn.ConvTranspose2d(8, 8, 3, stride=2)})
def transposed(net: Any, x: Tensor) -> Tensor:
    return F.relu(net.a(x))


@construct("called twice")
def called_twice(net: Any, x: Tensor) -> Tensor:
    return net.a(net.a(x))


def _tied() -> dict[str, nn.Module]:
    a, b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
    b.weight = a.weight
    return {"a": a, "b": b}


@construct("tied weights", _tied)
def tied(net: Any, x: Tensor) -> Tensor:
    return F.relu(net.b(F.relu(net.a(x))))


@construct("GroupNorm", lambda: {"a": nn.Conv2d(8, 8, 3, padding=1), "norm": nn.GroupNorm(2, 8)})
def group_norm(net: Any, x: Tensor) -> Tensor:
    return F.relu(net.norm(net.a(x)))


@construct("LayerNorm", lambda: {"a": nn.Conv2d(8, 8, 3, padding=1), "norm": nn.LayerNorm(8)})
def layer_norm(net: Any, x: Tensor) -> Tensor:
    return F.relu(net.norm(net.a(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2))


class Flatten(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.hidden, self.head = block(3, 8), nn.Linear(8 * 16, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.hidden(F.max_pool2d(self.stem(x), 2).flatten(1))))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 16) for _ in range(3))
        self.out, self.head = nn.Linear(16, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        q, k, v = (p(x).view(n, t, -1, 4).transpose(1, 2) for p in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.head((x + self.out(mixed)).mean(1))


class FusedAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads, self.size = 4, 4
        self.qkv, self.out, self.head = nn.Linear(8, 48), nn.Linear(16, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, -1)
        return self.head((x + self.out(mixed)).mean(1))


class TupleOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a, self.head = block(3, 8), block(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.a(self.stem(x))
        return self.head(features.mean((2, 3))), features


CONSTRUCTS |= {"flatten to linear": Flatten, "tuple output": TupleOutput}
CONSTRUCTS |= {"attention, three projections": Attention, "attention, one fused projection": FusedAttention}
