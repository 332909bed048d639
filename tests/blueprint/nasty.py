"""Models made to go wrong silently: here surgery may refuse, but what it returns must be right.

NASTY[name] is (factory, example). Every one of these was, or could be, accepted and wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from constructs import IMAGE, TOKENS, WORDS, Net, conv, linear, pooled, shuffle
from torch import Tensor, nn

NASTY: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {}


def after_conv(name: str, body: Callable[..., Tensor], width: int = 8, out: int | None = None, **members: Any) -> None:
    """relu(conv) → body(self, h) → pool → linear; members are made by calling them."""
    NASTY[name] = (
        lambda: Net(
            lambda s, x: s.head(pooled(body(s, F.relu(s.stem(x))))),
            stem=conv(3, width),
            head=linear(out or width),
            **{k: make() for k, make in members.items()},
        ),
        IMAGE,
    )


def after_linear(name: str, body: Callable[..., Tensor], out: int = 8, **members: Any) -> None:
    NASTY[name] = (
        lambda: Net(
            lambda s, x: s.head(body(s, s.stem(x)).mean(1)),
            stem=linear(6, 8),
            head=linear(out),
            **{k: make() for k, make in members.items()},
        ),
        TOKENS,
    )


def weight(*shape: int) -> Callable[[], nn.Parameter]:
    return lambda: nn.Parameter(torch.ones(shape))


def at_two_widths(s: Net, h: Tensor) -> Tensor:
    return F.relu(F.conv2d(h, s.w)) + F.conv2d(h[:, :4], s.w[:, :4])


def rotated(s: Net, h: Tensor) -> Tensor:
    return h * s.cos + torch.cat([-h[..., 4:], h[..., :4]], -1) * s.sin


def through(kernel: Callable[[Net], Tensor]) -> Callable[[Net, Tensor], Tensor]:
    return lambda s, h: F.conv2d(h, kernel(s))


def blurred(s: Net, h: Tensor) -> Tensor:
    return F.conv2d(h, s.k.expand(h.shape[1], -1, -1, -1), groups=h.shape[1]) ** 2


def over_concat(s: Net, h: Tensor) -> Tensor:
    both = torch.cat([h, s.a(h)], 1)
    return both + s.b(both)


def looped(s: Net, h: Tensor) -> Tensor:
    for _ in range(s.steps):
        h = torch.tanh(h * s.gain)
    return h


# channels that move, meet themselves or are named by number
after_conv("flip and add", lambda s, h: h + h.flip(1))
after_conv("roll and add", lambda s, h: h + torch.roll(h, 4, 1))
after_conv("roll and concat", lambda s, h: torch.cat([h, torch.roll(h, 3, 1)], 1), out=16)
after_conv("swap halves and add", lambda s, h: h + torch.cat(h.chunk(2, 1)[::-1], 1))
after_conv(
    "concat with itself, grouped", lambda s, h: s.c(torch.cat([h, h], 1)), out=6, c=lambda: conv(16, 6, groups=2)
)
after_conv("odd groups", lambda s, h: s.c(shuffle(h, 3)), width=12, out=9, c=lambda: conv(12, 9, groups=3))
after_conv("first channel gates", lambda s, h: h * torch.sigmoid(h[:, :1]))
after_conv("every other channel", lambda s, h: h[:, ::2], out=4)
after_conv("index table", lambda s, h: h[:, s.p], p=lambda: torch.tensor([3, 1, 0, 2, 7, 6, 5, 4]))
after_conv("image grouped", lambda s, h: s.c(torch.cat([h, h.mean(1, True)], 1)), out=3, c=lambda: conv(9, 3, groups=3))
after_linear("rotary halves", rotated, cos=lambda: torch.rand(5, 1), sin=lambda: torch.rand(5, 1))
after_linear("gated halves", lambda s, h: (lambda a, b: F.silu(a) * b)(*h.chunk(2, -1)), out=4)
# numbers and choices that follow the width
after_conv("divided by width", lambda s, h: h / h.shape[1])
after_conv("tensor of the width", lambda s, h: h * torch.tensor(1.0 / h.shape[1], dtype=h.dtype))
after_conv("branch on the width", lambda s, h: h.relu() if h.shape[1] > 5 else torch.tanh(h))
after_conv("pool of the width", lambda s, h: F.max_pool2d(h, 2 if h.shape[1] > 5 else 4))
after_conv("alpha of the width", lambda s, h: h.add(h * h, alpha=h.shape[1]))
after_conv("roll by the width", lambda s, h: torch.roll(h, h.shape[1] // 2, 2) * h.flip(2))
after_conv("steps equal to the width", looped, gain=weight(8, 1, 1), steps=lambda: 8)
# kernels that are computed, moved or belong to nobody
after_conv("one kernel at two widths", at_two_widths, out=6, w=weight(6, 8, 3, 3))
after_conv("flipped kernel", lambda s, h: F.conv2d(shuffle(h, 2), s.w.flip(1)), out=6, w=weight(6, 8, 3, 3))
after_conv("constant kernel", through(lambda s: torch.arange(48.0).reshape(6, 8, 1, 1).double()), out=6)
after_conv("integer kernel", through(lambda s: s.k.double()), out=6, k=lambda: torch.arange(48).reshape(6, 8, 1, 1))
after_conv("softmax kernel", through(lambda s: torch.softmax(s.w, 1)), out=6, w=weight(6, 8, 1, 1))
after_conv("low rank kernel", through(lambda s: (s.u @ s.v)[:, :, None, None]), out=6, u=weight(6, 4), v=weight(4, 8))
after_conv("kernel of two", through(lambda s: torch.cat([s.u, s.v])), u=weight(6, 8, 1, 1), v=weight(2, 8, 1, 1))
after_conv("one blur for all", blurred, k=lambda: torch.rand(1, 1, 3, 3))
# normalisation over channels
after_conv("group norm without weights", lambda s, h: s.n(h), width=12, n=lambda: nn.GroupNorm(3, 12, affine=False))
after_conv("group norm by function", lambda s, h: F.group_norm(h, 3, s.w, s.b), width=12, w=weight(12), b=weight(12))
after_conv("layer norm over all", lambda s, h: s.n(h), n=lambda: nn.LayerNorm([8, 8, 8]))
after_conv("layer norm over space", lambda s, h: s.n(h), n=lambda: nn.LayerNorm([8, 8]))
after_conv("layer norm over width", lambda s, h: s.n(h), n=lambda: nn.LayerNorm(8))
after_linear("rms norm", lambda s, h: s.n(h), n=lambda: nn.RMSNorm(8))
# parts that networks cannot share
after_conv("one channel", lambda s, h: s.c(F.relu(s.b(h))), out=6, b=lambda: conv(8, 1), c=lambda: conv(1, 6))
after_conv("one channel gates", lambda s, h: h * torch.sigmoid(s.g(h)), g=lambda: conv(8, 1))
after_conv(
    "convolution over channels",
    lambda s, h: s.k(h.flatten(2).mean(2)[:, None])[:, 0, :, None, None],
    k=lambda: nn.Conv1d(1, 1, 3, padding=1),
)
after_conv("padded channels", lambda s, h: F.pad(h, (0, 0, 0, 0, 2, 2)), width=4, out=8)
after_conv("residual over concat", over_concat, width=4, out=12, a=lambda: conv(4, 8), b=lambda: conv(12, 12))
NASTY["two heads in a row"] = (
    lambda: Net(
        lambda s, x: (lambda h: torch.cat([s.a(pooled(h)), s.b(h.amax((2, 3)))], 1))(F.relu(s.stem(x))),
        stem=conv(3, 8),
        a=linear(8),
        b=linear(8, 4),
    ),
    IMAGE,
)
NASTY["transformer layer"] = (
    lambda: nn.Sequential(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), nn.Flatten(), linear(30)),
    TOKENS,
)
NASTY["word embedding"] = (
    lambda: Net(
        lambda s, x: s.head(F.relu(s.a(s.e(x))).mean(1)), e=nn.Embedding(11, 8), a=linear(8, 6), head=linear(6)
    ),
    WORDS,
)
