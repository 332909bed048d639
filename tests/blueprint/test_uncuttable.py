"""What cannot be cut is found, and the rest of a cut is made."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import brickwork
from brickwork.blueprint.uncuttable import uncuttable
from brickwork.bricks import disassembly
from brickwork.errors import RequestError, Unsupported


class Tied(nn.Module):
    """Blocks that insist on the width of their middle; what comes in and goes out is free."""

    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 1)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"up": nn.Conv2d(12, 16, 1), "down": nn.Conv2d(16, 12, 1)}) for _ in range(blocks)
        )
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        for block in self.blocks:
            middle = block["up"](x).relu()
            if middle.shape[1] != 16:
                raise ValueError("16 channels are wanted")
            x = x + block["down"](middle)
        return self.head(x.mean((2, 3)))


class Counted(nn.Module):
    """A number that follows a width, which only arithmetic can show."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 10), nn.Linear(10, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x).relu()
        return self.head(self.two(x / x.shape[1]).relu())


@pytest.mark.parametrize(
    ("net", "shape", "stuck"),
    [(Tied(), (3, 4, 4), {"blocks.0.up", "blocks.1.up"}), (Counted(), (6,), {"one"})],
    ids=["insisted", "counted"],
)
def test_the_rest_can_be_cut(net, shape, stuck):
    net = net.double().eval()
    bp = brickwork.trace(net, torch.zeros(2, *shape, dtype=torch.float64))
    keep = {name: range(size // 2) for name, size in bp.spaces.items() if not bp.space(name).fixed}
    with pytest.raises(Unsupported):
        bp.select(net, keep)
    before = {n: t.clone() for n, t in net.state_dict().items()}
    left = uncuttable(bp, net, keep, settled=("classes",), progress=False)
    assert set(left) == stuck and all(left.values())
    rest = {name: ids for name, ids in keep.items() if name not in left}
    small, x = bp.select(net, rest), torch.randn(2, *shape, dtype=torch.float64)
    torch.testing.assert_close(small(x), bp.zero(net, rest)(x)[:, : len(keep["classes"])], rtol=0, atol=1e-12)
    assert all(torch.equal(before[n], t) for n, t in net.state_dict().items())


def test_nothing_is_named_where_all_can_be_cut():
    net = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3)).eval()
    bp = brickwork.trace(net, torch.zeros(1, 6))
    assert uncuttable(bp, net, {"0": range(5)}, progress=False) == {}


@pytest.mark.parametrize("how", [{"keep": 0.5}, {"budget": 0.8}, {"tolerance": 0.5}], ids=["keep", "budget", "bound"])
def test_a_brick_says_what_was_left_whole(how):
    torch.manual_seed(0)
    net, x = Tied().eval(), torch.randn(80, 3, 4, 4)
    brick = brickwork.disassemble(
        net, [0, 1], (x, torch.arange(80) % 4), **how, repair="none", progress=False, device="cpu"
    )
    assert "left whole" in brick.note and "blocks.0.up" in brick.note and "16 channels" in brick.note
    assert brick.parameters < 1 and len(brick.kept["stem"]) < 12 and "blocks.0.up" not in brick.kept


def test_a_budget_that_tied_widths_do_not_allow_names_them():
    net, x = Tied().eval(), torch.randn(80, 3, 4, 4)
    with pytest.raises(RequestError, match=r"budget of 0\.1 .* narrowest .* left whole, .* blocks\.0\.up"):
        brickwork.disassemble(
            net, [0, 1], (x, torch.arange(80) % 4), budget=0.1, repair="none", progress=False, device="cpu"
        )


def test_a_network_of_which_nothing_can_be_cut_is_refused_as_before():
    class Stuck(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.head = nn.Linear(6, 10), nn.Linear(10, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.one(x)
            if x.shape[1] != 10:
                raise ValueError("10 features are wanted")
            return self.head(x)

    x = torch.randn(60, 6)
    with pytest.raises(Unsupported, match="cannot be kept exact"):
        brickwork.disassemble(Stuck().eval(), [0, 1], (x, torch.arange(60) % 3), keep=0.5, progress=False, device="cpu")


def test_layers_of_one_list_do_not_share_a_fate():
    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(6, 10), nn.Linear(10, 8), nn.Linear(8, 8), nn.Linear(8, 3))

        def forward(self, x: Tensor) -> Tensor:
            x = self.layers[0](x)
            if x.shape[1] != 10:
                raise ValueError("10 features are wanted")
            return self.layers[1:](x)

    net = First().eval()
    bp = brickwork.trace(net, torch.zeros(2, 6))
    keep = {name: range(2) for name in bp.spaces}
    assert set(uncuttable(bp, net, keep, settled=("classes",), progress=False)) == {"layers.0"}


def test_repeated_blocks_are_settled_in_a_few_cuts(monkeypatch):
    net = Tied(12).eval()
    bp = brickwork.trace(net, torch.zeros(1, 3, 4, 4))
    tried = []
    select = type(bp).select
    monkeypatch.setattr(type(bp), "select", lambda *a, **k: tried.append(1) or select(*a, **k))
    left = uncuttable(bp, net, {name: range(size // 2) for name, size in bp.spaces.items()}, progress=False)
    assert len(left) == 12 and len(tried) <= 8


@pytest.mark.parametrize("how", [{"keep": 0.5}, {"budget": 0.8}, {"tolerance": 0.5}], ids=["keep", "budget", "bound"])
def test_a_part_looks_for_it_once(how, monkeypatch):
    torch.manual_seed(0)
    net, x, looked = Tied(4).eval(), torch.randn(80, 3, 4, 4), []
    monkeypatch.setattr(disassembly, "uncuttable", lambda *a, **k: looked.append(1) or uncuttable(*a, **k))
    brickwork.disassemble(net, [0, 1], (x, torch.arange(80) % 4), **how, repair="none", progress=False, device="cpu")
    assert len(looked) == 1
