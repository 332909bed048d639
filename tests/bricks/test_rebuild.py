"""Channels chosen by what the rest can rebuild, widths by the damage measured."""

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import data, zoo
from brickwork.blueprint.plan import CLASSES
from brickwork.blueprint.record import record
from brickwork.bricks import polishing
from brickwork.bricks.allocation import by_damage
from brickwork.bricks.answers import Answers
from brickwork.bricks.disassembly import repaired
from brickwork.bricks.judge import Judge
from brickwork.bricks.options import DisassembleOptions
from brickwork.bricks.rebuild import Curve, rebuild_curves
from brickwork.bricks.subject import prepare
from brickwork.errors import BadData, RequestError
from brickwork.moments.layers import find_layers
from brickwork.training import train

QUIET = {"progress": False, "device": "cpu"}


class Doubled(nn.Module):
    """A residual network of which every second inner channel is a copy of the one before."""

    def __init__(self):
        super().__init__()
        self.stem, self.a, self.b = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 4, 1)
        self.head = nn.Linear(4, 3)
        with torch.no_grad():
            self.a.weight[1::2], self.a.bias[1::2] = self.a.weight[::2], self.a.bias[::2]

    def forward(self, x):
        x = self.stem(x).relu()
        return self.head((x + self.b(self.a(x).relu())).mean((2, 3)))


def test_copies_go_and_nothing_is_lost():
    torch.manual_seed(0)
    net = Doubled().double().eval()
    x = torch.randn(60, 1, 6, 6, dtype=torch.float64)
    bp = brickwork.trace(net, x[:2])
    answers = Answers(net, x, [0, 1, 2], None, 60)
    curve = rebuild_curves(net, bp, x, answers, spaces=["a"], progress=False)["a"]
    assert {k // 2 for k in curve.order[:4]} == {0, 1, 2, 3}  # one of every pair
    assert curve.damage[4] < 1e-8 < 100 * curve.damage[4] < curve.damage[5]
    brick = brickwork.disassemble(net, None, (x, torch.arange(60) % 3), budget=0.62, of="macs", ridge=0.0, **QUIET)
    assert len(brick.kept["a"]) == 4 and len(brick.kept["stem"]) == 4
    torch.testing.assert_close(brick.model(x), net(x), rtol=1e-6, atol=1e-8)


class Residual(nn.Module):
    """Two residual blocks, one of them depthwise."""

    def __init__(self, classes):
        super().__init__()

        def block(*middle):
            return nn.Sequential(nn.Conv2d(16, 24, 1), nn.BatchNorm2d(24), nn.ReLU(), *middle, nn.Conv2d(24, 16, 1))

        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.plain = block(nn.Conv2d(24, 24, 3, padding=1), nn.ReLU())
        self.deep = block(nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.ReLU())
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.plain(x)
        return self.head((x + self.deep(x)).amax((2, 3)))


def _tiny_vit(classes):
    return zoo.build("vit_small", num_classes=classes, in_channels=1, image_size=16, dim=32, depth=2, heads=2, seed=0)


ARCHS = {
    "lenet": lambda n: zoo.build("lenet", num_classes=n, in_channels=1, seed=0),
    "residual": Residual,
    "vit": _tiny_vit,
}


@pytest.fixture(scope="module", params=list(ARCHS))
def trained(request):
    images = data.load("digits:A", size=16, channels=1)
    torch.manual_seed(0)
    net = ARCHS[request.param](len(images.classes))
    how = {"lr": 5e-3, "optimizer": "adamw", "batch_size": 64}
    train(net, images.train_images, images.train_labels, epochs=12, classes=images.classes, **how, **QUIET)
    return net.eval(), images


def test_a_larger_budget_is_not_worse(trained):
    """On the images that judge, where several budgets are asked for."""
    net, images = trained
    shares = (0.2, 0.4, 0.7, 1.0)
    bricks = list(brickwork.compress(net, images, budget=shares, of="macs", **QUIET).bricks.values())
    after = [brick.accuracy_after for brick in bricks]
    assert all(b >= a for a, b in pairwise(after)), after
    assert all(brick.macs <= share for brick, share in zip(bricks, shares, strict=True))
    assert bricks[-1].macs == 1.0 and bricks[-1].accuracy_after == bricks[-1].accuracy_before
    assert after[1] >= bricks[1].accuracy_before - 0.05


def test_the_better_part_stands_for_the_larger_budget(trained, monkeypatch):
    from brickwork.bricks.judge import Judge

    judged = iter([0.9, 0.8, 0.7, 0.85])  # parts within 0.4, 0.8, 0.2 and 0.6, as they are asked for
    net, images = trained
    monkeypatch.setattr(Judge, "of", lambda self, part: next(judged))
    result = brickwork.compress(net, images, budget=(0.4, 0.8, 0.2, 0.6), of="macs", **QUIET)
    assert {b: x.accuracy_after for b, x in result.bricks.items()} == {0.4: 0.9, 0.8: 0.9, 0.2: 0.7, 0.6: 0.9}
    four, eight = result.bricks[0.4], result.bricks[0.8]
    assert eight.kept == four.kept and eight.options.budget == 0.8 and four.options.budget == 0.4
    assert "part within 0.4" in eight.note and four.note == "" and "0.8" in str(eight.note)
    origins = [brickwork.origin.origin_of(brick.model).provenance["brick"] for brick in (four, eight)]
    assert [facts["options"]["budget"] for facts in origins] == [0.4, 0.8]


def test_it_beats_the_score_where_both_are_repaired(trained):
    net, images = trained
    x = brickwork.data.pixels.as_input(images.test_images, brickwork.origin.origin_of(net).preprocessing)
    far = {}
    for attribution in ("rebuild", "taylor"):
        brick = brickwork.compress(net, images, budget=0.55, of="macs", attribution=attribution, **QUIET)
        with torch.no_grad():
            far[attribution] = float((brick.model(x) - net(x)).square().mean())
    assert far["rebuild"] < far["taylor"]


def test_a_smaller_budget_is_part_of_a_larger_one():
    torch.manual_seed(0)
    net = Doubled()
    bp = brickwork.trace(net, torch.zeros(2, 1, 6, 6))
    rng = np.random.default_rng(0)
    curves = {
        name: Curve(tuple(rng.permutation(size)[:-1].tolist()), np.cumsum(np.r_[0.0, rng.random(size - 1)]))
        for name, size in bp.spaces.items()
        if name != CLASSES
    }
    before = None
    for budget in (0.25, 0.4, 0.6, 0.9, 1.0):
        kept = by_damage(bp, curves, budget, [0, 1, 2])
        assert bp.count(kept).parameters <= budget * bp.count().parameters
        assert before is None or all(set(before[name]) <= set(kept[name]) for name in kept)
        before = kept
    assert all(len(ids) == bp.spaces[name] for name, ids in before.items())
    with pytest.raises(RequestError, match="less than the narrowest network needs, which is 0"):
        by_damage(bp, curves, 0.01, [0, 1, 2])


def test_a_layer_that_cannot_be_solved_for_is_cut_by_its_score():
    """A shared layer runs twice: what it reads has no least-squares answer, and is cut all the same."""

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.same, self.head = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 3)

        def forward(self, x):
            x = self.stem(x).relu()
            return self.head(self.same(self.same(x).relu()).relu())

    torch.manual_seed(0)
    net = Twice()
    x = torch.randn(120, 8)
    brick = brickwork.compress(net, (x, net(x).argmax(1)), budget=0.5, **QUIET)
    assert brick.parameters <= 0.5 and len(brick.kept["stem"]) < 16


