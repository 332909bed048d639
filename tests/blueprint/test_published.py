"""Models nobody here wrote: timm's and transformers', where those are installed."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from checks import check_join, check_permute, check_select, randomise

from brickwork import zoo

TIMM = {
    "resnet18": {},
    "resnext50_32x4d": {"layers": [1, 1, 1, 1]},
    "efficientnet_b0": {},
    "convnext_atto": {},
    "vit_tiny_patch16_224": {"image_size": 32, "depth": 2},
    "densenet121": {"block_config": [2, 2, 2, 2]},
}
HF = {
    "vit": {
        "image_size": 16,
        "patch_size": 8,
        "hidden_size": 24,
        "num_attention_heads": 3,
        "num_hidden_layers": 2,
        "intermediate_size": 32,
    },
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 12], "depths": [1, 2], "layer_type": "basic"},
    "convnext": {"hidden_sizes": [8, 12], "depths": [1, 2], "num_stages": 2, "image_size": 32},
}
LARGE = {"resnext50_32x4d", "efficientnet_b0", "densenet121"}


def build(which: str, classes: int = 6) -> torch.nn.Module:
    source, _, name = which.partition(":")
    args = TIMM[name] if source == "timm" else HF[name]
    return randomise(zoo.build(which, num_classes=classes, seed=0, **args), classes)


def image(which: str) -> torch.Tensor:
    side = 16 if which == "hf:vit" else 32
    return torch.zeros(1, 3, side, side, dtype=torch.float64)


@pytest.fixture(params=[*(f"timm:{n}" for n in TIMM), *(f"hf:{n}" for n in HF)])
def which(request):
    needed = ("timm", "torchvision") if request.param.startswith("timm:") else ("transformers",)
    if any(importlib.util.find_spec(package) is None for package in needed):
        pytest.skip(f"needs the extra {request.param.partition(':')[0]}")
    return request.param


def test_select(which):
    assert check_select(build(which), image(which), range(1))


def test_permute(which):
    if which.partition(":")[2] in LARGE:
        pytest.skip("large; the zoo and the constructs cover it")
    check_permute(build(which), image(which), range(1))


def test_join(which):
    if which.partition(":")[2] in LARGE:
        pytest.skip("large; the zoo and the constructs cover it")
    check_join([build(which, 3), build(which, 4)], image(which), "auto")


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs the extra hf")
def test_a_network_that_was_asked_for_its_hidden_states_once():
    """transformers then leaves hooks in it for good; they change nothing."""
    model, x = build("hf:vit"), image("hf:vit")
    next(module for module in model.modules() if hasattr(module, "config"))(x, output_hidden_states=True)
    assert any(module._forward_hooks for module in model.modules())
    assert check_select(model, x, range(1))
