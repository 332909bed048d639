"""Transplant nets: growth changes nothing that was there, shapes that cannot meet are refused, folders come back."""

from __future__ import annotations

import importlib.util
import json

import pytest
import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.blueprint.splitting import split
from brickwork.errors import BadFile, BadModel, OutputExists, RequestError, UnknownName
from brickwork.origin import Origin, Preprocessing, attach
from brickwork.transplant import Adapter, TransplantNet
from brickwork.transplant.folders import load_net, save_net
from brickwork.transplant.parts import alone, grown_by

IMAGE = (3, 32, 32)


def halves(seed, arch="lenet", at="pool1", **args):
    return split(zoo.build(arch, num_classes=1, seed=seed, **args).eval(), at)


@pytest.fixture
def net():
    return TransplantNet(IMAGE).add(halves(0), "dog", "classify").eval()


@pytest.fixture
def grown(net):
    adapter = Adapter(6, 6, layers=2, kernel=3, start="random", seed=3, order=torch.randperm(6), scale=1.5)
    return net.add(halves(1), "cat", "classify-cats").connect("cat", "classify", adapter).eval()


@pytest.fixture
def images():
    return torch.randn(4, *IMAGE, generator=torch.Generator().manual_seed(0))


def test_growth_changes_no_bit(net, grown, images):
    before = net(images, "dog", "classify")
    for later in (grown, grown.add_category("cow", halves(2).below), grown.without(category="cat")):
        assert torch.equal(later(images, "dog", "classify"), before)
    assert list(net.routes) == [("dog", "classify")] and list(net.parts) == ["category dog", "task classify"]
    assert sum(p.numel() for p in grown.parameters()) == sum(
        p.numel() for half in (halves(0), halves(1)) for m in (half.below, half.above) for p in m.parameters()
    ) + sum(p.numel() for p in grown.routes["cat", "classify"].parameters())


def test_it_is_the_networks_it_was_made_of(grown, images):
    for seed, route in ((0, ("dog", "classify")), (1, ("cat", "classify-cats"))):
        whole = zoo.build("lenet", num_classes=1, seed=seed).eval()
        assert torch.equal(grown(images, *route), whole(images))


def test_a_task_learned_on_a_category_reaches_it(net, images):
    above = split(zoo.build("lenet", num_classes=4, seed=5).eval(), "pool1").above
    more = net.add_task("breeds", above, ["dog"]).eval()
    assert more(images, "dog", "breeds").shape == (4, 4)
    with pytest.raises(RequestError, match="name them"):
        net.add_task("breeds", above, [])


@pytest.mark.parametrize("arch", ["lenet", "fcn8s"])
def test_a_folder_comes_back_bit_for_bit(arch, tmp_path, images):
    at = {"lenet": "pool1", "fcn8s": "to_8.4"}[arch]
    args = {} if arch == "lenet" else {"head": 16}
    channels = {"lenet": 6, "fcn8s": 64}[arch]
    net = (
        TransplantNet(IMAGE)
        .add(halves(0, arch, at, **args), "dog", "do")
        .add_category("cat", halves(1, arch, at, **args).below)
    )
    net = net.connect("cat", "do", Adapter(channels, channels, start="random", seed=1)).eval()
    folder = save_net(net, tmp_path / "net")
    again = load_net(folder)
    for route in net.routes:
        assert torch.equal(again(images, *route), net(images, *route))
    assert again.table() == net.table()
    part = brickwork.load(folder / "categories" / "dog")
    assert torch.equal(part(images), net.features(images, "dog")[0])
    with pytest.raises(OutputExists):
        save_net(net, folder)
    save_net(net, folder, force=True)
    assert (
        save_net(net, tmp_path / "two").joinpath("transplant.json").read_bytes()
        == (folder / "transplant.json").read_bytes()
    )