def test_threshold_and_rebuild_exclude_each_other(nets, digits):
    with pytest.raises(RequestError, match="threshold compares scores"):
        brickwork.disassemble(nets["A"], None, digits["A"], attribution="rebuild", threshold=1.0, **QUIET)
    assert brickwork.disassemble(nets["A"], None, digits["A"], threshold=1.0, repair="none", **QUIET).parameters < 1


@pytest.mark.parametrize("trained", ["residual"], indirect=True)
def test_polish_keeps_the_better_one_and_leaves_the_network_alone(trained):
    net, images = trained
    before = copy.deepcopy(net.state_dict())
    rough = brickwork.compress(net, images, budget=0.15, of="macs", **QUIET)
    brick = brickwork.compress(net, images, budget=0.15, of="macs", polish=0.03, **QUIET)
    facts = brick.used["polish"]
    assert facts["before"] == rough.accuracy_after and brick.accuracy_after == max(facts["before"], facts["after"])
    assert facts["kept"] == ("after" if facts["after"] >= facts["before"] else "before") and facts["epochs"] >= 1
    assert f"of {facts['images']} images: {facts['before']:.2%} before" in str(brick)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    with pytest.raises(RequestError, match="polish is 0"):
        brickwork.compress(net, images, budget=0.5, polish=0, **QUIET)


