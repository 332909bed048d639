"""Folders of other libraries' networks whose building or loading has something of its own."""

import copy
import importlib.util

import pytest
import torch
from torch import fx, nn

import brickwork
from brickwork import zoo
from brickwork.origin import Origin, attach, origin_of


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="needs the extra timm")
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    "arch",
    [
        "torchvision:regnet_y_400mf",  # looks at its values while it is built
        "torchvision:mnasnet0_5",  # asks which version its tensors are of
        "torchvision:shufflenet_v2_x0_5",  # a cut one is a torch.fx module
    ],
)
def test_a_folder_gives_the_network_back(arch, cut, tmp_path):
    model, x = zoo.build(arch, num_classes=4).eval(), torch.rand(2, 3, 64, 64)
    if cut:
        bp = brickwork.trace(model, x)
        free = next(name for name, size in bp.spaces.items() if size > 8 and not bp.space(name).fixed)
        model = copy.deepcopy(bp.select(model, {free: range(0, bp.spaces[free], 2)}))  # a repair copies, too
    brickwork.save(model, tmp_path / "model")
    loaded = brickwork.load(tmp_path / "model")
    assert origin_of(loaded).arch == arch
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))


def test_copies_of_fx_modules_keep_their_record():
    model = fx.symbolic_trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    attach(model, Origin(classes=("a", "b", "c")))
    twin = copy.deepcopy(model)
    assert origin_of(twin).classes == ("a", "b", "c")
    attach(twin, Origin(classes=("d", "e", "f")))
    assert origin_of(model).classes == ("a", "b", "c") and origin_of(copy.deepcopy(twin)).classes == ("d", "e", "f")
