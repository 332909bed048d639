"""What bricks are good for: compress, treat, distil, increment, transfer, adapt."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import data, zoo
from brickwork.bricks.adaptation import adapt
from brickwork.bricks.brick import Brick
from brickwork.bricks.compression import compress
from brickwork.bricks.distillation import distil
from brickwork.bricks.incremental import increment
from brickwork.bricks.transferring import transfer
from brickwork.bricks.treatment import RULES, treat
from brickwork.errors import BadData, BadModel, RequestError
from brickwork.evaluation import evaluate, evaluate_data
from brickwork.origin import origin_of
from brickwork.store import state_hash

X = torch.randn(9, 1, 16, 16, generator=torch.Generator().manual_seed(0))
QUIET = {"progress": False}


def unchanged(model, before):
    assert state_hash(model) == before
    assert not any(m._forward_hooks for m in model.modules())


def test_compress_keeps_every_class(nets, digits):
    before = state_hash(nets["A"])
    small = compress(nets["A"], digits["A"], tolerance=0.01, **QUIET)
    assert small.classes == digits["A"].classes and small.parameters < 0.5
    assert small.accuracy_after >= small.accuracy_before - 0.01
    whole = evaluate_data(nets["A"], digits["A"]).accuracy
    assert evaluate_data(small.model, digits["A"]).accuracy >= whole - 0.05
    unchanged(nets["A"], before)


@pytest.fixture(scope="module")
def ill(digits):
    """A network that has seen little."""
    model = zoo.build("resnet8", num_classes=5, in_channels=1, width=4, seed=0)
    from brickwork.training import train

    images = digits["A"]
    train(model, images.train_images, images.train_labels, epochs=1, classes=images.classes, device="cpu", **QUIET)
    return model.eval()


@pytest.mark.parametrize("rule", RULES)
def test_treat(ill, digits, rule):
    before = state_hash(ill)
    sick = evaluate_data(ill, digits["A"]).accuracy
    scored = {} if rule == "plain" else {"attribution": "taylor"}
    found = treat(ill, digits["A"], rule=rule, epochs=2, lr=0.05, **scored, **QUIET)
    assert evaluate_data(found.model, digits["A"]).accuracy > sick
    assert all(0 < share < 1 for share in found.on_route.values()) and found.options.rule == rule
    unchanged(ill, before)
    assert not any(m._forward_hooks for m in found.model.modules())


def test_treatment_moves_the_derivative_onto_the_route(nets, digits):
    """Strong enough, the constraint does what it says: less of the derivative lies off the route."""
    from brickwork.bricks import treatment
    from brickwork.bricks.subject import prepare

    def outside(model):
        subject = prepare(nets["A"], None, digits["A"], device=None, output=None, seed=0)
        scores = subject.score("frat", 1000, 0, False)
        points = treatment._points(subject, scores.routes(1.0))
        model = copy.deepcopy(model)
        watch = treatment._Watch(model, {p: m for p, (_, m) in points.items()}, RULES["route"], 1.0)
        x = torch.from_numpy(digits["A"].test_images)
        from brickwork.data.pixels import as_input

        images = as_input(x, origin_of(model).preprocessing)
        return watch.penalty(images, model(images), torch.from_numpy(digits["A"].test_labels)).item()

    options = dict(epochs=3, lr=0.02, depth=None, seed=0, **QUIET)
    held = treat(nets["A"], digits["A"], rule="route", strength=3.0, **options).model
    free = treat(nets["A"], digits["A"], rule="plain", **{k: v for k, v in options.items() if k != "depth"}).model
    assert outside(held) < outside(free) - 0.02
    again = treat(nets["A"], digits["A"], rule="route", strength=3.0, **options).model
    assert state_hash(again) == state_hash(held)


def test_distil_from_two_teachers(nets, digits):
    bricks = [
        brickwork.disassemble(nets[h], c, digits[h], budget=0.1, **QUIET) for h, c in (("A", "0-1"), ("B", "5,6"))
    ]
    student = brickwork.assemble(bricks)
    chosen = data.load("digits:0,1,5,6", size=16, channels=1)
    before = [state_hash(m) for m in (student, nets["A"], nets["B"])]
    taught = distil(student, [nets["A"], nets["B"]], chosen.train_images, epochs=3, lr=0.005, batch_size=32, **QUIET)
    assert [state_hash(m) for m in (student, nets["A"], nets["B"])] == before
    assert origin_of(taught.model).classes == ("0", "1", "5", "6")
    assert "accuracy" not in taught.training.history[0]
    assert "distil" in origin_of(taught.model).provenance
    labelled = distil(
        student,
        [nets["A"], nets["B"]],
        chosen.train_images,
        chosen.train_labels,
        epochs=6,
        lr=3e-3,
        optimizer="adam",
        batch_size=32,
        hard=0.9,
        **QUIET,
    )
    assert evaluate_data(labelled.model, chosen).accuracy > 0.95
    assert evaluate_data(taught.model, chosen).accuracy > 0.9


def test_teachers_that_do_not_fit(nets, digits):
    student = zoo.build("lenet", num_classes=3, in_channels=1, seed=0)
    images = digits["A"].train_images[:64]
    for teachers, options, error, message in (
        ([], {}, RequestError, "at least one teacher"),
        (nets["A"], {}, BadModel, "5 logits and the student 3"),
        (nets["A"], {"temperature": 0}, RequestError, "temperature is 0"),
        (nets["A"], {"hard": 2}, RequestError, "hard is 2"),
    ):
        with pytest.raises(error, match=message):
            distil(student, teachers, images, **options, **QUIET)
    named = copy.deepcopy(nets["B"])
    with pytest.raises(BadModel, match="no teacher knows '5'"):
        distil(named, nets["A"], images, **QUIET)


def test_increment(nets, digits, tmp_path):
    base = nets["A"]
    bricks = [brickwork.disassemble(nets["B"], c, digits["B"], budget=0.3, **QUIET) for c in (["5"], ["6", "7"])]
    model = increment(base, bricks[0])
    with torch.no_grad():
        wanted = torch.cat([base(X), bricks[0].model(X)], 1)
        assert (model(X) - wanted).abs().max() <= 1e-5
        more = increment(model, bricks[1])
        assert (more(X) - torch.cat([wanted, bricks[1].model(X)], 1)).abs().max() <= 1e-5
    assert origin_of(more).classes == (*"01234567",)
    again = brickwork.load(brickwork.save(more, tmp_path / "m"))
    assert torch.equal(again(X), more(X))
    with pytest.raises(BadModel, match="has no statistics"):
        increment(base, bricks[0], calibrate="source")
    calibrated = increment(base, bricks[0], calibrate="source", data=digits["A"].train_images)
    assert calibrated(X).shape == (9, 6)
    with pytest.raises(RequestError, match="class '5' is in"):
        increment(model, bricks[0])
    with pytest.raises(BadModel, match="does not say how its classes are called"):
        Brick.whole(nn.Linear(2, 2))


def test_transfer_holds_what_belongs_to_a_class(nets, digits):
    base = nets["A"]
    inverted = (255 - digits["A"].train_images, digits["A"].train_labels)
    before = state_hash(base)
    found = transfer(base, inverted, routes=digits["A"], epochs=3, lr=0.05, **QUIET)
    everything = transfer(base, inverted, what="all", epochs=3, lr=0.05, **QUIET)
    unchanged(base, before)
    assert 0 < found.free < 1 and everything.free == 1
    moved = {
        name: float((a != b).float().mean())
        for (name, a), b in zip(found.model.named_parameters(), base.parameters(), strict=True)
    }
    assert moved["fc3.weight"] == 0 and 0 < moved["fc1.weight"] < 1
    total = sum(p.numel() for p in base.parameters())
    changed = sum(moved[n] * p.numel() for n, p in base.named_parameters())
    assert changed / total <= found.free + 1e-6
    test = (255 - digits["A"].test_images, digits["A"].test_labels)
    lost = evaluate(base, *test).accuracy
    assert evaluate(found.model, *test).accuracy > lost < evaluate(everything.model, *test).accuracy
    for options, message in (
        ({"what": "some"}, "what is 'some'"),
        ({"what": "all"}, "holds nothing"),
        ({"threshold": -1}, "threshold is -1"),
    ):
        with pytest.raises(RequestError, match=message):
            transfer(base, inverted, routes=digits["A"], attribution="taylor", **options, **QUIET)


def test_adapt_needs_no_labels(nets, digits):
    base, images = nets["A"], digits["A"]
    dim = lambda x: (x * 0.5 + 60).astype(np.uint8)  # noqa: E731
    lost = evaluate(base, dim(images.test_images), images.test_labels).accuracy
    found = adapt(base, images.train_images, dim(images.train_images), **QUIET)
    won = evaluate(found, dim(images.test_images), images.test_labels).accuracy
    assert won > 0.93 and won >= lost
    assert origin_of(found).classes == origin_of(base).classes
    with pytest.raises(BadData, match="in pairs"):
        adapt(base, images.train_images[:10], images.train_images[:9], **QUIET)


def test_a_transformer_is_fine_tuned_by_adamw_unless_something_else_is_asked_for(nets, digits):
    from brickwork.bricks.options import DistilOptions

    vit = zoo.build("vit_small", num_classes=3, in_channels=1, image_size=8, patch_size=4, dim=8, heads=2, depth=1)
    for net, given, decided in (
        (vit, {}, ("adamw", 1e-4)),
        (vit, {"optimizer": "sgd"}, ("sgd", 0.01)),
        (vit, {"lr": 0.5}, ("adamw", 0.5)),
        (nets["A"], {}, ("sgd", 0.01)),
    ):
        training = DistilOptions(**given).training(net)
        assert (training["optimizer"], training["lr"]) == decided
    taught = brickwork.distil(vit, vit, torch.rand(8, 1, 8, 8), progress=False)
    assert origin_of(taught.model).provenance["distil"]["optimizer"] == "adamw"
