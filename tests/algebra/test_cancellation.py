"""Cancellation: exact where the theory is exact, against training by hand, and what it says of real networks."""

from __future__ import annotations

import copy
import json
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from brickwork import data, zoo
from brickwork.algebra import cancel
from brickwork.algebra.cancellation import _Slope
from brickwork.algebra.cancellation_data import tasks_for
from brickwork.algebra.cancellation_result import ALL, NETWORKS, PREDICTIONS
from brickwork.errors import BadData, BadModel, JobFailed, RequestError
from brickwork.report.cancellation import draw_cancellation
from brickwork.store import state_hash

QUIET = {"progress": False}
CPU = torch.device("cpu")


class Two(nn.Module):
    """A sum of two linear layers: with squared error, a quadratic function of its weights, in two layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.a(x) + self.b(x.square())


def squared(out, target):
    return (out - target).square().mean()


def task(seed, classes=3, shape=(4,), count=40):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(count, *shape, dtype=torch.float64, generator=rng)
    return x, torch.randint(classes, (count,), generator=rng)


def numbers(seed):
    rng = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(40, n, dtype=torch.float64, generator=rng) for n in (4, 3))


def smooth_net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )


def test_a_quadratic_loss_is_predicted_exactly():
    """One step each: D is the second-order term. Several: it is what the linear map of the second task makes of g₁."""
    torch.manual_seed(0)
    found = cancel(Two(), numbers(0), numbers(1), lr=[0.05, 0.2], steps=[1, 4], loss=squared, **QUIET)
    for layer in (ALL, "a", "b"):
        for lr in found.lr:
            one = found.fit(lr, 1, layer)
            assert one.real > 1e-4 and max(one.error.values()) <= 1e-10
            assert min(one.cosine.values()) >= 1 - 1e-10
            several = found.fit(lr, 4, layer)
            assert several.error["path"] <= 1e-10 < 1e-2 < several.error["ggc"]
    assert found.judged[0].accuracy == (None, None)


def test_products_against_finite_differences():
    """Ĥv by differentiating twice, and by the gradient at θ ± εv, through convolution, batch norm and softmax."""
    net = smooth_net()
    one = tasks_for(net, task(0, shape=(1, 8, 8)), task(1, shape=(1, 8, 8)), CPU, 1, None, 0)[0]
    for bn in ("batch", "keep"):
        slope = _Slope(net, bn, None, CPU)
        rng = torch.Generator().manual_seed(2)
        v, w = (torch.randn(slope.start.shape, dtype=torch.float64, generator=rng) for _ in range(2))
        gradient, product = slope.product(slope.start, v, one.whole)
        step = 1e-5
        ends = [slope.gradient(slope.start + s * step * v, one.whole) for s in (1, -1)]
        assert (product - (ends[0] - ends[1]) / (2 * step)).norm() <= 1e-7 * product.norm()
        assert torch.equal(gradient, slope.gradient(slope.start, one.whole))
        other = slope.product(slope.start, w, one.whole)[1]
        assert float(w @ product) == pytest.approx(float(v @ other), rel=1e-9)  # a Hessian is symmetric


def test_pieces_add_up():
    """Without batch norm the gradient of all images is the mean of their pieces', of unequal size too."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    slope = _Slope(net, "batch", None, CPU)
    whole, pieces = (tasks_for(net, task(0), task(1), CPU, 1, size, 0)[0].whole for size in (None, 7))
    assert len(whole) == 1 and {len(y) for _, y in pieces} == {6, 7}
    for a, b in zip(*(slope.product(slope.start, slope.start, part) for part in (whole, pieces)), strict=True):
        assert (a - b).norm() <= 1e-12 * a.norm()


