"""One small hand-written model per construct that surgery must know: CONSTRUCTS[name]() is a fresh module.

Each takes `example(name)`. BAKED names those whose forward itself fixes sizes (split, shuffle, reshape):
there, and only there, a kept set may be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IMAGE = torch.zeros(2, 3, 8, 8, dtype=torch.float64)
TOKENS = torch.zeros(2, 5, 6, dtype=torch.float64)
WORDS = torch.arange(10).reshape(2, 5)


@dataclass
class Logits:
    """What a forward of its own kind may return."""

    logits: Tensor
    features: Tensor


class Net(nn.Module):
    """Modules by name, and a forward given as a function of (self, input)."""

    def __init__(self, forward: Callable[..., Any], **members: Any) -> None:
        super().__init__()
        for name, member in members.items():
            if isinstance(member, Tensor) and not isinstance(member, nn.Parameter):
                self.register_buffer(name, member)
            else:
                setattr(self, name, member)
        self.run = forward

    def forward(self, *args: Any) -> Any:
        return self.run(self, *args)


def conv(inside: int, outside: int, kernel: int = 3, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(inside, outside, kernel, padding=options.pop("padding", kernel // 2), **options)


def block(inside: int, outside: int, **options: Any) -> nn.Sequential:
    return nn.Sequential(conv(inside, outside, **options), nn.BatchNorm2d(outside), nn.ReLU(inplace=True))


def linear(inside: int, outside: int = 5) -> nn.Linear:
    return nn.Linear(inside, outside)


def pooled(x: Tensor) -> Tensor:
    return x.mean((2, 3))


def shuffle(x: Tensor, groups: int) -> Tensor:
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


def narrowed(x: Tensor, extra: int) -> Tensor:
    """Option A of the ResNet paper: every other pixel, and channels of zeros on both sides."""
    return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, extra // 2, extra - extra // 2))


class Attention(nn.Module):
    """Self-attention behind learned positions: one fused projection, or three.

    tokens: of its own, beside those it is given; a parameter, or looked up in a table. normed: queries and keys, each head's.
    """

    def __init__(
        self,
        width: int = 12,
        heads: int = 3,
        *,
        fused: bool = True,
        inside: int = 6,
        tokens: nn.Module | nn.Parameter | None = None,
        normed: bool = False,
    ) -> None:
        super().__init__()
        self.num_heads, self.size, self.fused = heads, width // heads, fused
        self.embed, self.position = nn.Linear(inside, width), nn.Parameter(torch.zeros(1, 5, width))
        self.norm, self.tokens = nn.LayerNorm(width), tokens
        self.norms = nn.ModuleList(nn.LayerNorm(width // heads) for _ in range(2 * normed))
        if fused:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10), nn.GELU(), nn.Linear(10, width))
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) + self.position
        if self.tokens is not None:
            own = self.tokens if isinstance(self.tokens, Tensor) else self.tokens(torch.arange(2))
            x = torch.cat([own.expand(len(x), -1, -1), x], 1)
        n, t, _ = x.shape
        y = self.norm(x)
        if self.fused:
            q, k, v = self.qkv(y).reshape(n, t, 3, self.num_heads, self.size).permute(2, 0, 3, 1, 4)
        else:
            q, k, v = (p(y).view(n, t, -1, self.size).transpose(1, 2) for p in (self.q, self.k, self.v))
        if self.norms:
            q, k = self.norms[0](q), self.norms[1](k)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, -1)
        x = x + self.out(y)
        return self.head((x + self.mlp(x)).mean(1))


def _in_turn(*names: str) -> Callable[[Net, Tensor], Tensor]:
    def forward(s: Net, x: Tensor) -> Tensor:
        for name in names:
            x = getattr(s, name)(x)
        return s.head(pooled(x))

    return forward


def _tied() -> nn.Module:
    net = Net(_in_turn("stem", "a", "b"), stem=block(3, 6), a=conv(6, 6), b=conv(6, 6), head=linear(6))
    net.b.weight = net.a.weight
    return net


def _chain() -> nn.Module:
    return nn.Sequential(block(3, 8), block(8, 6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5))


def _gated(s: Net, x: Tensor) -> Tensor:
    x = s.stem(x)
    gate = torch.sigmoid(s.up(F.relu(s.down(pooled(x)))))
    return s.head(pooled(x * gate[:, :, None, None]))


def _dense(s: Net, x: Tensor) -> Tensor:
    x = s.stem(x)
    for layer in (s.a, s.b):
        x = torch.cat([x, layer(x)], 1)
    return s.head(pooled(x))


def _unpooled(s: Net, x: Tensor) -> Tensor:
    """SegNet's way up: back to the places where the pooling found its largest values."""
    x, places = F.max_pool2d(s.stem(x), 2, return_indices=True)
    return s.head(pooled(s.up(F.max_unpool2d(s.a(x), places, 2))))


