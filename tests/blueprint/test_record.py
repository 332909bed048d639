"""What is written down of a forward: tables that it makes itself keep their numbers, and nothing is written into a model."""

from __future__ import annotations

from collections.abc import Callable

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


def _written_into_after_use(x: torch.Tensor) -> torch.Tensor:
    table = torch.zeros(8)
    x = x + table
    table += 1
    x = x * table
    table.data.add_(2)
    return x * table


def _a_view_written_into_after_use(x: torch.Tensor) -> torch.Tensor:
    table = torch.zeros(2, 8)
    x = x + table[0]
    table[0, 3] = 4
    return x + table[0]


def _new_tensor(x: torch.Tensor) -> torch.Tensor:
    return x[:, x.new_tensor([7, 6, 5, 4, 3, 2, 1, 0], dtype=torch.int64)] * x.new_tensor([2], dtype=None, device=None)


def _a_number_put_at_a_list(x: torch.Tensor) -> torch.Tensor:
    table = torch.zeros(8, device=x.device)
    table[[1, 2]] = 7.0
    return x + table


def _one_hot(x: torch.Tensor) -> torch.Tensor:
    return x * nn.functional.one_hot(torch.arange(8, device=x.device) % 3, 3)[:, 0]


def _lists_within_a_list(x: torch.Tensor) -> torch.Tensor:
    return x + x[:, [[0, 1], [2, 3]]].sum((1, 2))[:, None] + x[:, [torch.tensor(4)]]


def _powers_in_place(x: torch.Tensor) -> torch.Tensor:
    x = x * 1
    x **= 2
    x //= 0.5
    return x.float_power_(2.0) if x.dtype == torch.float64 else x


def _turned_in_place(x: torch.Tensor) -> torch.Tensor:
    x = x * 1
    x.transpose_(0, 1).unsqueeze_(2).squeeze_(2)
    return x.t()


def _a_part_turned_in_place(x: torch.Tensor) -> torch.Tensor:
    """The batch has two rows: turned, two columns have the shape that they had."""
    part = x[:, 2:4]
    part.transpose_(0, 1)
    return x + torch.cat([part] * 4, 1)


def _gates_of_a_cell(x: torch.Tensor) -> torch.Tensor:
    """What `unsafe_chunk` gives is written into in place, and nobody looks at the whole again: so nn.GRU does it."""
    r, z = x.unsafe_chunk(2, 1)
    r.sigmoid_()
    z.mul_(r).tanh_()
    return torch.cat([r, z], 1)


FORWARDS = (
    _written_into_after_use,
    _a_view_written_into_after_use,
    _new_tensor,
    _a_number_put_at_a_list,
    _one_hot,
    _lists_within_a_list,
    _powers_in_place,
    _turned_in_place,
    _a_part_turned_in_place,
    _gates_of_a_cell,
)


class _Between(nn.Module):
    def __init__(self, forward: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.one, self.two, self.between = nn.Linear(6, 8), nn.Linear(8, 3), forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.between(self.one(x)))


@pytest.mark.parametrize("forward", FORWARDS, ids=[f.__name__.strip("_") for f in FORWARDS])
def test_what_is_recorded_computes_what_the_forward_does(forward: Callable[[torch.Tensor], torch.Tensor]):
    net, x = _Between(forward).eval(), torch.randn(2, 6)
    graph = record(net, x)
    torch.testing.assert_close(Program(net, graph, [x]).get(graph.output)[0], net(x))


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_a_list_of_lists_alone_in_brackets_means_what_torch_says():
    """Torch has changed its mind about it: rows and columns, or a table of rows."""
    net, x = _Between(lambda x: x[[[0, 1], [0, 1]]].sum() + x).eval(), torch.randn(2, 6)
    ops = [op for op in record(net, x).ops if op.name.startswith("aten.index")]
    assert ops[0].outputs[0].shape == torch.zeros(2, 8)[[[0, 1], [0, 1]]].shape


def test_random_numbers_made_in_a_forward_are_refused_by_name():
    net, x = _Between(lambda x: x + torch.rand(8, device=x.device)).eval(), torch.randn(2, 6)
    graph = record(net, x)
    with pytest.raises(Unsupported, match="random numbers"):
        Program(net, graph, [x]).get(graph.output)
