"""The page of adapters: planes of features, curves of errors, the numbers beside them."""

import numpy as np
import pytest
import torch

from brickwork import zoo
from brickwork.blueprint.splitting import split
from brickwork.errors import BadData, RequestError, UnknownName
from brickwork.report.transplant import Judged, draw_transplant
from brickwork.transplant import Adapter, TransplantNet
from brickwork.transplant.route import route_model
from brickwork.transplant.spaces import hidden_features, space_of

ERRORS = [
    Judged("cat", "a", 0, 0.5),
    Judged("cat", "a", 10, 0.2),
    Judged("cat", "b", None, 0.1),
    Judged("dog", "a", 10, 0.3),
]


def test_the_plane_is_the_principal_one():
    rng = np.random.default_rng(0)
    line = torch.tensor(rng.normal(size=(40, 1)) @ np.array([[3.0, 4.0, 0.0]]))
    space = space_of("cat", {"line": line, "spot": torch.zeros(40, 3, dtype=torch.float64)})
    assert space.explained == pytest.approx(1.0) and space.spread["spot"] == 0
    assert space.spread["line"] == pytest.approx(
        float(line.norm(dim=1).square().mean() - line.mean(0).norm() ** 2) ** 0.5
    )
    assert np.abs(space.points["line"][:, 1]).max() < 1e-9  # one direction is all there is
    apart = np.linalg.norm(space.points["line"][:, None] - space.points["line"][None], axis=2)
    wanted = np.abs(line.numpy()[:, None] - line.numpy()[None])
    assert np.allclose(apart, np.linalg.norm(wanted, axis=2))  # a projection that loses nothing keeps distances
    assert space_of("one", {"x": torch.ones(3, 1)}).points["x"].shape == (3, 2)


def test_hidden_features_are_what_the_last_layer_reads():
    halves = split(zoo.build("lenet", num_classes=3, seed=0).eval(), "pool1")
    net = TransplantNet((3, 32, 32)).add(halves, "dog", "do").eval()
    images = torch.rand(5, 3, 32, 32)
    for adapter in (None, Adapter(6, 6, start="random")):
        route = route_model(net, "dog", "do", adapter)
        hidden = hidden_features(route, images, batch_size=2)
        last = halves.above.net.fc3
        with torch.no_grad():
            assert torch.allclose(last(hidden), route(images), atol=1e-6)
    assert hidden_features(route, images, layer="conv2").shape == (5, 16)  # maps are averaged
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in route.modules())
    with pytest.raises(UnknownName, match="did you mean 'conv2'"):
        hidden_features(route, images, layer="conv3")
    with pytest.raises(BadData, match="no images"):
        hidden_features(route, images[:0])


def test_the_drawing(tmp_path):
    rng = np.random.default_rng(0)
    spaces = [space_of(c, {n: torch.tensor(rng.normal(size=(7, 4))) for n in ("a", "b")}) for c in ("cat", "dog")]
    drawing = draw_transplant(spaces, ERRORS, task="classify", teachers={"cat": 0.05})
    svg = drawing.svg()
    assert svg.count("image 6") == 4 and "its own task 5.0%" in svg and "labelled images a class" in svg
    assert [row[:4] for row in drawing.rows[:3]] == [
        ("cat", "a", "0", "50.00%"),
        ("cat", "a", "10", "20.00%"),
        ("cat", "b", "any", "10.00%"),
    ]
    assert ("dog", "b", "–", "–") in [row[:4] for row in drawing.rows]  # drawn, though not judged
    page = drawing.html()
    assert page.startswith("<!doctype html>") and "://" not in page.replace("http://www.w3.org", "")
    again = draw_transplant(spaces, ERRORS, task="classify", teachers={"cat": 0.05})
    assert again.svg() == svg
    for name in ("p.svg", "p.png", "p.html"):
        assert drawing.save(tmp_path / name).stat().st_size > 1000
    for left, right in ((spaces, []), ([], ERRORS)):
        assert "<svg" in draw_transplant(left, right, task="t").svg()
    with pytest.raises(RequestError, match="nothing to draw"):
        draw_transplant([], [], task="t")
