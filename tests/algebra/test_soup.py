"""Greedy soups: against every subset by hand, what is used, and statistics taken anew."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.algebra import greedy_soup, merge_on, repair
from brickwork.errors import BadData, RequestError
from brickwork.origin import origin_of
from brickwork.store import state_hash

QUIET = {"progress": False}


def accuracy(model, x, y):
    with torch.no_grad():
        return (model.eval()(x).argmax(1) == y).double().mean().item()


@pytest.fixture
def kitchen():
    """A network that answers right, two near it, one far from it, and images with labels."""
    torch.manual_seed(0)
    right = nn.Sequential(nn.Flatten(), nn.Linear(16, 5)).double()
    models = []
    for size in (3.0, 0.15, 0.15, 0.3):
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, 5)).double()
        model.load_state_dict({n: t + size * torch.randn_like(t) for n, t in right.state_dict().items()})
        models.append(model)
    x = torch.randn(400, 1, 4, 4, dtype=torch.float64)
    return models, x, right(x).argmax(1)


def test_the_rule_by_hand(kitchen):
    models, x, y = kitchen
    before = [state_hash(m) for m in models]
    found = greedy_soup(models, [(x, y)], **QUIET)
    alone = [accuracy(m, x, y) for m in models]
    assert found.alone == pytest.approx(alone, abs=1e-6)
    order = sorted(range(4), key=lambda k: -alone[k])
    used, best = [order[0]], alone[order[0]]
    for k in order[1:]:
        now = accuracy(brickwork.merge([models[i] for i in (*used, k)]), x, y)
        if now >= best:
            used, best = [*used, k], now
    assert found.used == tuple(used) and found.accuracy == pytest.approx(best, abs=1e-6)
    assert len(used) >= 2 and 0 not in used, "the far one spoils the soup and the near ones do not"
    assert accuracy(found.model, x, y) == pytest.approx(best, abs=1e-6) and best >= max(alone)
    assert [state_hash(m) for m in models] == before
    assert [k for k, _, kept in found.tried if kept] == used[1:] and "models (" in str(found)
    merged = merge_on(models, [(x, y)], "greedy_soup", **QUIET)
    assert state_hash(merged) == state_hash(found.model)
    assert origin_of(merged).provenance["merge"]["used"] == used


def test_equals_are_taken_in_their_order(kitchen):
    models, x, y = kitchen
    assert greedy_soup([models[1]] * 3, [(x, y)], **QUIET).used == (0, 1, 2)
    alone = greedy_soup([models[1]], [(x, y)], **QUIET)
    assert alone.used == (0,) and state_hash(alone.model) == state_hash(models[1]) and not alone.tried


def test_the_worst_of_two_sets(kitchen):
    models, x, y = kitchen
    sets = [(x[:200], y[:200]), (x[200:], (y[200:] + 1) % 5)]  # the second is answered wrong by all
    mean, worst = (greedy_soup(models, sets, by=by, **QUIET).accuracy for by in ("mean", "worst"))
    assert worst < 0.3 < mean


def test_statistics_taken_anew():
    """Two networks whose own statistics are wrong by much: only a mean with new ones is worth adding."""
    x = torch.randn(100, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    net = repair(zoo.build("resnet8", num_classes=4, in_channels=1, width=4, seed=0).eval(), x)
    with torch.no_grad():
        net.fc.bias -= net(x).mean(0)  # so that it does not say the same of all
        y = net(x).argmax(1)
        off = copy.deepcopy(net)
        for name, buffer in off.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(1.0)
    linear, anew = (greedy_soup([net, off], [(x, y)], bn=bn, **QUIET) for bn in ("linear", "recalibrate"))
    assert linear.used == (0,) and linear.tried[0][1] < 0.9
    assert anew.used == (0, 1) and anew.accuracy == 1.0
    assert all(torch.allclose(b, dict(net.named_buffers())[n]) for n, b in anew.model.named_buffers())


def test_wrong_requests(kitchen):
    models, x, y = kitchen
    for data, options, error, message in (
        ([], {}, RequestError, "greedy_soup needs data, labelled images"),
        ([(x, y)], {"by": "best"}, RequestError, "by is 'best'; it must be mean or worst"),
        ([(x, y)], {"bn": "keep"}, RequestError, "bn is 'keep'; it must be linear or recalibrate"),
        ([x], {}, BadData, "set 0 has no labels"),
        ([(x, y[:3])], {}, BadData, "400 images and labels of shape"),
        ([(x, y + 3)], {}, BadData, "run from 3 to 7"),
    ):
        with pytest.raises(error, match=message):
            greedy_soup(models, data, **options, **QUIET)
    with pytest.raises(RequestError, match="nothing to merge"):
        greedy_soup([], [(x, y)], **QUIET)
