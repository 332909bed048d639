"""Answers are matched by the names of classes, whatever order each side has them in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from brickwork import data, zoo
from brickwork.blueprint.splitting import split
from brickwork.data.images import IGNORE, ImageData
from brickwork.errors import BadData, RequestError
from brickwork.origin import Origin, attach, origin_of
from brickwork.transplant import Adapter, TransplantNet, connect, learn_adapter
from brickwork.transplant.growth import add_learned_task
from brickwork.transplant.route import judge, route_model, targets_for

IMAGE = (3, 32, 32)


def halves(seed, *classes, outputs=None):
    model = zoo.build("lenet", num_classes=outputs or len(classes), seed=seed).eval()
    attach(model, replace(origin_of(model), classes=tuple(classes) or None))
    return split(model, "pool1")


@pytest.mark.parametrize("way", ["closed-form", "back-distill", "distill", "jacobian", "closed-form+distill"])
def test_a_teacher_with_another_order_of_classes(way):
    """The same network with its outputs in another order teaches the same adapter."""
    task, teacher = halves(0, "a", "b", "c").above, halves(1, "a", "b", "c").above
    turned = halves(1, "c", "a", "b").above
    with torch.no_grad():
        for name in ("net.fc3.weight", "net.fc3.bias"):
            turned.get_parameter(name).copy_(teacher.get_parameter(name)[[2, 0, 1]])
    features = torch.rand(40, 6, 16, 16, generator=torch.Generator().manual_seed(0))
    found = [
        learn_adapter(
            Adapter(6, 6), task, way=way, teacher=one, unlabelled=features, steps=5, lr=0.01, alpha=1.0, progress=False
        )
        .adapter.convs[0]
        .weight
        for one in (teacher, turned)
    ]
    assert (found[0] - found[1]).abs().max() <= 1e-5
    nameless = turned
    attach(nameless, replace(origin_of(turned), classes=("x", "y", "z")))  # other classes: by their order
    other = learn_adapter(
        Adapter(6, 6), task, way=way, teacher=nameless, unlabelled=features, steps=5, lr=0.01, alpha=1.0, progress=False
    )
    assert (found[0] - other.adapter.convs[0].weight).abs().max() > 1e-3


def test_answers_of_another_shape_are_no_example():
    features = torch.rand(4, 6, 16, 16)
    with pytest.raises(RequestError, match="the task has 2 outputs and its teacher 3, so nothing"):
        learn_adapter(
            Adapter(6, 6),
            halves(0, "a", "b").above,
            way="distill",
            teacher=halves(1, "a", "b", "c").above,
            unlabelled=features,
            progress=False,
        )


def test_a_task_of_one_output_keeps_its_yes():
    digits = data.load("digits:0,1@20", size=32)
    net = TransplantNet(IMAGE).add(halves(0, outputs=1), "c", "t")
    grown = add_learned_task(
        net,
        zoo.build("lenet", num_classes=1, seed=1),
        "new",
        at="pool1",
        on=["c"],
        data=[digits],
        steps=60,
        progress=False,
    )
    route = route_model(grown.net, "c", "new")
    assert origin_of(route).classes == ("1",)
    assert judge(route, digits, targets_for(route, digits)) == grown.note["c"]["after"]


def yes_to_everything():
    model = zoo.build("lenet", num_classes=1, seed=0).eval()
    attach(model, replace(origin_of(model), classes=("1",)))
    with torch.no_grad():
        model.fc3.weight.zero_()
        model.fc3.bias.fill_(9.0)
    return route_model(TransplantNet(IMAGE).add(split(model, "pool1"), "c", "t"), "c", "t")


@pytest.mark.parametrize(
    ("spec", "outputs"), [("digits:1@5", [1]), ("digits:1,0@5", [1, 0]), ("digits:0-2@5", [0, 1, 0])]
)
def test_one_output_says_yes_to_its_class(spec, outputs):
    assert targets_for(yes_to_everything(), data.load(spec, size=32)).outputs.tolist() == outputs


def test_one_output_and_classes_of_other_names():
    route = yes_to_everything()
    assert targets_for(route, data.load("digits:3,4@5", size=32)).outputs.tolist() == [0, 1]
    with pytest.raises(BadData, match="says yes to '1', and digits:4@5 has 1 class of other names; give that class"):
        targets_for(route, data.load("digits:4@5", size=32))


def test_pixels_by_the_names_of_their_classes():
    grey = np.random.default_rng(0).integers(0, 255, (6, 6, 9, 1)).astype(np.uint8)
    masks = (grey[..., 0] > 127).astype(np.uint8)
    masks[:, 0, 0] = IGNORE
    none = np.zeros(6, np.int64)
    images = ImageData(
        "dots", ("x",), grey, none, grey, none, train_masks=masks, test_masks=masks, mask_classes=("back", "front")
    )
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Identity(), nn.Conv2d(1, 2, 1)).eval()
    attach(model, Origin(classes=("front", "back")))
    with torch.no_grad():
        for value, wanted in zip(model.parameters(), ([1.0], [-127.5 / 255], [1.0, -1.0], [0.0, 0.0]), strict=True):
            value.copy_(torch.tensor(wanted).reshape(value.shape))
    route = route_model(TransplantNet((1, 6, 9)).add(split(model, "1"), "a", "t"), "a", "t")
    targets = targets_for(route, images)
    assert judge(route, images, targets) == {"accuracy": 1.0, "mean_iou": 1.0}
    assert set(np.unique(targets.of(images, "train"))) == {0, 1, IGNORE}
    assert (targets.of(images, "train")[masks == 0] == 1).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("way", ["closed-form", "closed-form+distill", "back-distill"])
def test_networks_of_another_precision_are_connected_in_it(dtype, way):
    digits = data.load("digits:0,1@8", size=32)
    one, two = (halves(seed, "0", "1") for seed in (0, 1))
    net = TransplantNet(IMAGE).add(one, "a", "ta").add(two, "b", "tb").to(dtype)
    grown = connect(
        net, "b", "ta", way=way, data=digits, **({} if way == "closed-form" else {"steps": 2}), progress=False
    )
    assert {p.dtype for p in grown.net.parameters()} == {dtype}
    assert 0 <= grown.note["after"]["accuracy"] <= 1


def test_masks_that_a_task_cannot_tell_are_refused():
    grey, none = np.zeros((2, 6, 9, 1), np.uint8), np.zeros(2, np.int64)
    masks = np.ones((2, 6, 9), np.uint8)
    images = ImageData("dots", ("x",), grey, none, grey, none, train_masks=masks, test_masks=masks)
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Identity(), nn.Conv2d(1, 1, 1)).eval()
    route = route_model(TransplantNet((1, 6, 9)).add(split(model, "1"), "a", "t"), "a", "t")
    with pytest.raises(BadData, match="hold class 1 and the task tells 1 kind of pixels"):
        targets_for(route, images)