@pytest.mark.parametrize(("bn", "count"), [("keep", 3), ("batch", 1)])
def test_large_batches_go_in_pieces_where_that_changes_nothing(monkeypatch, bn, count):
    """Batch norms that use the batch need all of it at once; with kept statistics an image stands for itself."""
    net, sets = smooth_net().eval(), [task(k, shape=(1, 8, 8), count=30) for k in (0, 1)]
    whole = cancel(net, *sets, lr=0.1, steps=2, bn=bn, **QUIET)
    monkeypatch.setattr("brickwork.algebra.cancellation.PIECE", 10)
    slope = _Slope(net, bn, None, CPU)
    first, _ = tasks_for(net, *sets, CPU, 2, None, 0)
    assert len(slope.in_pieces(first).whole) == count
    pieces = cancel(net, *sets, lr=0.1, steps=2, bn=bn, **QUIET)
    for a, b in zip(whole.fits, pieces.fits, strict=True):
        assert b.real == pytest.approx(a.real, rel=1e-9) and b.error == pytest.approx(a.error, rel=1e-6)


def trained(net, x, y, lr, steps, order=None):
    """By torch's own optimizer, in training mode."""
    net = copy.deepcopy(net).double().train()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for t in range(steps):
        index = slice(None) if order is None else order[t]
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[index]), y[index]).backward()
        optimizer.step()
    return net


@pytest.mark.parametrize("batch_size", [None, 16])
def test_the_real_difference_is_that_of_real_training(batch_size):
    net = smooth_net()
    sets = [task(seed, shape=(1, 8, 8)) for seed in range(2)]
    before = state_hash(net)
    found = cancel(net, *sets, lr=0.1, steps=[3], batch_size=batch_size, seed=5, **QUIET)
    assert state_hash(net) == before and net.training
    orders = [t.order for t in tasks_for(net, *sets, CPU, 3, batch_size, 5)]
    first, second = (trained(net, *s, 0.1, 3, o) for s, o in zip(sets, orders, strict=True))
    both = trained(first, *sets[1], 0.1, 3, orders[1])
    named = [dict(n.named_parameters()) for n in (net.double(), first, second, both)]
    for layer in ("0", "5"):
        parts = [torch.cat([p.reshape(-1) for n, p in m.items() if n.startswith(layer)]) for m in named]
        start, one, two, sequence = (p.detach() for p in parts)
        real = sequence - (one + two - start)
        assert found.fit(0.1, 3, layer).real == pytest.approx(float(real.norm()), rel=1e-9)
        assert found.fit(0.1, 3, layer).share == pytest.approx(float(real.norm() / (two - start).norm()), rel=1e-9)
    if batch_size is None:
        with torch.no_grad():
            wanted = float(nn.functional.cross_entropy(both(sets[0][0]), sets[0][1]))
        assert found.judge(0.1, 3, "sequential").loss[0] == pytest.approx(wanted, rel=1e-9)


def test_a_smooth_network_is_predicted_better_by_smaller_steps():
    net, sets = smooth_net(), [task(seed, shape=(1, 8, 8)) for seed in range(2)]
    found = cancel(net, *sets, lr=[1e-4, 1e-3, 1e-2], steps=[1, 2], **QUIET)
    for count in (1, 2):
        errors = [found.fit(lr, count).error["path"] for lr in found.lr]
        assert errors[0] < errors[1] / 8 < errors[2] / 64 < 0.01  # tenfold shorter, tenfold better
    assert all(found.fit(lr, 1).error["secant"] <= 1e-6 for lr in found.lr)  # one step: no theorem is needed
    real, second_order = found.forgotten(1e-4, 1)
    assert real == pytest.approx(second_order, rel=0.01)
    whole, layers = found.whole, [t for t in found.terms if t.layer != ALL]
    assert whole.curvature == pytest.approx(sum(t.curvature for t in layers), rel=1e-9)
    assert whole.ggc**2 == pytest.approx(sum(t.ggc**2 for t in layers), rel=1e-9)
    assert whole.numbers == sum(p.numel() for p in net.parameters())


def test_a_switch_is_not_seen_by_the_hessian():
    """One ReLU that the first task's step turns off: its gradient is gone, and no derivative says so."""
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        net[0].weight.fill_(0.01)
        net[2].weight.fill_(1.0)
    x = torch.ones(4, 1, dtype=torch.float64)
    found = cancel(net, (x, -x), (x, 2 * x), lr=0.1, steps=1, loss=squared, **QUIET)
    fit = found.fit(0.1, 1, "0")
    assert fit.error["secant"] <= 1e-12 and fit.error["ggc"] > 0.3
    assert fit.share == pytest.approx(1.0)  # all that the second task would have changed is lost in sequence


