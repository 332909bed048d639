"""One short model for each construct that surgery meets, for the table of who handles what.

Widths are such that every other channel can go from every layer: groups keep equally many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CONSTRUCTS: dict[str, Callable[[], nn.Module]] = {}


def construct(name: str) -> Callable[[type[nn.Module]], type[nn.Module]]:
    def register(kind: type[nn.Module]) -> type[nn.Module]:
        CONSTRUCTS[name] = kind
        return kind

    return register


def example(name: str) -> Tensor:
    """Random input for a construct: a batch of two."""
    rng = torch.Generator().manual_seed(1)
    shape = (2, 5, 8) if name.startswith("attention") else (2, 3, 8, 8)
    return torch.randn(shape, generator=rng, dtype=torch.float64)


def block(inside: int, outside: int, kernel: int = 3, **options: Any) -> nn.Sequential:
    padding = options.pop("padding", kernel // 2)
    layer = nn.Conv2d(inside, outside, kernel, padding=padding, **options)
    return nn.Sequential(layer, nn.BatchNorm2d(outside), nn.ReLU())


class Net(nn.Module):
    """A stem, a body given by the construct, global pooling and a head."""

    width = 8  # of what the body makes
    a: nn.Module
    b: nn.Module

    def __init__(self) -> None:
        super().__init__()
        self.stem = block(3, 8)
        self.layers()
        self.head = nn.Linear(self.width, 5)

    def layers(self) -> None:
        self.a = block(8, 8)

    def body(self, x: Tensor) -> Tensor:
        return self.a(x)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(self.stem(x)).mean((2, 3)))


@construct("plain")
class Plain(Net):
    pass


@construct("residual")
class Residual(Net):
    def body(self, x: Tensor) -> Tensor:
        return x + self.a(x)


@construct("projection")
class Projection(Net):
    width = 12

    def layers(self) -> None:
        self.a, self.side = block(8, 12, stride=2), nn.Conv2d(8, 12, 1, stride=2)

    def body(self, x: Tensor) -> Tensor:
        return F.relu(self.a(x) + self.side(x))


@construct("option-A shortcut")
class OptionA(Net):
    width = 12

    def layers(self) -> None:
        self.a = block(8, 12, stride=2)

    def body(self, x: Tensor) -> Tensor:
        return self.a(x) + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2))


@construct("pre-activation")
class PreActivation(Net):
    def layers(self) -> None:
        self.norm, self.a = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1)

    def body(self, x: Tensor) -> Tensor:
        return x + self.a(F.relu(self.norm(x)))


@construct("depthwise")
class Depthwise(Net):
    def layers(self) -> None:
        self.a, self.b = block(8, 8, groups=8), block(8, 8, 1)

    def body(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


@construct("grouped")
class Grouped(Net):
    width = 16

    def layers(self) -> None:
        self.a = block(8, 16, groups=4)


@construct("channel shuffle")
class Shuffle(Net):
    def layers(self) -> None:
        self.a, self.b = block(8, 8, 1, groups=2), block(8, 8, groups=2)

    def body(self, x: Tensor) -> Tensor:
        x = self.a(x)
        n, c, h, w = x.shape
        return self.b(x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w))


@construct("concat")
class Concat(Net):
    def layers(self) -> None:
        self.a, self.b, self.c = block(8, 4), block(8, 6), block(10, 8)

    def body(self, x: Tensor) -> Tensor:
        return self.c(torch.cat([self.a(x), self.b(x)], 1))


@construct("dense connections")
class Dense(Net):
    width = 16

    def layers(self) -> None:
        self.a, self.b = block(8, 4), block(12, 4)

    def body(self, x: Tensor) -> Tensor:
        for layer in (self.a, self.b):
            x = torch.cat([x, layer(x)], 1)
        return x


@construct("SE gate")
class Gate(Net):
    def layers(self) -> None:
        self.a, self.down, self.up = block(8, 8), nn.Linear(8, 4), nn.Linear(4, 8)

    def body(self, x: Tensor) -> Tensor:
        x = self.a(x)
        return x * torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3))))))[:, :, None, None]


@construct("transposed")
class Transposed(Net):
    def layers(self) -> None:
        self.a = nn.ConvTranspose2d(8, 8, 3, stride=2)

    def body(self, x: Tensor) -> Tensor:
        return F.relu(self.a(x))


@construct("dilated")
class Dilated(Net):
    def layers(self) -> None:
        self.a = block(8, 8, dilation=2, padding=2)


@construct("flatten to linear")
class Flatten(Net):
    def layers(self) -> None:
        self.hidden = nn.Linear(8 * 16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.hidden(F.max_pool2d(self.stem(x), 2).flatten(1))))


@construct("called twice")
class CalledTwice(Net):
    def body(self, x: Tensor) -> Tensor:
        return self.a(self.a(x))


@construct("tied weights")
class Tied(Net):
    def layers(self) -> None:
        a, b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        b.weight = a.weight
        self.a, self.b = a, b

    def body(self, x: Tensor) -> Tensor:
        return F.relu(self.b(F.relu(self.a(x))))


@construct("GroupNorm")
class WithGroupNorm(Net):
    def layers(self) -> None:
        self.a, self.norm = nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8)

    def body(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.a(x)))


@construct("LayerNorm")
class WithLayerNorm(Net):
    def layers(self) -> None:
        self.a, self.norm = nn.Conv2d(8, 8, 3, padding=1), nn.LayerNorm(8)

    def body(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.a(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2))


@construct("attention, three projections")
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


@construct("attention, one fused projection")
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


@construct("tuple output")
class TupleOutput(Net):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(self.stem(x))
        return self.head(features.mean((2, 3))), features