@pytest.mark.parametrize(("varied", "augment"), [(10**6, "none"), (1, "crop+flip")])
def test_images_of_a_short_polish_stay_as_they_are(trained, monkeypatch, varied, augment):
    """However many passes fit into the time: fewer than `VARIED` of them, or more."""
    asked = []
    train = polishing.train
    monkeypatch.setattr(polishing, "train", lambda *given, **how: asked.append(how["augment"]) or train(*given, **how))
    monkeypatch.setattr(polishing, "default_augment", lambda source: "crop+flip")
    monkeypatch.setattr(polishing, "VARIED", varied)
    brickwork.compress(*trained, budget=0.5, of="macs", polish=0.005, **QUIET)
    assert len(asked) >= 3 and set(asked) == {augment}


def test_a_polish_compares_responses_with_the_whole(trained, monkeypatch):
    """The sums of residual streams, or every layer where there are none.

    Nothing is wrong with a network that lost nothing; a cut one comes nearer to the whole on images it has not seen."""
    net, images = trained
    subject = prepare(copy.deepcopy(net).double(), [2, 0, 1], images, device="cpu", output=None, seed=0)
    bp, samples = subject.bp, subject.samples
    x = samples.inputs(samples.use[:20])
    kept = {name: list(range(size)) for name, size in bp.spaces.items() if name != CLASSES} | {CLASSES: [2, 0, 1]}
    student = polishing._Student(bp.select(subject.whole, kept).eval(), subject, kept)
    logits = student(x)
    assert torch.allclose(logits, subject.whole(x)[:, [2, 0, 1]], atol=1e-12)
    layers = find_layers(record(subject.whole, x), subject.whole)
    sums = {layer.response.index for layer in layers if layer.other is not None}
    assert {point.theirs for point in student._at(x).points} == (sums or {layer.response.index for layer in layers})
    assert student.penalty(x, logits, None).item() < 1e-20

    options = DisassembleOptions(budget=0.1, images=100, ridge=1e-4)
    index = samples.some(100, 0)
    kept = {name: list(range(max(2, size // 3))) for name, size in bp.spaces.items() if name != CLASSES}
    cut = repaired(subject, kept=kept, index=index, options=options, progress=False)
    judge = Judge(subject.whole, subject.judged, subject.wanted, None)
    monkeypatch.setattr(polishing, "MOST", 16)  # so many epochs, however fast the machine
    learned, facts = polishing.polish(cut.model, cut.kept, subject, judge, 60, source="digits", seed=0, progress=False)
    answers = Answers(subject.whole, subject.judged.lazy(subject.judged.held), subject.wanted, None, 100)
    assert answers.distance(learned) < 0.9 * answers.distance(cut.model)
    assert facts["epochs"] == 16 and facts["images"] == len(samples.use)


def test_a_part_that_lost_nothing_can_be_polished(trained):
    """Its distance from the whole is 0, and a rate of 0 would be refused."""
    brick = brickwork.compress(*trained, keep=1.0, repair="none", polish=0.002, **QUIET)
    assert brick.used["polish"]["epochs"] >= 1


def test_what_cannot_be_polished_is_refused_before_anything_is_cut(monkeypatch):
    monkeypatch.setattr("brickwork.bricks.disassembly.choose", pytest.fail)
    net, x = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), torch.randn(90, 4)
    with pytest.raises(BadData, match=r"polish trains on images, and these inputs are \(90, 4\)"):
        brickwork.compress(net, (x, torch.arange(90) % 3), budget=0.5, polish=0.1, **QUIET)
    with pytest.raises(BadData, match="no images to judge a polish by"):
        brickwork.compress(net, (x[:3], torch.arange(3)), budget=0.5, polish=0.1, **QUIET)


class Adapted(nn.Module):
    """A layer with a product of low rank added to its weight: no activation runs over the rank."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.base, self.head = nn.Linear(6, 12), nn.Linear(12, 10), nn.Linear(10, 4)
        self.up, self.down = nn.Parameter(torch.randn(10, 3)), nn.Parameter(torch.randn(3, 12))
        self.strength = nn.Parameter(torch.ones(3))
        with torch.no_grad():
            self.down[1] *= 1e-4

    def forward(self, x):
        weight = self.base.weight + self.up * self.strength @ self.down
        return self.head(torch.relu(nn.functional.linear(torch.relu(self.a(x)), weight, self.base.bias)))


def test_what_no_activation_runs_over_is_not_taken_for_free():
    net, x = Adapted().eval(), torch.randn(400, 6)
    part = brickwork.compress(net, x, budget=0.85, progress=False).model
    kept = [k for k in range(3) if any(torch.equal(net.down[k, :4], row[:4]) for row in part.down)]
    assert len(part.down) == len(kept) and set(kept) >= {0, 2}  # nothing of the second shows
    whole = net(x)
    assert (part(x) - whole).square().mean() < 0.05 * (whole - whole.mean(0)).square().mean()
