"""Random networks put together from the constructs: `draw(seed)` is the network of that seed.

A stage is a function of (rng, width) that returns a module and the width it makes; @stage registers it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from constructs import BAKED, CONSTRUCTS, IMAGE, Logits, Net, block, conv, narrowed, pooled, shuffle
from torch import Tensor, nn

__all__ = ["BAKED", "CONSTRUCTS", "STAGES", "Drawn", "draw"]

Stage = Callable[[random.Random, int], tuple[nn.Module, int]]
STAGES: dict[str, Stage] = {}
#: stages whose forward itself fixes sizes
STIFF = {"shuffled", "halves", "attended"}


def stage(function: Stage) -> Stage:
    STAGES[function.__name__] = function
    return function


@stage
def plain(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    out = rng.randint(3, 9)
    kernel = rng.choice([1, 3])
    return block(width, out, kernel=kernel, bias=rng.random() < 0.5), out


@stage
def residual(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    inner = rng.randint(2, 6)
    body = nn.Sequential(block(width, inner), conv(inner, width), nn.BatchNorm2d(width))
    return Net(lambda s, x: F.relu(x + s.body(x)), body=body), width


@stage
def projected(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    out = rng.randint(4, 9)
    return Net(lambda s, x: (s.side(x) + s.body(x)).relu_(), side=conv(width, out, 1), body=block(width, out)), out


@stage
def padded(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    extra = rng.choice([0, 2, 4])
    body = conv(width, width + extra, stride=2)
    return Net(lambda s, x: F.relu(narrowed(x, extra) + s.body(x)), body=body), width + extra


@stage
def preactivated(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    return Net(lambda s, x: x + s.b(F.relu(s.n(x))), n=nn.BatchNorm2d(width), b=conv(width, width)), width


@stage
def depthwise(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    times = rng.choice([1, 2])
    return block(width, times * width, groups=width), times * width


@stage
def grouped(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    groups = rng.choice([g for g in (1, 2, 3, 4) if width % g == 0])
    out = groups * rng.randint(1, 3)
    return block(width, out, groups=groups), out


@stage
def shuffled(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    groups = rng.choice([g for g in (2, 3, 5, 1) if width % g == 0])
    return Net(lambda s, x: shuffle(x, groups)), width


@stage
def halves(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    half = rng.randint(2, 4)

    def forward(s: Net, x: Tensor) -> Tensor:
        left, right = s.a(x).chunk(2, 1)
        return torch.cat([s.b(right), left], 1)

    return Net(forward, a=block(width, 2 * half), b=block(half, half)), 2 * half


@stage
def concatenated(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    a, b = rng.randint(2, 4), rng.randint(2, 4)
    return Net(lambda s, x: torch.cat([s.a(x), s.b(x)], 1), a=block(width, a), b=block(width, b, kernel=1)), a + b


@stage
def dense(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    grow = rng.randint(1, 3)
    return Net(lambda s, x: torch.cat([x, s.a(x)], 1), a=block(width, grow)), width + grow


@stage
def doubled(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    return Net(lambda s, x: s.n(torch.cat([x, -x], 1)), n=nn.BatchNorm2d(2 * width)), 2 * width


@stage
def gated(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    inner = rng.randint(2, 4)
    return Net(
        lambda s, x: x * torch.sigmoid(s.up(F.relu(s.down(F.adaptive_avg_pool2d(x, 1))))),
        down=conv(width, inner, 1),
        up=conv(inner, width, 1),
    ), width


@stage
def transposed(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    out = rng.randint(3, 6)
    return nn.Sequential(nn.ConvTranspose2d(width, out, 2), nn.BatchNorm2d(out), nn.LeakyReLU()), out


@stage
def dilated(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    return nn.Sequential(block(width, 5, dilation=2, padding=2), nn.Dropout2d(0.1)), 5


@stage
def twice(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    return Net(lambda s, x: s.a(s.a(x)), a=block(width, width)), width


@stage
def tied(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    net = nn.Sequential(conv(width, width), nn.Hardswish(), conv(width, width))
    net[2].weight = net[0].weight
    return net, width


@stage
def layer_normed(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    norm = nn.LayerNorm(width)
    return Net(
        lambda s, x: F.gelu(s.n(s.a(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)), a=conv(width, width), n=norm
    ), width


@stage
def scaled(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    gain = nn.Parameter(torch.ones(width, 1, 1))
    return Net(lambda s, x: 0.5 * x * s.gain + x.tanh() - 1.5, gain=gain), width


@stage
def attended(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    heads, size = rng.randint(1, 3), 2

    def forward(s: Net, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        q, k, v = (p(tokens).view(n, h * w, -1, size).transpose(1, 2) for p in (s.q, s.k, s.v))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return (tokens + s.out(mixed)).transpose(1, 2).reshape(n, c, h, w)

    projections = {name: nn.Linear(width, heads * size) for name in "qkv"}
    return Net(forward, **projections, out=nn.Linear(heads * size, width)), width


@dataclass
class Drawn:
    """A random network, what it is made of, and how to call it."""

    model: nn.Module
    stages: list[str]
    example: Tensor
    stiff: bool  # some kept sets may be refused


class Trunk(nn.Module):
    def __init__(self, layers: list[nn.Module], width: int, side: int, returns: str) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width * side * side, 4)
        self.side, self.returns = side, returns

    def forward(self, x: Tensor) -> Any:
        features = self.layers(x)
        flat = pooled(features) if self.side == 1 else F.adaptive_max_pool2d(features, self.side).flatten(1)
        logits = self.head(flat)
        if self.returns == "dict":
            return {"features": features, "logits": logits}
        return Logits(logits, features) if self.returns == "dataclass" else logits


def draw(seed: int, *, most: int = 5, without: frozenset[str] | set[str] = frozenset()) -> Drawn:
    """The same seed gives the same network; weights are drawn by `checks.randomise`."""
    rng = random.Random(seed)
    width = rng.randint(4, 8)
    names: list[str] = ["stem"]
    layers: list[nn.Module] = [block(3, width)]
    for _ in range(rng.randint(1, most)):
        name = rng.choice([n for n in STAGES if n not in without])
        if name == "shuffled" and all(width % g for g in (2, 3, 5)):
            name = "plain"
        layer, width = STAGES[name](rng, width)
        names.append(name)
        layers.append(layer)
    model = Trunk(layers, width, rng.choice([1, 2]), rng.choice(["tensor", "dict", "dataclass"]))
    return Drawn(model, names, IMAGE, bool(STIFF & set(names)))
