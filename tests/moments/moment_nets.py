"""Networks small enough for exact tests, in float64, with no parameter or statistic at its default."""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from torch import Tensor, nn

import brickwork
from brickwork import zoo
from brickwork.moments import Source, match_responses

SIDE = 16
#: architecture -> its arguments, and how many times narrower than published it is cut
SMALL: dict[str, tuple[dict[str, Any], int]] = {
    "lenet": ({}, 1),
    "resnet8": ({"width": 8}, 1),
    "resnet18": ({}, 8),
    "inception_small": ({"width": 4}, 1),
    "mobilenetv2": ({}, 8),
    "shuffle_small": ({"width": 16}, 1),
    "vit_small": ({"image_size": SIDE, "dim": 24, "depth": 2}, 1),
}


def images(count: int, seed: int = 0, channels: int = 3, side: int = SIDE) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(count, channels, side, side, generator=rng, dtype=torch.float64)


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Double precision, evaluation mode, weights that keep signals alive, no default statistics."""
    rng = torch.Generator().manual_seed(seed)
    model = model.double().eval()

    def draw(shape: Any) -> Tensor:
        return torch.rand(shape, generator=rng, dtype=torch.float64)

    with torch.no_grad():
        for p in model.parameters():
            if p.dim() < 2:
                p.copy_(draw(p.shape) + 0.5)
            else:
                p.copy_((2 * draw(p.shape) - 1) * (5 / p[0].numel()) ** 0.5)
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(draw(b.shape) - 0.5)
            elif name.endswith("running_var"):
                b.copy_(draw(b.shape) + 0.5)
    return model


@functools.cache
def _built(name: str) -> nn.Module:
    arguments, share = SMALL[name]
    model = zoo.build(name, num_classes=4, seed=0, **arguments)
    if share > 1:
        model = thinned(model, torch.zeros(2, 3, SIDE, SIDE), share)[0]
    return model


def small(name: str, seed: int = 0) -> nn.Module:
    """A zoo network, narrow."""
    import copy

    return randomise(copy.deepcopy(_built(name)), seed)


def thinned(model: nn.Module, example: Tensor, share: int) -> tuple[nn.Module, dict[str, list[int]]]:
    """Every `share`-th channel of every space that may be cut, the classes excepted; and what was kept."""
    bp = brickwork.trace(model, example)
    keep = {n: list(range(0, s, share)) for n, s in bp.spaces.items() if n != "classes" and not bp.space(n).fixed}
    return bp.select(model, keep), keep


class NormThenRelu(nn.BatchNorm2d):
    """A batch norm with an activation inside, as most convolutional networks of timm have."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu_()


def with_activations_in_norms() -> nn.Module:
    """Convolutions whose norms hold the activation, and a residual sum."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n = nn.Conv2d(3, 6, 3, padding=1, bias=False), NormThenRelu(6)
            self.b, self.m = nn.Conv2d(6, 6, 3, padding=1, groups=2), NormThenRelu(6, affine=True)
            self.c, self.k, self.head = nn.Conv2d(6, 6, 1, bias=False), nn.BatchNorm2d(6), nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.n(self.a(x))
            return self.head((x + self.k(self.c(self.m(self.b(x))))).mean((2, 3)))

    return randomise(Net())


def error(a: nn.Module, b: nn.Module, x: Tensor) -> float:
    """The largest difference of two networks' outputs, against the largest output."""
    with torch.no_grad():
        left, right = a(x), b(x)
    assert torch.isfinite(left).all()
    return float((left - right).abs().max() / right.abs().max())


def state(model: nn.Module) -> dict[str, Any]:
    """Everything that must be left alone."""
    tensors = {n: t.detach().clone() for n, t in model.state_dict().items()}
    return {"tensors": tensors, "modes": [m.training for m in model.modules()], "shown": repr(model)}


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    equal = all(torch.equal(t, b["tensors"][n]) for n, t in a["tensors"].items())
    return equal and a["modes"] == b["modes"] and a["shown"] == b["shown"] and list(a["tensors"]) == list(b["tensors"])


def matched(student, source, x, **options):
    return match_responses(student, [Source(source, x)], progress=False, **options)


def noisy(model: nn.Module, *layers: str) -> nn.Module:
    """A copy with some layers' weights replaced by noise."""
    broken = copy.deepcopy(model)
    rng = torch.Generator().manual_seed(99)
    with torch.no_grad():
        for name in layers:
            for p in broken.get_submodule(name).parameters():
                p.copy_(torch.randn(p.shape, generator=rng, dtype=p.dtype) * 0.3)
    return broken
