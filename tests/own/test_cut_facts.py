"""What a cut network of somebody's library says of itself is what it is."""

import importlib.util

import pytest
import torch

import brickwork
from brickwork import zoo


@pytest.fixture
def need(request):
    def installed(name):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")

    return installed


def test_a_cut_timm_network_takes_a_new_head(need):
    need("timm")
    net = zoo.build("timm:resnet18", num_classes=5, seed=0)
    blueprint = brickwork.trace(net, torch.zeros(1, 3, 64, 64))
    last = "layer4.0.conv2" if "layer4.0.conv2" in blueprint.spaces else blueprint.axes["fc.weight"][1].text
    small = blueprint.select(net, {last: list(range(331)), "classes": [0, 3]})
    assert (small.num_features, small.num_classes, net.num_features, net.num_classes) == (331, 2, 512, 5)
    small.reset_classifier(7)
    assert small(torch.zeros(2, 3, 64, 64)).shape == (2, 7)


def test_a_transformers_network_of_fewer_classes_is_saved_and_loaded_by_transformers(need, tmp_path):
    need("transformers")
    net = zoo.build("hf:resnet", num_classes=5, embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], seed=0)
    blueprint = brickwork.trace(net, torch.zeros(1, 3, 32, 32))
    small = blueprint.select(net, {"classes": [0, 3]}).model
    assert small.config.num_labels == 2 and net.model.config.num_labels == 5
    small.save_pretrained(tmp_path / "small")
    again = type(small).from_pretrained(tmp_path / "small")
    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(again(x).logits, small(x).logits)
