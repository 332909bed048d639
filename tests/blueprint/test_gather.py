"""A forward that is written down so that it can be cut trains as it did: its dropouts, and what was frozen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import brickwork
from brickwork.errors import Unsupported

KEPT = {"stem": [0, 1, 2, 5, 7, 8]}
X = torch.randn(64, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Shuffled(nn.Module):
    """Channels are shuffled by numbers, and dropped by a function."""

    def __init__(self, *, louder: bool = False) -> None:
        super().__init__()
        self.norm, self.stem, self.louder = nn.BatchNorm2d(12), nn.Conv2d(3, 12, 3, padding=1), louder
        self.middle, self.last, self.head = nn.Conv2d(12, 12, 1), nn.BatchNorm2d(12), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.last(self.stem(x))
        n, c, h, w = x.shape
        x = self.norm(self.middle(x.view(n, 3, 4, h, w).transpose(1, 2).reshape(n, c, h, w)))
        if self.louder and self.training:
            x = 2 * x
        return self.head(F.dropout(F.dropout2d(x, p=0.3, training=self.training).mean((2, 3)), 0.5, self.training))


@pytest.mark.parametrize("training", [True, False])
def test_dropouts_of_the_forward_stay(training):
    torch.manual_seed(0)
    net = Shuffled().double().train(training)
    net.norm.eval()
    bp = brickwork.trace(net, X)
    small, zeroed = bp.select(net, KEPT), bp.zero(net, KEPT)
    modes = dict(net.named_modules())
    assert all(module.training == modes[path].training for path, module in small.named_modules() if path in modes)
    assert small.training == training and not small.norm.training
    assert torch.allclose(small.eval()(X), zeroed.eval()(X), atol=1e-12)
    for one in (small, zeroed):
        one.train()
        one.norm.eval()
    means = []
    for one in (small, zeroed):  # half of all means is gone, and of what is left a share of whole maps
        seen: list[Tensor] = []
        one.head.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0]))
        one(X)
        means.append(float((seen[0] == 0).double().mean()))
    assert means[0] == pytest.approx(1 - 0.7 * 0.5, abs=0.05) == means[1]


def test_a_forward_that_does_more_in_training_is_not_written_down():
    net = Shuffled(louder=True).double().eval()
    bp = brickwork.trace(net, X)
    with pytest.raises(Unsupported):
        bp.select(net, KEPT)


def test_what_was_written_down_is_loaded_as_it_was(tmp_path):
    torch.manual_seed(0)
    net = Shuffled().double().eval()
    small = brickwork.trace(net, X).select(net, KEPT)
    brickwork.save(small, tmp_path / "small")
    again = brickwork.load(tmp_path / "small", arch=lambda: Shuffled().double())
    assert torch.equal(again(X), small(X)) and str(again) == str(small)
