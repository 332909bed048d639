"""What a proof must not touch, and what it must see; each was found by somebody who looked for faults."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import brickwork
from brickwork.blueprint import room
from brickwork.errors import Unsupported


class Frozen(nn.Module):
    """A batch norm whose numbers are buffers; with a counter, as some have."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.rand(channels) + 0.5)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.weight[:, None, None]


class Crop(nn.Module):
    """Keeps as many rows as it had channels: a number that only looks like a width."""

    def __init__(self, channels: int, *, bounded: bool = False) -> None:
        super().__init__()
        self.gain, self.limit = nn.Parameter(torch.rand(channels)), channels
        self.register_buffer("top", torch.full((channels, 1, 1), float("inf")) if bounded else None)

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.gain[:, None, None]
        return (x if self.top is None else torch.minimum(x, self.top))[:, :, : self.limit]


class Remembering(nn.Module):
    def __init__(self, seen: list[Tensor]) -> None:
        super().__init__()
        self.conv, self.seen = nn.Conv2d(8, 8, 3, padding=1), seen

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(self.conv(x).relu())
        return self.seen[-1]


class Sharing(nn.Module):
    """Blocks that write into one list, which is empty between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []
        self.stem, self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), Remembering(self.seen), Remembering(self.seen)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.b(self.a(self.stem(x)))
        for other in self.seen:
            x = x + other
        self.seen.clear()
        return self.head(x.mean((2, 3)))


def net(middle: nn.Module, channels: int, stride: int = 1, groups: int = 1) -> nn.Module:
    torch.manual_seed(0)
    tail = [nn.ReLU(), nn.Conv2d(channels, channels, 1, groups=groups), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    first = nn.Conv2d(3, channels, 3, stride, 1)
    return nn.Sequential(first, middle, *tail, nn.Linear(channels, 4)).eval()


def difference(model: nn.Module, x: Tensor) -> float:
    """Of a cut to half of every space from the whole with zeros."""
    bp = brickwork.trace(model, x)
    keep = {name: range(size // 2) for name, size in bp.spaces.items() if name != "classes"}
    with torch.no_grad():
        return float((bp.select(model, keep)(x) - bp.zero(model, keep)(x)).abs().max())


@pytest.mark.parametrize("groups", [1, 8])  # the proof of grouped convolutions runs in the model's own precision
def test_buffers_of_the_given_model_stay_as_they_are(groups):
    model, x = net(Frozen(8), 8, groups=groups), torch.randn(2, 3, 8, 8)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    bp = brickwork.trace(model, x)
    small = bp.select(model, {"0": range(4)})
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert int(small.get_submodule("1").calls) == 0


def test_modules_that_share_an_empty_list_share_one_in_the_cut():
    torch.manual_seed(0)
    model, x = Sharing().eval(), torch.randn(2, 3, 8, 8)
    assert difference(model, x) < 1e-5
    whole = brickwork.trace(model, x).select(model, {})
    assert whole.seen is whole.a.seen is whole.b.seen and whole.seen is not model.seen
    with torch.no_grad():
        assert torch.equal(whole(x), model(x))


def test_an_infinite_buffer_does_not_switch_the_proof_off():
    assert difference(net(Crop(16, bounded=True), 16), torch.randn(1, 3, 32, 32)) < 1e-5


@pytest.mark.parametrize("side", [128, 160])
def test_a_number_that_shows_at_full_size_alone_is_no_width(side):
    assert difference(net(Crop(64), 64, stride=2), torch.randn(1, 3, side, side)) < 1e-5


def test_a_network_that_halves_its_batch_is_proved_on_a_whole_one():
    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.head = net(nn.Identity(), 8)[:-1], nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            one, two = x.chunk(2) if len(x) > 1 else (x[:0], x[:0])
            return self.head((self.features(one) - self.features(two)).square())

    assert difference(Pairs().eval(), torch.randn(2, 3, 130, 130)) < 1e-5


def test_a_fault_in_the_code_that_cuts_is_seen_by_the_proof(monkeypatch):
    right = room.Between.select
    monkeypatch.setattr(room.Between, "select", lambda *given: right(*given).flip(0))
    model = net(nn.Identity(), 8)
    bp = brickwork.trace(model, torch.randn(2, 3, 8, 8))
    with pytest.raises(Unsupported):
        bp.select(model, {"0": range(4)})


class Averaged(nn.Module):
    """A mean over the channels, as one may write it, behind a function that is not defined for every number."""

    def __init__(self, width: int, function: str) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, width, 3), nn.Linear(width, 4)
        self.gain, self.function = nn.Parameter(torch.rand(width, 1) + 0.5), function

    def forward(self, x: Tensor) -> Tensor:
        if self.function == "log of the image":
            x = (x + 1e-3).log()
        x = self.conv(x).relu().mean((2, 3))
        if self.function == "root":
            x = x * self.gain.sqrt()[:, 0]
        if self.function == "arcosh":  # of positive numbers, too, not for all
            x = x * (self.gain[:, 0] + 0.7).acosh()
        if self.function == "quotient":
            x = x / self.gain[:, 0]
        if self.function == "never a number":
            x = x / (x - x)
        return self.head(x) * torch.full((), x.shape[1]).float().rsqrt().to(x)


FUNCTIONS = ["root", "log of the image", "arcosh", "quotient"]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_numbers_that_are_not_finite_do_not_switch_the_proof_off(function):
    model, x = Averaged(8, function).eval(), torch.rand(2, 3, 8, 8)
    bp = brickwork.trace(model, x)
    with pytest.raises(Unsupported, match="not exact"):
        bp.select(model, {"conv": range(4)})
    same = bp.select(model, {"classes": [0, 2]})  # nothing in it depends on that width
    assert torch.equal(same(x), model(x)[:, [0, 2]])
    two = brickwork.join([model, model], x)
    assert torch.allclose(two(x), torch.cat([model(x)] * 2, 1))


def test_a_network_that_answers_no_number_is_not_cut():
    model, x = Averaged(8, "never a number").eval(), torch.rand(2, 3, 8, 8)
    bp = brickwork.trace(model, x)
    with pytest.raises(Unsupported, match="NaN or infinite"):
        bp.select(model, {"conv": range(4)})


class Windows(nn.Module):
    """As transformers' Swin: windows become as small as the smallest image seen, and a table fits those of one size alone."""

    def __init__(self):
        super().__init__()
        self.stem, self.conv, self.fc = nn.Conv2d(3, 6, 16, 16), nn.Conv2d(6, 5, 1), nn.Linear(5, 3)
        self.table, self.window = nn.Parameter(torch.randn(8)), 8

    def forward(self, x):
        x = self.stem(x)
        self.window = min(self.window, x.shape[-1])
        x = (x.unflatten(-1, (-1, self.window)) + self.table).flatten(-2)
        return self.fc(self.conv(x.relu()).mean((2, 3)))


def test_what_a_network_notes_of_an_input_that_it_does_not_take_is_forgotten():
    """A proof tries a large image with fewer pixels first; the copy that had refused them took no other image any more."""
    model, x = Windows().double().eval(), torch.randn(1, 3, 128, 128, dtype=torch.float64)
    bp = brickwork.trace(model, x)
    keep = {"stem": [0, 2, 5], "conv": [1, 3]}
    with torch.no_grad():
        assert (bp.select(model, keep)(x) - bp.zero(model, keep)(x)).abs().max() < 1e-12
    assert model.window == 8