def _recurrent(s: Net, x: Tensor) -> Tensor:
    """The rows of an image one after another, into a cell of each kind."""
    rows, _ = s.gru(s.stem(x).permute(0, 2, 1, 3).flatten(2))
    rows, (last, _) = s.lstm(F.relu(s.a(rows)))
    return s.head(s.cell(F.relu(s.b(rows.mean(1))), last[0]))


class Scaled(nn.Module):
    """A linear layer of somebody's own, whose weight has another name."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(outside, inside))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.kernel)


def _arithmetic(s: Net, x: Tensor) -> Tensor:
    x = (2 * s.stem(x) - 0.5) / 3
    x = x * s.scale + s.shift - x.abs().clamp(max=1.0)
    return s.head(pooled(x).pow(2) + 1)


def _several(wrap: Callable[[Tensor, Tensor], Any]) -> Callable[[], nn.Module]:
    def forward(s: Net, x: Tensor) -> Any:
        features = s.stem(x)
        return wrap(s.head(pooled(features)), features)

    return lambda: Net(forward, stem=block(3, 6), head=linear(6))


CONSTRUCTS: dict[str, Callable[[], nn.Module]] = {
    "chain": _chain,
    "residual": lambda: Net(
        lambda s, x: s.head(pooled(F.relu(s.stem(x) + s.a(s.stem(x))))),
        stem=block(3, 8),
        a=nn.Sequential(block(8, 6), conv(6, 8), nn.BatchNorm2d(8)),
        head=linear(8),
    ),
    "projection": lambda: Net(
        lambda s, x: s.head(pooled(F.relu(s.side(s.stem(x)) + s.a(s.stem(x))))),
        stem=block(3, 6),
        side=conv(6, 8, 1, stride=2),
        a=nn.Sequential(block(6, 6, stride=2), conv(6, 8)),
        head=linear(8),
    ),
    "option_a": lambda: Net(
        lambda s, x: s.head(pooled(F.relu(narrowed(s.stem(x), 4) + s.a(s.stem(x))))),
        stem=block(3, 4),
        a=nn.Sequential(block(4, 6, stride=2), conv(6, 8)),
        head=linear(8),
    ),
    "preactivation": lambda: Net(
        lambda s, x: (lambda h: s.head(pooled(h + s.a(F.relu(s.n(h))))))(s.stem(x)),
        stem=conv(3, 8),
        n=nn.BatchNorm2d(8),
        a=conv(8, 8),
        head=linear(8),
    ),
    "depthwise": lambda: Net(
        _in_turn("stem", "a", "b"), stem=block(3, 8), a=block(8, 8, groups=8), b=block(8, 6, kernel=1), head=linear(6)
    ),
    "depthwise_2": lambda: Net(
        _in_turn("stem", "a", "b"), stem=block(3, 6), a=block(6, 12, groups=6), b=block(12, 6, kernel=1), head=linear(6)
    ),
    "grouped": lambda: Net(_in_turn("stem", "a"), stem=block(3, 8), a=block(8, 12, groups=4), head=linear(12)),
    "shuffle": lambda: Net(
        lambda s, x: s.head(pooled(s.b(shuffle(s.a(s.stem(x)), 3)))),
        stem=block(3, 6),
        a=block(6, 12, groups=3),
        b=block(12, 6, groups=3),
        head=linear(6),
    ),
    "split": lambda: Net(
        lambda s, x: (lambda a, b: s.head(pooled(s.b(torch.cat([s.a(b), a], 1)))))(*s.stem(x).chunk(2, 1)),
        stem=block(3, 8),
        a=block(4, 4),
        b=block(8, 6),
        head=linear(6),
    ),
    "concat": lambda: Net(
        lambda s, x: s.head(pooled(s.c(torch.cat([s.a(x), s.b(x)], 1)))),
        a=block(3, 4),
        b=block(3, 6),
        c=block(10, 6),
        head=linear(6),
    ),
    "dense": lambda: Net(_dense, stem=block(3, 4), a=block(4, 3), b=block(7, 5), head=linear(12)),
    "gate": lambda: Net(_gated, stem=block(3, 8), down=nn.Linear(8, 3), up=nn.Linear(3, 8), head=linear(8)),
    "transposed": lambda: Net(
        lambda s, x: s.head(pooled(F.relu(s.a(s.stem(x))))),
        stem=block(3, 8),
        a=nn.ConvTranspose2d(8, 6, 3, stride=2),
        head=linear(6),
    ),
    "dilated": lambda: Net(
        _in_turn("stem", "a"), stem=block(3, 8), a=block(8, 6, dilation=2, padding=2), head=linear(6)
    ),
    "flatten": lambda: Net(
        lambda s, x: s.head(s.hidden(F.max_pool2d(s.stem(x), 2).flatten(1)).relu_()),
        stem=block(3, 4),
        hidden=nn.Linear(64, 7),
        head=linear(7),
    ),
    "called_twice": lambda: Net(_in_turn("stem", "a", "a"), stem=block(3, 6), a=block(6, 6), head=linear(6)),
    "tied": _tied,
    "group_norm": lambda: Net(
        lambda s, x: s.head(pooled(F.relu(s.n(s.stem(x))))), stem=conv(3, 12), n=nn.GroupNorm(3, 12), head=linear(12)
    ),
    "layer_norm": lambda: Net(
        lambda s, x: s.head(pooled(F.relu(s.n(s.stem(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)))),
        stem=conv(3, 8),
        n=nn.LayerNorm(8),
        head=linear(8),
    ),
    "layer_norm_of_weighed_places": lambda: Net(
        lambda s, x: s.head(s.n(pooled(s.stem(x))[:, None] * s.places).mean(1)),
        stem=conv(3, 8),
        places=nn.Parameter(torch.ones(1, 4, 1)),
        n=nn.LayerNorm(8),
        head=linear(8),
    ),
    "dropout": lambda: Net(
        lambda s, x: s.head(F.dropout(s.drop(pooled(s.stem(x))), 0.5, s.training)),
        stem=block(3, 8),
        drop=nn.Dropout(),
        head=linear(8),
    ),
    "arithmetic": lambda: Net(
        _arithmetic,
        stem=block(3, 8),
        scale=nn.Parameter(torch.ones(8, 1, 1)),
        shift=nn.Parameter(torch.ones(1, 8, 8, 8)),
        head=linear(8),
    ),
    "attention": Attention,
    "attention_separate": lambda: Attention(fused=False),
    "attention_one_head": lambda: Attention(heads=1, fused=False),
    "attention_registers": lambda: Attention(fused=False, tokens=nn.Parameter(torch.zeros(1, 2, 12))),
    "attention_table": lambda: Attention(fused=False, tokens=nn.Embedding(3, 12)),
    "attention_normed": lambda: Attention(fused=False, normed=True),
    "segmentation": lambda: Net(
        lambda s, x: F.interpolate(s.head(s.stem(x)), scale_factor=2, mode="bilinear"),
        stem=block(3, 8),
        head=conv(8, 5, 1),
    ),
    "returns_tuple": _several(lambda logits, features: (logits, features)),
    "returns_dict": _several(lambda logits, features: {"logits": logits, "features": features}),
    "returns_dataclass": _several(Logits),
    "conv1d": lambda: Net(
        lambda s, x: s.head(F.relu(s.n(s.b(F.relu(s.a(x))))).mean(2)),
        a=nn.Conv1d(5, 8, 3),
        b=nn.Conv1d(8, 6, 3),
        n=nn.BatchNorm1d(6),
        head=linear(6),
    ),
    "image_again": lambda: Net(
        lambda s, x: s.head(pooled(s.a(torch.cat([s.stem(x), x], 1)))), stem=block(3, 6), a=block(9, 6), head=linear(6)
    ),
    "unpooled": lambda: Net(_unpooled, stem=block(3, 6), a=conv(6, 6), up=conv(6, 8), head=linear(8)),
    "transposed_groups": lambda: Net(
        lambda s, x: s.head(pooled(s.c(F.relu(s.b(F.relu(s.a(s.stem(x)))))))),
        stem=block(3, 8),
        a=nn.ConvTranspose2d(8, 8, 2, groups=8),
        b=nn.ConvTranspose2d(8, 12, 2, groups=4),
        c=block(12, 6),
        head=linear(6),
    ),
    "recurrent": lambda: Net(
        _recurrent,
        stem=block(3, 4),
        gru=nn.GRU(32, 6, batch_first=True),
        a=linear(6, 8),
        lstm=nn.LSTM(8, 7, num_layers=2, bidirectional=True, batch_first=True),
        b=linear(14, 6),
        cell=nn.GRUCell(6, 7),
        head=linear(7),
    ),
    "own_layers": lambda: Net(
        lambda s, x: s.head(F.relu(s.b(F.relu(s.a(pooled(s.stem(x))))))),
        stem=block(3, 6),
        a=Scaled(6, 8),
        b=Scaled(8, 7),
        head=Scaled(7, 5),
    ),
    "prelu": lambda: Net(lambda s, x: s.head(pooled(s.p(s.stem(x)))), stem=conv(3, 8), p=nn.PReLU(8), head=linear(8)),
    "conv3d": lambda: Net(
        lambda s, x: s.head(F.relu(s.n(s.a(x[:, :, None].repeat(1, 1, 3, 1, 1)))).mean((2, 3, 4))),
        a=nn.Conv3d(3, 8, 3),
        n=nn.BatchNorm3d(8),
        head=linear(8),
    ),
}

#: here the forward itself fixes sizes, so some kept sets may be refused
BAKED = {"shuffle", "split", "attention", "attention_one_head"}
OUTPUTS = {"returns_tuple": 0}


def example(name: str) -> Tensor:
    return TOKENS if name.startswith(("attention", "conv1d")) else IMAGE
