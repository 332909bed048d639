"""A part keeps what the whole knew of its classes, and the whole stays as it was."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import Brick, data, zoo
from brickwork.errors import BadData, BadFile, BadModel, RequestError, UnknownName, Unsupported
from brickwork.evaluation import evaluate_data
from brickwork.origin import origin_of
from brickwork.store import state_hash

QUICK = {"images": 200, "scored": 60, "progress": False}


@pytest.fixture(scope="module")
def small():
    """An untrained network that returns what it is told to, and data for it."""
    torch.manual_seed(0)
    x = torch.randn(120, 4)
    return nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 3)), x, torch.arange(120) % 3


def test_matching_keeps_what_cutting_alone_loses(nets, digits):
    images = digits["A"]
    cut, matched = (
        brickwork.disassemble(nets["A"], None, images, keep=0.15, repair=repair, progress=False)
        for repair in ("none", "match")
    )
    assert cut.kept == matched.kept and cut.accuracy_before == matched.accuracy_before
    assert cut.accuracy_after < matched.accuracy_after - 0.02
    assert matched.accuracy_after >= matched.accuracy_before - 0.05
    assert evaluate_data(matched.model, images).accuracy > evaluate_data(cut.model, images).accuracy
    assert [fit.layer for fit in matched.fits] == ["conv1", "conv2", "fc1", "fc2", "fc3"] and not cut.fits


def test_the_accuracy_bound(nets, digits):
    brick = brickwork.disassemble(nets["A"], "0,2", digits["A"], progress=False)
    assert brick.accuracy_after >= brick.accuracy_before - 0.01
    assert brick.parameters <= 0.35 and brick.note == "" and brick.judged_by == "accuracy"
    shapes = sum(p.numel() for p in brick.model.parameters())
    assert brick.parameters == shapes / sum(p.numel() for p in nets["A"].parameters())


def test_budgets_and_ratios(nets, digits):
    for of in ("parameters", "macs"):
        brick = brickwork.disassemble(nets["A"], [1, 3], digits["A"], budget=0.7, of=of, **QUICK)
        assert getattr(brick, of) <= 0.7
    half = brickwork.disassemble(nets["A"], [1, 3], digits["A"], keep=0.5, round_to=4, **QUICK)
    assert {k: len(v) for k, v in half.kept.items()} == {"conv1": 6, "conv2": 8, "fc1": 60, "fc2": 44, "classes": 2}
    paper = brickwork.disassemble(nets["A"], [1, 3], digits["A"], threshold=1.0, **QUICK)
    alone = [brickwork.disassemble(nets["A"], [c], digits["A"], threshold=1.0, **QUICK) for c in (1, 3)]
    assert set(alone[0].kept["fc1"]) != set(alone[1].kept["fc1"])
    assert len(paper.kept["fc1"]) < 120


def test_one_class_is_judged_against_the_rest(nets, digits):
    brick = brickwork.disassemble(nets["A"], "3", digits["A"], progress=False)
    assert brick.judged_by == "auroc" and brick.accuracy_after >= brick.accuracy_before - 0.01
    assert brick.model(torch.zeros(2, 1, 16, 16)).shape == (2, 1) and "AUROC" in str(brick)
    only = digits["A"].select([3])
    with pytest.raises(BadData, match="one class needs images of others"):
        brickwork.disassemble(nets["A"], "3", only, progress=False)
    assert brickwork.disassemble(nets["A"], "3", only, keep=0.5, **QUICK).accuracy_after is None


def test_the_order_of_classes_is_the_callers(nets, digits):
    one, two = (brickwork.disassemble(nets["A"], order, digits["A"], keep=0.5, **QUICK) for order in ([0, 3], [3, 0]))
    assert two.classes == ("3", "0") == origin_of(two.model).classes
    x = torch.randn(5, 1, 16, 16)
    assert (one.model(x) - two.model(x).flip(1)).abs().max() < 1e-3
    assert evaluate_data(two.model, digits["A"].select([0, 3])).accuracy > 0.9


def test_same_seed_same_bytes(nets, digits):
    one, two, other = (
        brickwork.disassemble(nets["A"], [0, 2], digits["A"], keep=0.4, seed=seed, **QUICK) for seed in (0, 0, 1)
    )
    assert one.to_dict() == two.to_dict() and state_hash(one.model) == state_hash(two.model)
    assert state_hash(one.model) != state_hash(other.model)


def test_the_model_is_left_as_it_was(nets, digits):
    model = nets["A"]
    before, origin = state_hash(model), origin_of(model)
    model.zero_grad(set_to_none=True)
    model.train()
    model.conv1.eval()
    try:
        brick = brickwork.disassemble(model, [0, 2], digits["A"], keep=0.4, **QUICK)
        assert model.training and not model.conv1.training
    finally:
        model.eval()
    assert state_hash(model) == before == brick.source and origin_of(model) == origin
    assert all(p.grad is None for p in model.parameters()) and not brick.model.training


def test_arrays_of_both_kinds_are_the_same(nets, digits):
    images = digits["A"]
    ready = brickwork.data.pixels.as_input(images.train_images, origin_of(nets["A"]).preprocessing)
    bricks = [
        brickwork.disassemble(nets["A"], [0, 2], given, keep=0.4, **QUICK)
        for given in ((images.train_images, images.train_labels), (ready, torch.tensor(images.train_labels)))
    ]
    assert len({state_hash(b.model) for b in bricks}) == 1


def test_the_test_split_judges_where_there_is_one(nets, digits):
    images = digits["A"]
    chosen = images.select([0, 2])
    brick = brickwork.disassemble(nets["A"], [0, 2], images, keep=0.4, **QUICK)
    assert brick.used["judged"] == {"images": len(chosen.test_labels), "of": "test"}
    assert brick.accuracy_after == pytest.approx(evaluate_data(brick.model, chosen).accuracy)
    assert f"measured on        {len(chosen.test_labels)} images of the test split" in str(brick)
    pair = brickwork.disassemble(nets["A"], [0, 2], (images.train_images, images.train_labels), keep=0.4, **QUICK)
    assert pair.used["judged"]["of"] == "held out" and "images held out of those given" in str(pair)


def test_statistics_are_of_the_source_images(small):
    net, x, y = small
    brick = brickwork.disassemble(net, [0, 2], (x, y), keep=1.0, images=1000, repair="none", progress=False)
    assert brick.used["images"] == 96  # four fifths
    whole = net(x)[:, [0, 2]].detach().double()
    assert torch.tensor(brick.mean) == pytest.approx(whole.mean(0).numpy(), abs=0.1)
    assert torch.tensor(brick.std) == pytest.approx(whole.std(0).numpy(), abs=0.1)
    assert (brick.model(x) - net(x)[:, [0, 2]]).abs().max() < 1e-6


def test_save_and_load(nets, digits, tmp_path):
    brick = brickwork.disassemble(nets["A"], [2, 0], digits["A"], keep=0.5, **QUICK)
    folder = brick.save(tmp_path / "brick", data="digits:A")
    again = Brick.load(folder)
    assert again.to_dict() == brick.to_dict() == json.loads(json.dumps(brick.to_dict()))
    x = torch.randn(3, 1, 16, 16)
    assert torch.equal(again.model(x), brick.model(x))
    plain = brickwork.load(folder)
    assert torch.equal(plain(x), brick.model(x)) and origin_of(plain).classes == ("2", "0")
    assert origin_of(plain).provenance["data"] == "digits:A"
    whole = brickwork.save(nets["A"], tmp_path / "whole", provenance={"test_accuracy": 0.99})
    with pytest.raises(BadFile, match="a model, not a brick"):
        Brick.load(whole)
    brick = brickwork.disassemble(brickwork.load(whole), [2, 0], digits["A"], keep=0.5, **QUICK)
    assert origin_of(brick.model).provenance["whole"]["test_accuracy"] == 0.99
    assert "test_accuracy" not in origin_of(brick.model).provenance


def test_a_brick_of_a_brick(nets, digits, tmp_path):
    first = brickwork.disassemble(nets["A"], "0-2", digits["A"], keep=0.6, **QUICK)
    second = brickwork.disassemble(first.model, ["2", "0"], digits["A"].select([0, 1, 2]), keep=0.9, **QUICK)
    assert second.classes == ("2", "0") and second.source == state_hash(first.model)
    x = torch.randn(3, 1, 16, 16)
    assert torch.equal(Brick.load(second.save(tmp_path / "second")).model(x), second.model(x))


def test_dead_channels_are_finite(digits, tmp_path):
    model = zoo.build("lenet", num_classes=5, in_channels=1, seed=0)
    with torch.no_grad():
        model.fc1.weight.zero_()
        model.fc1.bias.fill_(-1)  # nothing passes: every response behind it is constant
    images = digits["A"]
    brick = brickwork.disassemble(model, [0, 1], (images.train_images, images.train_labels), keep=0.5, **QUICK)
    json.dumps(brick.to_dict(), allow_nan=False)
    assert Brick.load(brick.save(tmp_path / "dead")).to_dict() == brick.to_dict()


def test_no_budget_is_wide_enough(digits):
    torch.manual_seed(0)
    x = torch.randn(60, 4)
    net = nn.Sequential(nn.Linear(4, 1), nn.ReLU(), nn.Linear(1, 3))
    brick = brickwork.disassemble(net, [0, 1, 2], (x, torch.arange(60) % 3), progress=False)
    assert "narrower than it can be" in brick.note and "inf" not in brick.note and brick.parameters == 1


def test_it_prints(nets, digits):
    brick = brickwork.disassemble(nets["A"], [2, 0], digits["A"], keep=0.5, **QUICK)
    assert "classes            2, 0\n" in str(brick) and "held-out accuracy" in brick._repr_html_()
    assert "tensor" not in repr(brick) and len(repr(brick)) < 500


def test_batch_norm_repair(digits):
    model = zoo.build("resnet8", num_classes=5, in_channels=1, width=8, seed=0)
    images = digits["A"].take(20)
    cut, bn = (
        brickwork.disassemble(
            model, [0, 1], (images.train_images, images.train_labels), keep=0.5, repair=repair, **QUICK
        )
        for repair in ("none", "bn")
    )
    assert cut.kept == bn.kept and state_hash(cut.model) != state_hash(bn.model)


# -- bad input ------------------------------------------------------------------------------------------------


def test_a_tolerance_no_cut_meets(small):
    net, x, _ = small
    y = net(x).argmax(1)
    classes = sorted(y.unique().tolist())
    brick = brickwork.disassemble(net, classes, (x, y), tolerance=0.0, repair="none", progress=False)
    assert "no cut" in brick.note and "the whole network" in brick.note and brick.note in str(brick)
    assert brick.accuracy_before == brick.accuracy_after == 1.0
    assert torch.equal(brick.model(x), net(x)[:, classes])


def test_classes_the_model_does_not_have(nets, digits, small):
    for asked, message in (
        (["zero"], "unknown class of the model 'zero'"),
        ("5", "unknown class '5'"),
        ("zero", "unknown class 'zero'"),
        ([7], "no class 7; it has 5"),
        ([True], "no class True"),
        ([], "no classes"),
        ([0, "0"], "twice"),
    ):
        with pytest.raises(RequestError, match=message):
            brickwork.disassemble(nets["A"], asked, digits["A"])
    named = zoo.build("lenet", num_classes=2, in_channels=1, seed=0)
    brickwork.origin.attach(named, brickwork.origin.Origin(arch="lenet", classes=("cat", "dog")))
    with pytest.raises(UnknownName, match="did you mean 'dog'"):
        brickwork.disassemble(named, ["dogs"], digits["A"])
    with pytest.raises(BadData, match="does not know '0'"):
        brickwork.disassemble(named, ["dog"], digits["A"])
    with pytest.raises(BadData, match="without names"):
        brickwork.disassemble(zoo.build("lenet", num_classes=3, in_channels=1), [0], digits["A"])


def test_data_that_cannot_be_used(nets, digits, small):
    images = digits["A"]
    with pytest.raises(BadData, match="no images of '2'"):
        brickwork.disassemble(nets["A"], ["0", "2"], images.select([0, 1]))
    net, x, y = small
    for given, message in (
        ((x, y[:5]), "labels of shape"),
        ((x, y.float()), "float"),
        ((x, y + 1), "labels run from 1 to 3"),
        ((x[:0], y[:0]), "no images"),
        (3, "a pair"),
        (x[:0], "no images"),
        ((x, y, y), "a pair"),
    ):
        with pytest.raises(BadData, match=message):
            brickwork.disassemble(net, [0], given)
    with pytest.raises(BadData, match="nothing to judge"):
        brickwork.disassemble(net, [0, 1], (x[:3], y[:3]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 0.5, "budget": 0.5}, "keep and budget are given"),
        ({"keep": 0.5, "threshold": 1.0}, "keep and threshold are given"),
        ({"keep": 0}, "keep is 0; it must be above 0"),
        ({"budget": 1.5}, "budget is 1.5"),
        ({"threshold": float("nan")}, "threshold is nan"),
        ({"tolerance": -1, "images": 0}, "tolerance is -1; it must be 0 to 1; images is 0"),
        ({"of": "flops"}, "it must be one of parameters, macs, latency"),
        ({"repair": "magic"}, "it must be one of match, bn, none"),
        ({"round_to": 0}, "round_to is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"attribution": "tailor"}, "did you mean 'taylor'"),
        ({"budget": 1e-6}, "narrowest"),
    ],
)
def test_options_that_cannot_be_right(small, options, message):
    net, x, y = small
    with pytest.raises(RequestError, match=message):
        brickwork.disassemble(net, [0, 1], (x, y), **options)


def test_frat_without_a_sure_image(small):
    net, x, y = small
    with pytest.raises(BadData, match="frat scores only images the model is sure of"):
        brickwork.disassemble(net, [0, 1], (x, y), attribution="frat")


class Many(nn.Module):
    """Returns features beside its logits."""

    def __init__(self, as_dict):
        super().__init__()
        self.a, self.b, self.as_dict = nn.Linear(4, 24), nn.Linear(24, 3), as_dict

    def forward(self, x):
        features = self.a(x).relu()
        return {"features": features, "scores": self.b(features)} if self.as_dict else (features, self.b(features))


@pytest.mark.parametrize(("as_dict", "output"), [(True, "scores"), (False, 1)])
@pytest.mark.parametrize("repair", ["match", "none"])
def test_a_model_that_returns_several_things(small, as_dict, output, repair):
    _, x, y = small
    torch.manual_seed(0)
    net = Many(as_dict)
    with pytest.raises(BadModel, match="name the one that matters with output"):
        brickwork.disassemble(net, [0, 1], (x, y), keep=0.5)
    brick = brickwork.disassemble(net, [0, 1], (x, y), keep=0.5, output=output, repair=repair, progress=False)
    made = brick.model(x)
    assert made[output].shape == (120, 2) and brick.output == output
    assert [fit.layer for fit in brick.fits] == (["a", "b"] if repair == "match" else [])
    both = brickwork.assemble([brick, brickwork.disassemble(net, [2], (x, y), keep=0.5, output=output)])
    assert both(x)[output].shape == (120, 3)


def test_an_operation_that_is_not_supported(small):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.b(torch.fft.fft(self.a(x)).real)

    _, x, y = small
    with pytest.raises(Unsupported, match="fft"):
        brickwork.disassemble(Odd(), [0, 1], (x, y), keep=0.5)


def test_another_precision(small):
    _, x, y = small
    double = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 3)).double()
    brick = brickwork.disassemble(double, [0, 1], (x, y), keep=0.5, progress=False)
    assert next(brick.model.parameters()).dtype == torch.float64


def test_data_specs_reach_it(nets):
    images = data.load("digits:2,0@30", size=16, channels=1)  # the data's own order of classes
    brick = brickwork.disassemble(nets["A"], ["0", "2"], images, keep=0.5, **QUICK)
    assert brick.accuracy_before > 0.9 and np.isfinite(brick.mean).all()


def test_depth(nets, digits):
    sizes = brickwork.trace(nets["A"], torch.zeros(1, 1, 16, 16)).spaces
    layers = [name for name in sizes if name != "classes"]
    # the first layer has no more than the least number of channels, so it is whole in any case
    for depth, whole in ((None, 1), (1, 1), (2, 1), (layers[2], 2), ("4", 3)):
        brick = brickwork.disassemble(
            nets["A"], "0-1", digits["A"], keep=0.5, depth=depth, repair="none", images=50, scored=20, progress=False
        )
        assert [n for n in layers if len(brick.kept.get(n, range(sizes[n]))) == sizes[n]] == layers[:whole]
        assert brick.options.depth == depth
    for depth, message in ((0, "depth is 0; the network has layers 1 to"), ("conv9", "conv9"), (99, "1 to")):
        with pytest.raises(RequestError, match=message):
            brickwork.disassemble(nets["A"], "0-1", digits["A"], keep=0.5, depth=depth, progress=False)


def test_what_was_joined_as_branches_is_sent_to_its_parts(nets, digits):
    other = zoo.build("resnet8", num_classes=1, in_channels=1, width=4, seed=0).eval()
    joined = brickwork.join([nets["A"], other], torch.zeros(1, 1, 16, 16))
    with pytest.raises(BadModel, match=r"side by side .* cut the bricks or models that it was joined from"):
        brickwork.disassemble(joined, [0], (digits["A"].train_images, digits["A"].train_labels))


def test_a_budget_below_the_least_says_what_the_least_is(nets, digits):
    with pytest.raises(RequestError, match=r"less than the narrowest network needs, which is 0\.0\d+; give more"):
        brickwork.disassemble(nets["A"], ["0"], digits["A"], budget=1e-5)


class SecondOrder(nn.Module):
    """Products of channels with channels: of the convolution none can go."""

    def __init__(self):
        super().__init__()
        self.stem, self.conv, self.fc = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 4, 3), nn.Linear(16, 3)

    def forward(self, x):
        x = self.conv(self.stem(x).relu()).flatten(2)
        return self.fc((x @ x.transpose(1, 2)).flatten(1))


def test_a_space_that_the_trace_found_fixed_is_named():
    images, labels = torch.randn(60, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    brick = brickwork.disassemble(SecondOrder(), None, (images, labels), keep=0.5, progress=False)
    assert len(brick.kept["stem"]) == 8 and "left whole" in brick.note and "conv (" in brick.note
