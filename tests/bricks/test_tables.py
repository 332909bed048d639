"""A part of a network that makes a parameter of a table: what makes it sees no image, and is right as it is cut."""

import torch
from torch import nn

import brickwork
from brickwork.bricks.cut import cut_and_repair


class Table(nn.Module):
    """A bias per channel that a small network makes of a table, as Swin v2 makes its position biases."""

    def __init__(self):
        super().__init__()
        self.a, self.c = nn.Linear(6, 8), nn.Linear(8, 3)
        self.make = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 8))
        self.register_buffer("table", torch.tensor([[0.3, -0.7]]))

    def forward(self, x):
        return self.c((self.a(x) + self.make(self.table)).relu())


def test_layers_that_see_no_image_are_left_as_they_are_cut():
    torch.manual_seed(0)
    net, x = Table().double().eval(), torch.randn(60, 6, dtype=torch.float64)
    bp = brickwork.trace(net, x[:2])
    name = next(name for name, size in bp.spaces.items() if size == 8)
    cut = cut_and_repair(net, bp, {name: [0, 2, 3, 5, 7]}, [0, 1, 2], x, progress=False)
    assert {fit.layer for fit in cut.fits} == {
        "a",
        "c",
        "make.0",
    }  # the first has all of its outputs, and answers as it did
    kept = torch.tensor([0, 2, 3, 5, 7])
    assert torch.equal(cut.model.make[2].weight, net.make[2].weight[kept])
    rough = cut_and_repair(net, bp, {name: kept.tolist()}, [0, 1, 2], x, repair="none", progress=False).model
    assert (cut.model(x) - net(x)).square().mean() < 0.9 * (rough(x) - net(x)).square().mean()