def test_frozen_weights_and_kept_statistics():
    net, sets = smooth_net(), [task(seed, shape=(1, 8, 8)) for seed in range(2)]
    net[0].requires_grad_(False)
    net[1].running_mean += 3.0
    batch, keep = (cancel(net, *sets, lr=0.1, steps=1, bn=bn, **QUIET) for bn in ("batch", "keep"))
    assert [t.layer for t in batch.terms] == [ALL, "1", "5"]
    assert batch.fit(0.1, 1).real != keep.fit(0.1, 1).real
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(BadModel, match="every parameter of the network is frozen"):
        cancel(net, *sets, **QUIET)


def test_attention_can_be_differentiated_twice():
    net = zoo.build("vit_small", num_classes=3, image_size=8, dim=8, depth=1, heads=2, seed=0, in_channels=1)
    sets = [task(seed, shape=(1, 8, 8), count=6) for seed in range(2)]
    assert cancel(net, *sets, lr=1e-4, steps=1, **QUIET).fit(1e-4, 1).error["ggc"] < 0.05


def test_words_and_pictures(tmp_path):
    net = zoo.build("lenet", num_classes=5, seed=0)
    sets = [data.load(f"digits:{half}@2", size=8) for half in "AB"]
    found = cancel(net, *sets, lr=[0.001, 0.1], steps=[1, 3], **QUIET)
    assert found.data == ("digits:A@2", "digits:B@2") and found.images == (10, 10)
    rows = json.loads(json.dumps(found.to_dict()))["rows"]
    assert len(rows) == 2 * 2 * (1 + 5) and {f"{p}_error" for p in PREDICTIONS} <= set(rows[0])
    assert {j.network for j in found.judged} == set(NETWORKS) and "digits:A@2 first" in str(found)
    drawing = draw_cancellation(found)
    texts = {t for e in ElementTree.fromstring(drawing.svg()).iter() for t in e.itertext()}
    assert {"conv1", "fc3", "lr 0.001"} <= texts and drawing.svg() == draw_cancellation(found).svg()
    page = drawing.save(tmp_path / "c.html").read_text()
    assert "://" not in page and page.count("<tr>") == 5
    assert drawing.save(tmp_path / "c.png").stat().st_size > 10_000
    wide = cancel(nn.Linear(4, 3), task(0), task(1), lr=[0.01, 0.1], steps=1, **QUIET)
    assert ">1 step<" in draw_cancellation(wide).svg()  # over the rates, where there are more of them


def test_wrong_requests():
    net, one, two = nn.Linear(4, 3), task(0), task(1)
    for options, message in (
        ({"lr": 0}, "lr is 0.0; it must be above 0"),
        ({"lr": [0.1, 0.1]}, "several different ones"),
        ({"lr": []}, r"lr is \[\]"),
        ({"steps": 0}, "steps is 0; it must be 1 or more"),
        ({"steps": [1, 1.5]}, "steps is 1.5"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"bn": "x", "seed": -1}, "bn is 'x'; it must be batch or keep; seed is -1"),
    ):
        with pytest.raises(RequestError, match=message):
            cancel(net, one, two, **options, **QUIET)
    for sets, error, message in (
        ((one[0], two), BadData, "the first task is a Tensor"),
        (((one[0], one[1][:3]), two), BadData, "first: 40 images and 3 labels"),
        (((one[0], one[1] + 1), two), BadData, "first has labels from 1 to 3"),
        ((one, (two[0] / 0, two[1])), BadData, "second holds NaN or infinite"),
        ((one, (two[0][:, :3], two[1])), BadModel, "the network cannot be run on second"),
    ):
        with pytest.raises(error, match=message):
            cancel(net, *sets, **QUIET)
    with pytest.raises(JobFailed, match=r"training on first with lr 1e\+200 left the numbers"):
        cancel(Two(), numbers(0), numbers(1), lr=1e200, steps=4, loss=squared, **QUIET)
    with torch.no_grad():
        net.weight[0, 0] = float("nan")
    with pytest.raises(BadModel, match="NaN or infinite"):
        cancel(net, one, two, **QUIET)
