"""Routes of classes: the paper's threshold, counted by hand, on networks with and without coupled channels."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.bricks import Routes, routes
from brickwork.bricks.options import RoutesOptions
from brickwork.bricks.route_sets import RouteLayer
from brickwork.bricks.samples import load_samples
from brickwork.bricks.scores import score_channels
from brickwork.bricks.widths import by_threshold
from brickwork.errors import BadData, BadModel, RequestError, UnknownName


@pytest.fixture(scope="module")
def found(nets, digits):
    return routes(nets["A"], digits["A"], ["1", "3"], scored=200, progress=False)


@pytest.fixture(scope="module")
def by_hand():
    on = {"cat": (0, 1, 2), "dog": (2, 3), "fox": (2,)}
    layers = (
        RouteLayer("input", "input", 1, dict.fromkeys(on, (0,))),
        RouteLayer("conv", "layer", 8, on, reads=("input",), made_by=("conv", "conv2", "conv3")),
        RouteLayer("classes", "classes", 3, {"cat": (0,), "dog": (1,), "fox": (2,)}, reads=("conv",)),
    )
    return Routes(("cat", "dog", "fox"), layers, "net", dict.fromkeys(on, 1), RoutesOptions(scored=3))


def test_routes_are_those_of_the_threshold(nets, digits, found):
    model, images = nets["A"], digits["A"]
    assert found.classes == ("1", "3") and found.network == "lenet"
    assert [layer.name for layer in found.layers] == ["input", "conv1", "conv2", "fc1", "fc2", "classes"]
    for name in found.classes:
        part = brickwork.disassemble(
            model, [name], images, attribution="frat", threshold=1.0, repair="none", scored=100, progress=False
        )
        assert {layer.name: list(layer.on[name]) for layer in found.layers[1:-1]} == {
            space: kept for space, kept in part.kept.items() if space != "classes"
        }
    for layer in found.layers[1:-1]:
        for name in found.classes:
            scores = np.array(layer.scores[name])
            assert layer.on[name] == tuple(np.flatnonzero(scores > scores.mean()))
            assert layer.relative(name) == pytest.approx(scores / scores.mean())


@pytest.mark.parametrize(("threshold", "attribution"), [(0.5, "taylor"), (2.0, "frat"), (1.0, "frat-absolute")])
def test_the_threshold_and_the_scores_are_those_asked_for(nets, digits, threshold, attribution):
    model, images = nets["A"], digits["A"]
    pair = (images.train_images, images.train_labels)
    options = {"attribution": attribution, "threshold": threshold, "progress": False, "seed": 3}
    found = routes(model, pair, [0, 4], **options, scored=120)
    assert found.options == RoutesOptions(attribution=attribution, threshold=threshold, scored=120, seed=3)
    samples, _ = load_samples(
        pair,
        images.classes,
        True,
        preprocessing=model.brickwork_origin.preprocessing,
        device=torch.device("cpu"),
        dtype=torch.float32,
        seed=3,
    )
    for k, name in ((0, "0"), (4, "4")):
        index = samples.of_classes([k], 60, 3)
        inputs, labels = samples.inputs(index), torch.from_numpy(samples.labels[index])
        bp = brickwork.trace(model, inputs[:2])
        scores = score_channels(model, bp, inputs, labels, attribution=attribution, progress=False)
        tables = {space: t[[k]] for space, t in scores.scores.items() if space != "classes"}
        kept = by_threshold(bp, tables, threshold)
        assert {layer.name: list(layer.on[name]) for layer in found.layers[1:-1]} == kept


def test_a_route_does_not_depend_on_the_other_classes(nets, digits, found):
    some = digits["A"].train_labels
    few = np.concatenate([np.flatnonzero(some == 1), np.flatnonzero(some == 3)[:7], np.flatnonzero(some == 0)[:9]])
    pair = (digits["A"].train_images[np.sort(few)], some[np.sort(few)])
    alone = routes(nets["A"], pair, ["1"], scored=40, progress=False)
    others = routes(nets["A"], pair, ["3", "1", "0"], scored=120, progress=False)
    for a, b in zip(alone.layers, others.layers, strict=True):
        assert a.on["1"] == b.on["1"] and a.relative("1") == pytest.approx(b.relative("1"))


def test_the_ends_of_a_route(found):
    first, last = found.layers[0], found.layers[-1]
    assert first.kind == "input" and first.size == 1 and first.on == {"1": (0,), "3": (0,)}
    assert last.kind == "classes" and last.size == 5 and last.on == {"1": (1,), "3": (3,)}
    assert found.sharing("input") == 1 and found.sharing("classes") == 0
    assert [layer.reads for layer in found.layers] == [(), ("input",), ("conv1",), ("conv2",), ("fc1",), ("fc2",)]


def test_sharing_by_hand(by_hand, found):
    assert by_hand.shared("conv", "cat", "dog") == (2,)
    assert by_hand.either("conv", "cat", "dog") == (0, 1, 2, 3)
    assert by_hand.sharing("conv", "cat", "dog") == 1 / 4 == by_hand.sharing("conv", "dog", "cat")
    assert by_hand.sharing("conv", "dog", "fox") == 1 / 2
    assert by_hand.sharing("conv") == 1 / 4  # one channel on at least two routes, four on any
    assert by_hand.share("conv", "cat") == 3 / 8
    assert by_hand.layer("conv2").name == "conv" and by_hand.layer("conv").label == "conv +2"
    for layer in found.layers:
        a, b = map(set, layer.on.values())
        assert set(found.shared(layer.name)) == a & b
        assert found.sharing(layer.name, "1", "3") == len(a & b) / len(a | b)


def test_all_classes_of_the_data_by_default(nets, digits):
    images = digits["A"]
    assert routes(nets["A"], images, scored=50, progress=False).classes == ("0", "1", "2", "3", "4")
    some = images.train_labels < 2
    pair = (images.train_images[some], images.train_labels[some])
    assert routes(nets["A"], pair, scored=50, progress=False).classes == ("0", "1")


def test_the_same_twice_and_the_model_as_it_was(nets, digits, found):
    model = nets["A"].train()
    model.zero_grad(set_to_none=True)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.conv2.eval()
    again = routes(model, digits["A"], "1,3", scored=200, progress=False)
    assert json.dumps(again.to_dict()) == json.dumps(found.to_dict())
    assert model.training and model.fc1.training and not model.conv2.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    model.eval()


def test_a_coupled_space_is_one_column():
    net = zoo.build("resnet8", num_classes=3).eval()
    x, y = torch.randn(12, 3, 32, 32), torch.arange(12) % 3
    found = routes(net, (x, y), attribution="taylor", progress=False)
    spaces = brickwork.trace(net, x[:2]).spaces
    assert {layer.name: layer.size for layer in found.layers[1:]} == spaces
    assert found.layers[0].size == 3 and found.layers[-1].name == "classes"
    coupled = [layer for layer in found.layers if len(layer.made_by) > 1]
    assert coupled and all(layer.label == f"{layer.name} +{len(layer.made_by) - 1}" for layer in coupled)
    assert found.layer(coupled[0].made_by[-1]) is coupled[0]


def test_vectors_and_modules_without_names():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    x = torch.randn(60, 4)
    found = routes(net, (x, net(x).argmax(1)), [2, 0], attribution="taylor", progress=False)
    assert found.classes == ("2", "0") and found.layers[0].size == 4
    assert found.layers[-1].on == {"2": (2,), "0": (0,)}


def test_how_it_prints(found, by_hand):
    text = str(found)
    assert text.startswith("Decision routes of 1 and 3 (lenet; frat above 1 × the layer's mean; ")
    assert len({len(line) for line in text.splitlines()[1:]}) == 1
    conv = next(line for line in str(by_hand).splitlines() if line.startswith("conv"))
    assert conv.split() == ["conv", "+2", "8", "3", "(38%)", "2", "(25%)", "1", "(12%)", "4", "1", "25.0%"]
    assert "<td>conv +2</td>" in by_hand._repr_html_()
    facts = json.loads(json.dumps(by_hand.to_dict()))
    assert facts["layers"][1]["shared"] == [2] and facts["layers"][1]["sharing"] == 0.25


def test_wrong_requests(nets, digits, by_hand):
    model, images = nets["A"], digits["A"]
    with pytest.raises(UnknownName, match="unknown class of the model 'nine'"):
        routes(model, images, ["nine"])
    with pytest.raises(RequestError, match="did you mean 'frat'"):
        routes(model, images, attribution="fratt")
    with pytest.raises(RequestError, match=r"threshold is -1; .* scored is 0; .* seed is -2"):
        routes(model, images, threshold=-1, scored=0, seed=-2)
    with pytest.raises(BadData, match="no images of '4'"):
        some = images.train_labels < 2
        routes(model, (images.train_images[some], images.train_labels[some]), [0, 4])
    with pytest.raises(BadData, match="does not know"):
        routes(model, digits["B"])
    with pytest.raises(BadData, match="only images the model is sure of"):
        fresh = zoo.build("lenet", num_classes=5, in_channels=1)
        routes(fresh, (torch.randn(10, 1, 16, 16), torch.arange(10) % 5), progress=False)
    with pytest.raises(BadModel, match="one channel per class"):
        routes(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()), (torch.randn(4, 1, 4, 4), torch.arange(4)))
    with pytest.raises(BadModel, match=r"answers an image with a map of 3 × 32 × 32"):
        segmenter = zoo.build("fcn8s", num_classes=3)
        routes(segmenter, (torch.randn(4, 3, 32, 32), torch.arange(4) % 3), attribution="taylor")
    with pytest.raises(UnknownName, match="unknown layer of the routes 'cnv'; did you mean 'conv'"):
        by_hand.shared("cnv", "cat", "dog")
    with pytest.raises(UnknownName, match="class of the routes"):
        by_hand.share("conv", "cow")
    with pytest.raises(RequestError, match="two different"):
        by_hand.sharing("conv", "cat", "cat")
