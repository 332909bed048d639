"""Budgets of time, with a clock that counts multiply-adds: real ones are no test."""

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork.bricks import timing
from brickwork.bricks.prices import prices_of
from brickwork.errors import RequestError


class Net(nn.Module):
    """A convolution, a depthwise one, one in groups, a linear layer over tokens, and a head."""

    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.deep, self.b = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 32, 1)
        self.groups = nn.Conv2d(32, 32, 3, groups=4)
        self.tokens, self.head = nn.Linear(32, 32), nn.Linear(32, 5)

    def forward(self, x):
        x = self.groups(self.b(self.deep(self.norm(self.a(x)).relu())).relu()).relu()
        return self.head(self.tokens(x.flatten(2).mT).relu().mean(1))


def counted(model, batch):
    """A clock to which a forward pass takes its multiply-adds."""
    return float(brickwork.trace(model, batch).count().macs * len(batch))


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(timing, "_seconds", counted)
    monkeypatch.setattr(timing, "_known", {})


def test_times_between_the_measured_widths(clock):
    """Time that is a product of widths is told exactly, from the layers' times alone."""
    torch.manual_seed(0)
    net, x = Net().eval(), torch.rand(4, 3, 8, 8)
    bp = brickwork.trace(net, x[:2])
    times = timing.Clock(net, bp, x).times
    assert times.total({}) == pytest.approx(1)
    exact = prices_of(bp, "macs")
    for share in (0.25, 0.5, 0.75):
        kept = {name: list(range(round(size * share))) for name, size in bp.spaces.items() if name != "classes"}
        left = dict.fromkeys(kept, share)
        assert times.total(left) == pytest.approx(exact.total(left), rel=0.03)
        assert times.share(bp, kept) == times.total({name: len(ids) / bp.spaces[name] for name, ids in kept.items()})
    prices = times.of({})
    assert set(prices) == set(bp.spaces) and all(price > 0 for price in prices.values())


def test_a_tile_that_saves_nothing_is_seen_past():
    """Half of the channels cost as much as all: the price is what the narrowest saves, not the next."""
    flat = np.array([[1.0, 1.0, 4.0, 4.0, 4.0]] * 5)
    times = timing.Times((timing.TimedLayer(flat, {}, {"a": 1.0}, 0.0),))
    assert times.of({"a": 1.0})["a"] == pytest.approx((1 - 0.25) / 0.875)
    assert times.total({"a": 0.5}) == 1 and times.total({"a": 0.25}) == 0.25


def test_a_budget_of_time_is_met(clock):
    torch.manual_seed(0)
    net, x = Net(), torch.rand(60, 3, 8, 8)
    how = {"progress": False, "device": "cpu"}
    brick = brickwork.compress(net, (x, torch.arange(60) % 5), budget=0.5, of="latency", batch=4, **how)
    assert brick.used["latency"] == {"share": pytest.approx(brick.macs), "whole": counted(net, x[:4]), "batch": 4}
    assert 0.35 < brick.macs <= 0.5
    assert f"{brick.macs:.1%} of the whole for 4 images at once" in str(brick)


def test_a_part_that_is_too_slow_in_the_end_says_so(clock, monkeypatch):
    monkeypatch.setattr(timing.Clock, "share", lambda self, part: 0.83)
    data = torch.rand(60, 3, 8, 8), torch.arange(60) % 5
    brick = brickwork.compress(Net(), data, budget=0.8, of="latency", device="cpu", progress=False)
    assert "it takes 83% of the whole's time, more than the budget of 80%" in brick.note


def test_several_budgets_of_time_share_one_clock(clock, monkeypatch):
    made = []
    start = timing.Clock.__init__
    monkeypatch.setattr(timing.Clock, "__init__", lambda self, *given: (made.append(1), start(self, *given))[1])
    data = torch.rand(60, 3, 8, 8), torch.arange(60) % 5
    several = brickwork.compress(Net(), data, budget=[0.7, 0.5], of="latency", batch=4, device="cpu", progress=False)
    assert len(made) == 1 and "4 images at once" in several.measured_on
    assert [brick.used["latency"]["share"] <= budget for budget, brick in several.bricks.items()] == [True, True]


def test_wrong_requests():
    net, data = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), (torch.rand(20, 4), torch.arange(20) % 2)
    for asked, sentence in (
        ({"of": "latency", "attribution": "taylor"}, "of latency needs attribution rebuild, not taylor"),
        ({"batch": 4}, "batch is not used beside of parameters"),
        ({"of": "latency", "batch": 0}, "batch is 0; it must be 1 or more"),
        ({"of": "time"}, "of is 'time'; it must be one of parameters, macs, latency"),
    ):
        with pytest.raises(RequestError, match=sentence):
            brickwork.compress(net, data, budget=0.5, **asked)
