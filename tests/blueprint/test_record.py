"""What is written down of a forward: tables that it makes itself keep their numbers, and nothing is written into a model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import brickwork
from brickwork.blueprint.record import record
from brickwork.errors import Unsupported
from brickwork.moments.program import Program


class _MakesTables(nn.Module):
    """Tables made in the forward, on the device of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)
        self.order = [3, 1, 0, 2, 4, 5, 7, 6]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.one(x)[:, self.order]
        x = x + torch.arange(len(x), device=x.device, dtype=x.dtype)[:, None]
        held = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        held[:] = x * torch.tensor([2.0], device=x.device)
        return self.two(held)


def test_a_table_made_on_the_inputs_device_keeps_its_numbers():
    net, x = _MakesTables().eval(), torch.randn(2, 6)
    graph = record(net, x)
    torch.testing.assert_close(Program(net, graph, [x]).get(graph.output)[0], net(x))


def test_a_forward_that_remembers_what_it_saw_leaves_the_callers_model_alone():
    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: dict[str, object] = {}
            self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen["x"] = x
            x = self.one(x)
            return self.two(x / len(x[0]))

    net = Remembers().eval()
    bp = brickwork.trace(net, torch.zeros(2, 6))
    with pytest.raises(Unsupported):
        bp.select(net, {"one": range(4)})
    assert net.seen == {}