def test_shapes_that_cannot_meet(net):
    wide = split(zoo.build("vgg16", num_classes=1, seed=0).eval(), "features.6")
    both = net.add_category("wide", wide.below)
    with pytest.raises(RequestError, match=r"gives 64×16×16, classify reads 6×16×16, and no adapter.*Adapter\(64, 6\)"):
        both.connect("wide", "classify", None)
    with pytest.raises(RequestError, match="an adapter from 6 to 6"):
        both.connect("wide", "classify", Adapter(6, 6))
    early = split(zoo.build("vgg16", num_classes=1, seed=0).eval(), "features.2")
    with pytest.raises(RequestError, match="64×32×32 and classify reads 6×16×16"):
        net.add_category("early", early.below).connect("early", "classify", Adapter(64, 6))
    carried = split(zoo.build("fcn8s", num_classes=2, seed=0, head=16).eval(), "to_16", carry=["to_8"])
    with pytest.raises(RequestError, match="carried past the cut"):
        net.add(carried, "c", "t").connect("dog", "t", Adapter(6, 512))


def test_names(net, images):
    with pytest.raises(RequestError, match="there is a category 'dog' already"):
        net.add_category("dog", halves(1).below)
    with pytest.raises(RequestError, match="no name"):
        net.add_category("a/b", halves(1).below)
    with pytest.raises(UnknownName, match="did you mean 'dog'"):
        net(images, "dogg", "classify")
    with pytest.raises(RequestError, match="cat does not reach classify; it reaches nothing"):
        net.add_category("cat", halves(1).below)(images, "cat", "classify")
    with pytest.raises(RequestError, match="reaches classify already"):
        net.connect("dog", "classify", Adapter(6, 6))
    with pytest.raises(RequestError, match="odd kernel"):
        Adapter(6, 6, kernel=2)


def test_damaged_folders(grown, tmp_path):
    folder = save_net(grown, tmp_path / "net")
    with pytest.raises(BadFile, match="no transplant net"):
        load_net(tmp_path)
    path = folder / "transplant.json"
    config = json.loads(path.read_text())
    for change, message in (
        (lambda c: c.update(format=9), "format 9"),
        (lambda c: c["routes"].append({"category": "x", "task": "classify", "adapter": False}), "leads nowhere"),
        (lambda c: c["routes"][0].update(extra=1), "extra"),
        (lambda c: c["categories"].update({"../up": {"shape": [1]}}), "no name of a part"),
    ):
        broken = json.loads(json.dumps(config))
        change(broken)
        path.write_text(json.dumps(broken))
        with pytest.raises(BadFile, match=message) as caught:
            load_net(folder)
        assert "\n" not in str(caught.value)
    path.write_text(json.dumps(config))
    weights = folder / "adapters.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(BadFile, match="was changed"):
        load_net(folder)


def test_halves_are_pure(images):
    """An in-place layer right behind the cut must not write into features that others read too."""
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)
    )
    cut = split(model, "0")
    features = cut.below(images)
    kept = features.clone()
    cut.above(features)
    assert torch.equal(features, kept) and torch.equal(cut(images), model(images))
    assert model[1].inplace  # the given model stays as it was


def test_a_task_is_joined_to_its_own_category_alone(images):
    """The same tensors under another cut, or for pictures that are prepared otherwise, are other features."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    model = nn.Sequential(*layers).eval()
    net = grown_by(TransplantNet(IMAGE), model, at="0", category="c", task="first")
    assert torch.equal(grown_by(net, model, at="0", task="again", on=["c"])(images, "c", "again"), model(images))
    with pytest.raises(BadModel, match="lower half is not 'c'"):
        grown_by(net, model, at="1", task="second", on=["c"])
    attach(model, Origin(preprocessing=Preprocessing((32, 32), 3, (0.5,) * 3, (0.2,) * 3)))
    with pytest.raises(BadModel, match="lower half is not 'c'"):
        grown_by(net, model, at="0", task="third", on=["c"])


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="needs the extra timm")
def test_halves_of_networks_that_were_built_differently_are_no_whole():
    one, two = (
        split(zoo.build("timm:resnet10t", num_classes=2, seed=0, act_layer=name).eval(), "layer1")
        for name in ("gelu", "relu")
    )
    net = TransplantNet(IMAGE).add(one, "a", "own").add_task("other", two.above, ["a"])
    alone(net, category="a", task="own")
    with pytest.raises(BadModel, match="built differently, so no timm:resnet10t is both"):
        alone(net, category="a", task="other")
