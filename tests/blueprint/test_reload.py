"""A model folder brings surgery back without pickle: cut and joined networks of every architecture."""

from __future__ import annotations

import pytest
import torch
from checks import draw_keep, randomise

import brickwork
from brickwork import zoo
from brickwork.origin import origin_of


def outputs(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(x)


@pytest.mark.parametrize("name", zoo.names())
def test_cut_networks_come_back(name, tmp_path):
    model = randomise(zoo.build(name, num_classes=5, seed=0)).float()
    x = torch.randn(zoo.example_input(model, batch=1).shape)
    bp = brickwork.trace(model, x)
    small = bp.select(model, draw_keep(bp, 1))
    folder = brickwork.save(small, tmp_path / "cut")
    again = brickwork.load(folder)
    assert torch.equal(outputs(again, x), outputs(small, x))
    assert origin_of(again).steps == origin_of(small).steps


@pytest.mark.parametrize("name", ["lenet", "resnet8", "mobilenetv2", "inception_small", "shuffle_small", "vit_small"])
def test_joined_networks_come_back(name, tmp_path):
    models = [randomise(zoo.build(name, num_classes=k, seed=k), k).float() for k in (3, 4)]
    x = torch.randn(zoo.example_input(models[0], batch=1).shape)
    joined = brickwork.join(models, x)
    again = brickwork.load(brickwork.save(joined, tmp_path / "joined"))
    assert torch.equal(outputs(again, x), outputs(joined, x))
    assert outputs(again, x).shape[1] == 7


def test_different_architectures_come_back_as_branches(tmp_path):
    models = [zoo.build("lenet", num_classes=2, seed=0), zoo.build("resnet8", num_classes=3, seed=1)]
    x = torch.randn(1, 3, 32, 32)
    joined = brickwork.join([m.eval() for m in models], x)
    again = brickwork.load(brickwork.save(joined, tmp_path / "both"))
    assert torch.equal(outputs(again, x), outputs(joined, x))


def test_surgery_upon_surgery_comes_back(tmp_path):
    """Cut, join, cut again, permute: the folder replays all of it."""
    parts = []
    for k in range(2):
        model = zoo.build("lenet", num_classes=3, seed=k).eval()
        x = torch.randn(1, 3, 32, 32)
        parts.append(brickwork.trace(model, x).select(model, {"conv2": range(0, 16, 2), "fc1": range(40)}))
    joined = brickwork.join(parts, x)
    bp = brickwork.trace(joined, x)
    final = bp.permute(joined, {"classes": [2, 1, 0, 5, 4, 3]})
    final = brickwork.trace(final, x).select(final, {"classes": [0, 3]})
    again = brickwork.load(brickwork.save(final, tmp_path / "final"))
    assert torch.equal(outputs(again, x), outputs(final, x))
