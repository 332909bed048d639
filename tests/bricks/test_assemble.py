"""Assembled == the bricks' logits side by side; what cannot be joined is refused in one sentence."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import data, zoo
from brickwork.blueprint.parts import Branches
from brickwork.bricks.calibrate import fold
from brickwork.errors import BadFile, BadModel, RequestError, Unsupported
from brickwork.evaluation import evaluate_data
from brickwork.origin import Origin, Preprocessing, attach, origin_of
from brickwork.outputs import logits_of
from brickwork.prediction import predict
from brickwork.store import state_hash

X = torch.randn(9, 1, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def bricks(nets, digits):
    return [
        brickwork.disassemble(nets["A"], ["0", "2"], digits["A"], budget=0.25, progress=False),
        brickwork.disassemble(nets["B"], ["5", "6", "7"], digits["B"], budget=0.35, progress=False),
    ]


def side_by_side(bricks):
    with torch.no_grad():
        return torch.cat([b.model(X) for b in bricks], 1)


@pytest.mark.parametrize("how", ["auto", "blocks", "branches"])
def test_side_by_side(bricks, how):
    before = [state_hash(b.model) for b in bricks]
    model = brickwork.assemble(bricks, how=how, calibrate="none")
    assert (model(X) - side_by_side(bricks)).abs().max() <= 1e-5
    assert isinstance(model, Branches) == (how == "branches") and not model.training
    assert origin_of(model).classes == ("0", "2", "5", "6", "7")
    assert origin_of(model).preprocessing == origin_of(bricks[0].model).preprocessing
    assert [state_hash(b.model) for b in bricks] == before


@pytest.mark.parametrize("calibrate", ["auto", "none", "source", "classwise"])
def test_an_ordinary_model_folder(bricks, calibrate, tmp_path):
    folders = [b.save(tmp_path / str(k)) for k, b in enumerate(bricks)]
    model = brickwork.assemble(folders, calibrate=calibrate)
    assert state_hash(model) == state_hash(brickwork.assemble(bricks, calibrate=calibrate))
    again = brickwork.load(brickwork.save(model, tmp_path / "joined"))
    assert torch.equal(again(X), model(X)) and origin_of(again).classes == origin_of(model).classes
    found = evaluate_data(again, data.load("digits:0,2,5-7", size=16, channels=1))
    assert found.accuracy > 0.6  # chance is 0.2; LeNets that never saw the other's classes confuse some


def test_other_architectures_run_as_branches(bricks, digits, tmp_path):
    other = zoo.build("resnet8", num_classes=5, in_channels=1, width=8, seed=0)
    origin = origin_of(bricks[0].model)
    attach(other, replace(origin_of(other), classes=digits["B"].classes, preprocessing=origin.preprocessing))
    part = brickwork.disassemble(other, "8,9", digits["B"], keep=0.5, images=200, scored=50, progress=False)
    pair = [bricks[0], part]
    model = brickwork.assemble(pair, calibrate="none")
    assert isinstance(model, Branches) and (model(X) - side_by_side(pair)).abs().max() <= 1e-5
    again = brickwork.load(brickwork.save(model, tmp_path / "joined"))
    assert torch.equal(again(X), model(X)) and origin_of(again).classes == ("0", "2", "8", "9")


def test_bricks_of_one_network(nets, digits):
    pair = [brickwork.disassemble(nets["A"], [c], digits["A"], keep=0.5, progress=False) for c in ("1", "4")]
    assert pair[0].source == pair[1].source
    model = brickwork.assemble(pair)
    assert (model(X) - side_by_side(pair)).abs().max() <= 1e-5
    chosen = data.load("digits:1,4", size=16, channels=1)
    for calibrate in ("none", "source", "classwise"):
        assert evaluate_data(brickwork.assemble(pair, calibrate=calibrate), chosen).accuracy > 0.9


def test_one_brick(bricks):
    assert torch.equal(brickwork.assemble(bricks[0])(X), bricks[0].model(X))


def test_calibration_is_the_z_score(bricks):
    model = brickwork.assemble(bricks, calibrate="classwise")
    mean = torch.tensor([m for b in bricks for m in b.mean])
    std = torch.tensor([s for b in bricks for s in b.std])
    expected = (side_by_side(bricks) - mean) / std * std.mean()
    assert (model(X) - expected).abs().max() <= 1e-4
    plain = brickwork.assemble(bricks, calibrate="none")
    assert {n: p.shape for n, p in model.named_parameters()} == {n: p.shape for n, p in plain.named_parameters()}


def test_calibration_mends_unequal_parts(bricks, digits):
    """A part whose logits are ten times as loud takes everything, until it is calibrated by its own statistics."""
    loud = fold(bricks[1].model, torch.full((3,), 10.0), torch.zeros(3), X, None)
    statistics = {
        "mean": tuple(10 * m for m in bricks[1].mean),
        "std": tuple(10 * s for s in bricks[1].std),
        "spread": 10 * bricks[1].spread,
    }
    images = data.load("digits:0,2,5-7", size=16, channels=1)
    for calibrate in ("auto", "source", "classwise"):
        pair = brickwork.assemble([bricks[0], replace(bricks[1], model=loud, **statistics)], calibrate=calibrate)
        same = brickwork.assemble(bricks, calibrate=calibrate)
        found, wanted = (evaluate_data(m, images).accuracy for m in (pair, same))
        assert found == pytest.approx(wanted, abs=0.02)
    plain = brickwork.assemble([bricks[0], replace(bricks[1], model=loud)], calibrate="none")
    assert evaluate_data(plain, images).accuracy < wanted - 0.05


def test_parts_get_the_scale_of_the_first(bricks):
    model = brickwork.assemble(bricks)
    assert origin_of(model).provenance["assemble"]["calibrate"] == "source"
    with torch.no_grad():
        second = bricks[1].model(X) * (bricks[0].spread / bricks[1].spread)
        assert (model(X) - torch.cat([bricks[0].model(X), second], 1)).abs().max() <= 1e-4
    unknown = [bricks[0], replace(bricks[1], spread=None)]
    plain = brickwork.assemble(unknown)
    assert origin_of(plain).provenance["assemble"]["calibrate"] == "none"
    assert (plain(X) - side_by_side(bricks)).abs().max() <= 1e-5
    with pytest.raises(BadModel, match="has no statistics"):
        brickwork.assemble(unknown, calibrate="source")


def test_calibration_that_would_not_be_exact():
    one = torch.ones(2)
    x = torch.zeros(1, 3)
    with pytest.raises(Unsupported, match="has none"):
        fold(nn.Linear(3, 2, bias=False), one, one, x, None)
    with pytest.raises(Unsupported, match="the logits themselves"):
        fold(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), one, one * -9, x, None)


def test_parts_that_were_trained_on_differently_normalised_images(bricks, nets, digits, tmp_path):
    """Raw images reach every part as it was trained to see them, also after a reload."""
    other = brickwork.disassemble(nets["B"], ["8"], digits["B"], keep=0.9, progress=False)
    own = Preprocessing((16, 16), 1, (0.25,), (0.4,))
    attach(other.model, replace(origin_of(other.model), preprocessing=own))
    model = brickwork.assemble([bricks[0], other], calibrate="none")
    raw = digits["B"].test_images[:20]
    wanted = torch.cat([predict(bricks[0].model, raw), predict(other.model, raw)], 1)
    assert (predict(model, raw) - wanted).abs().max() <= 1e-4
    again = brickwork.load(brickwork.save(model, tmp_path / "both"))
    assert torch.equal(predict(again, raw), predict(model, raw))


def test_what_cannot_be_joined(bricks, nets, digits, tmp_path):
    origin = origin_of(bricks[1].model)
    other = brickwork.disassemble(nets["B"], ["8"], digits["B"], keep=0.9, progress=False)
    attach(other.model, replace(origin, preprocessing=Preprocessing((24, 24), 1, (0.0,), (1.0,))))
    stuck = replace(bricks[1], std=(0.0, 1.0, 1.0))
    for given, options, error, message in (
        ([bricks[0], bricks[0]], {}, RequestError, "class '0' is in brick 0 and in brick 1"),
        ([bricks[0], other], {}, BadModel, "brick 0 and brick 1 prepare images differently"),
        ([bricks[0], replace(bricks[1], input_shape=(1, 32, 32))], {}, BadModel, "1×16×16 and brick 1 of 1×32×32"),
        ([bricks[0], replace(bricks[1], output="logits")], {}, BadModel, "has no output 'logits'"),
        (bricks, {"calibrate": "guess"}, RequestError, "it must be one of auto, none, source, classwise, target"),
        (bricks, {"calibrate": "target"}, RequestError, "give both or neither"),
        (bricks, {"how": "magic"}, RequestError, "how is .magic.; it must be"),
        ([], {}, RequestError, "at least one"),
        ([nets["A"]], {}, RequestError, "bricks or their folders, not a LeNet"),
        ([bricks[0], stuck], {"calibrate": "classwise"}, BadModel, "never varied"),
        ([tmp_path / "nothing"], {}, BadFile, "does not exist"),
    ):
        with pytest.raises(error, match=message) as caught:
            brickwork.assemble(given, **options)
        assert str(caught.value).count("\n") == 0


def test_other_precision(bricks):
    import copy

    double = replace(bricks[1], model=copy.deepcopy(bricks[1].model).double())
    with pytest.raises(BadModel, match="one dtype and device"):
        brickwork.assemble([bricks[0], double])


def test_the_provenance_says_what_it_is_made_of(bricks):
    facts = origin_of(brickwork.assemble(bricks)).provenance["assemble"]
    assert facts["calibrate"] == "source"
    assert [b["classes"] for b in facts["bricks"]] == [["0", "2"], ["5", "6", "7"]]
    assert [b["source"] for b in facts["bricks"]] == [b.source for b in bricks]
    assert np.all([len(b["source"]) == 64 for b in facts["bricks"]])


def test_calibration_on_target_images(bricks, digits):
    target = np.concatenate([digits[h].train_images[:100] for h in "AB"])
    model = brickwork.assemble(bricks, calibrate="target", target=target)
    logits = predict(model, target).double()
    assert logits.mean(0).abs().max() < 1e-4
    spread = logits.std(0, unbiased=False)
    assert spread.max() - spread.min() < 1e-4 * spread.max()


class Packed(nn.Module):
    """A small network that returns its logits alone, second of two, or under a name."""

    def __init__(self, how):
        super().__init__()
        self.how, self.a, self.b = how, nn.Conv2d(1, 12, 3), nn.Linear(12, 5)

    def forward(self, x):
        features = self.a(x).relu().mean((2, 3))
        logits = self.b(features)
        return {"second": (features, logits), "g": {"f": features, "g": logits}, "logits": {"logits": logits}}.get(
            self.how, logits
        )


HOW = {"repair": "none", "progress": False}


@pytest.fixture
def packed():
    """Bricks of networks that say in different ways where their logits are: {how: brick}."""
    torch.manual_seed(0)
    x, bricks = torch.rand(80, 1, 8, 8, dtype=torch.float64), {}
    for first, (how, output) in enumerate([("alone", None), ("second", 1), ("g", "g"), ("logits", "logits")]):
        net = Packed(how).double()
        attach(net, Origin(classes=tuple(f"{how} {k}" for k in range(5))))
        labels = torch.arange(80) % 5
        bricks[how] = brickwork.disassemble(net, [0, 1 + first], (x, labels), keep=0.5, output=output, **HOW)
    return x, bricks


def test_parts_whose_logits_are_different_outputs(packed, tmp_path):
    x, bricks = packed
    chosen = [bricks["alone"], bricks["second"], bricks["g"]]
    joined = brickwork.assemble(chosen, calibrate="none")
    wanted = torch.cat([logits_of(part.model(x), part.output) for part in chosen], 1)
    assert (joined(x) - wanted).abs().max() < 1e-10
    classes = tuple(name for part in chosen for name in part.classes)
    assert origin_of(joined).classes == classes and origin_of(joined).steps[0]["output"] == [None, "1", "g"]
    brickwork.save(joined, tmp_path / "all")
    makers = [partial(Packed, how) for how in ("alone", "second", "g")]
    again = brickwork.load(tmp_path / "all", arch=makers)
    assert torch.equal(again(x), joined(x))
    with pytest.raises(Unsupported, match="outputs 'g' and None cannot be interleaved"):
        brickwork.assemble([bricks["alone"], bricks["g"]], calibrate="none", how="blocks")
    scaled = brickwork.assemble(chosen, calibrate="source")
    assert scaled(x).shape == wanted.shape and not torch.equal(scaled(x), joined(x))


def test_an_output_that_is_taken_anyway_is_no_other_output(packed):
    """So that parts of one architecture, one of which was cut with its name, are interleaved as ever."""
    x, bricks = packed
    other = replace(bricks["logits"], output=None, classes=("x", "y"))
    joined = brickwork.assemble([bricks["logits"], other], calibrate="none", shared="apart", how="blocks")
    wanted = torch.cat([logits_of(part.model(x)) for part in (bricks["logits"], other)], 1)
    assert (logits_of(joined(x)) - wanted).abs().max() < 1e-10 and origin_of(joined).steps[0]["output"] is None
