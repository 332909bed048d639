"""A recorded forward run with gradients says what autograd says."""

from __future__ import annotations

import torch
from torch import nn

from brickwork.blueprint.record import record
from brickwork.moments.program import run_with_grad


class Copies(nn.Module):
    """Writes what it computed into memory of its own, as some attention layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.one(x).relu()
        held = torch.empty_like(x)
        held.copy_(x)
        return self.two(held)


def test_gradients_pass_through_a_copy():
    net, x = Copies().double(), torch.randn(4, 6, dtype=torch.float64)
    graph, told = record(net, x), {}
    layer = graph.module_outputs["one"]
    output = run_with_grad(net, graph, x, {layer.index}, lambda index, value, grad: told.update({index: (value, grad)}))
    output.square().sum().backward()
    middle = net.one(x).detach().requires_grad_()
    wanted = net.two(middle.relu())
    wanted.square().sum().backward()
    torch.testing.assert_close(output, wanted)
    torch.testing.assert_close(told[layer.index], (middle.detach(), middle.grad))
