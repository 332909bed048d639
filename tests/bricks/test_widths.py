"""How much of a network is kept: thresholds, ratios, and budgets spent by what a channel is worth and costs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.bricks.prices import prices_of
from brickwork.bricks.widths import by_ratio, by_threshold, by_worth, rounded, within
from brickwork.errors import RequestError


@pytest.fixture
def tiny():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    return brickwork.trace(net, torch.randn(2, 3, dtype=torch.float64))


def test_threshold_is_the_union_over_classes(tiny):
    bp = tiny
    table = np.array([[5.0, 1, 1, 1, 1], [1, 1, 1, 0, 5]])
    assert by_threshold(bp, {"0": table})["0"] == [0, 4]
    one_by_one = [set(by_threshold(bp, {"0": table[[c]]})["0"]) for c in (0, 1)]
    assert set.union(*one_by_one) == {0, 4}
    assert by_threshold(bp, {"0": table}, 0.0)["0"] == [0, 1, 2, 3, 4]
    assert by_threshold(bp, {"0": table}, 1e9)["0"] == [0]  # a layer never goes empty


def test_rounding(tiny):
    bp, scores = tiny, {"0": np.array([1.0, 5, 2, 4, 3])}
    assert rounded(bp, scores, {"0": [0]}, 1) == {"0": [0]}
    assert rounded(bp, scores, {"0": [0]}, 2) == {"0": [0, 1]}
    assert rounded(bp, scores, {"0": [0, 2, 4]}, 4) == {"0": [0, 1, 2, 4]}
    assert by_ratio(bp, scores, 0.4, least=1) == {"0": [1, 3]}
    assert by_ratio(bp, scores, 0.5, least=1, step=4) == {"0": [1, 2, 3, 4]}
    with pytest.raises(RequestError, match="above 0"):
        by_ratio(bp, scores, 0)


def test_a_budget_is_kept(tiny):
    bp, scores = tiny, {"0": np.array([1.0, 5, 2, 4, 3])}

    def make(generosity):
        return by_worth(bp, scores, generosity, least=1)

    full = bp.count()
    for of in ("parameters", "macs"):
        kept = within(bp, make, 0.6, of=of)
        assert getattr(bp.count(kept), of) <= 0.6 * getattr(full, of)
        assert kept["0"] == sorted(kept["0"]) and 1 in kept["0"]
    with pytest.raises(RequestError, match="narrowest"):
        within(bp, make, 0.01)


def blueprint(arch):
    model = zoo.build(arch, num_classes=4, seed=0)
    return brickwork.trace(model.eval(), torch.zeros(1, 3, 32, 32))


@pytest.mark.parametrize("arch", ["vgg16", "resnet18"])
@pytest.mark.parametrize("of", ["parameters", "macs"])
def test_prices_are_what_a_channel_costs(arch, of):
    """Exact where nothing is grouped: the price of a channel is what the blueprint counts less without it."""
    bp = blueprint(arch)
    full = getattr(bp.count(), of)
    kept = {name: range(max(1, size // 2)) for name, size in bp.spaces.items() if name != "classes"}
    left = {name: len(ids) / bp.spaces[name] for name, ids in kept.items()}
    prices = prices_of(bp, of).of(left)
    now = getattr(bp.count(kept), of)
    for name in list(kept)[::3]:
        less = getattr(bp.count({**kept, name: range(len(kept[name]) - 1)}), of)
        assert prices[name] / bp.spaces[name] == pytest.approx((now - less) / full, rel=1e-9)


def test_a_budget_goes_where_it_buys_most():
    """Of two layers with the same scores the one whose channels cost more gets narrower; more budget, no narrower."""
    bp = blueprint("vgg16")
    scores = {n: np.linspace(1, 0.01, s) ** 2 for n, s in bp.spaces.items() if n != "classes"}
    narrow, wide = (within(bp, lambda x: by_worth(bp, scores, x), budget) for budget in (0.1, 0.4))
    share = {name: len(ids) / bp.spaces[name] for name, ids in wide.items()}
    assert share["features.0"] > share["features.30"] and share["features.3"] > share["features.34"]
    assert all(len(narrow[name]) <= len(wide[name]) for name in scores)
    assert min(len(ids) for ids in narrow.values()) > 8  # no layer is given up for the others


def test_a_stream_weighs_by_the_places_it_is_written_at():
    """Scores are summed over the places where a space is written; cut short, a stream would harm all of them."""
    bp = blueprint("resnet18")
    once = {n: np.linspace(1, 0.01, s) / s for n, s in bp.spaces.items() if n != "classes"}
    stream = "layer4.0.conv2"
    assert stream in once
    kept = [within(bp, lambda x, s=s: by_worth(bp, s, x), 0.2) for s in (once, {**once, stream: 5 * once[stream]})]
    assert len(kept[1][stream]) > len(kept[0][stream])


def test_floor_and_settled_spaces():
    bp = blueprint("vgg16")
    scores = {n: np.linspace(1, 0.01, s) for n, s in bp.spaces.items() if n != "classes"}
    kept = within(bp, lambda x: by_worth(bp, scores, x, least=40), 0.05)
    assert min(len(ids) for ids in kept.values()) >= 40
    some = by_worth(bp, scores, 0.5, left={"classes": 0.25})
    assert {name: len(ids) for name, ids in some.items()}.keys() == scores.keys()


@pytest.fixture(scope="module")
def grouped():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 24, 1),
        nn.ReLU(),
        nn.Conv2d(24, 32, 3, padding=1, groups=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 3),
    )
    return net.double().eval()


@pytest.mark.parametrize("how", [{"keep": 0.5}, {"budget": 0.2}, {"threshold": 1.0}, {"keep": 0.5, "round_to": 8}])
def test_every_group_of_a_grouped_layer_keeps_as_many(grouped, how):
    """Else it becomes a dense layer with zeros, which may be larger than the whole."""
    x = torch.randn(90, 3, 6, 6, dtype=torch.float64)
    brick = brickwork.disassemble(
        grouped, [0, 1], (x, torch.arange(90) % 3), **how, repair="none", device="cpu", progress=False
    )
    conv = brick.model[2]
    assert conv.groups == 4 and conv.out_channels < 32
    assert conv.in_channels < 24 or "budget" in how  # a budget may be met by one of the two
    assert brick.parameters < 0.6
    for name, size in (("0", 24), ("2", 32)):
        counts = np.bincount(np.array(brick.kept[name]) * 4 // size, minlength=4)
        assert counts.min() == counts.max() >= (1 if "budget" in how else 2)
    if "round_to" in how:
        assert len(brick.kept["0"]) % 8 == len(brick.kept["2"]) % 8 == 0


def test_the_best_of_each_group_are_kept(grouped):
    bp = brickwork.trace(grouped, torch.zeros(2, 3, 6, 6, dtype=torch.float64))
    scores = {"0": np.arange(24.0), "2": np.arange(32.0)[::-1].copy()}
    kept = by_ratio(bp, scores, 0.5)
    assert kept["0"] == [k for g in range(4) for k in range(6 * g + 3, 6 * g + 6)]
    assert kept["2"] == [k for g in range(4) for k in range(8 * g, 8 * g + 4)]
    assert bp.cells("classes") is None
