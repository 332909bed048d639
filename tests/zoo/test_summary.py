"""Counts by hand against counts by `summarize`."""

import torch
from torch import nn

from brickwork import zoo
from brickwork.zoo.summary import summarize


def test_lenet_by_hand():
    summary = summarize(zoo.build("lenet", num_classes=10))
    flops = {layer.name: layer.flops for layer in summary.layers}
    assert flops["conv1"] == 2 * 32 * 32 * 6 * 3 * 25
    assert flops["conv2"] == 2 * 16 * 16 * 16 * 6 * 25
    assert flops["fc1"] == 2 * 256 * 120
    assert summary.flops == sum(flops.values())
    assert summary.parameters == sum(layer.parameters for layer in summary.layers) == 44_726
    assert summary.output_shape == (10,)


def test_grouped_convolution_and_attention():
    grouped = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8, bias=False))
    assert summarize(grouped, torch.zeros(1, 8, 5, 5)).flops == 2 * 9 * 8 * 9
    vit = summarize(zoo.build("vit_small", depth=1, dim=6, heads=2, image_size=8, patch_size=4))
    assert vit.flops - sum(layer.flops for layer in vit.layers) == 2 * 2 * 5 * 5 * 6  # QK' and AV, 5 tokens


def test_attention_and_computed_weights_have_rows_and_what_runs_twice_counts_once():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.places = nn.Parameter(torch.zeros(1, 4, 6))
            self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
            self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            x = x + self.places
            x = self.attention(x, x, x, need_weights=False)[0]
            return self.head(self.normed(self.normed(x)).mean(1))

    summary = summarize(Net().eval(), torch.zeros(1, 4, 6))
    rows = [(layer.name, layer.kind, layer.parameters) for layer in summary.layers]
    assert rows == [
        ("attention", "MultiheadAttention", 4 * 6 * 6 + 4 * 6),
        ("normed", "Linear", 6 * 6 + 6 + 6),
        ("normed", "Linear", 0),
        ("head", "Linear", 21),
        ("", "Net", 24),
    ]
    assert sum(layer.parameters for layer in summary.layers) == summary.parameters
    assert sum(layer.flops for layer in summary.layers) == summary.flops  # the attention's own products included


def test_resnet50_is_the_published_four_gmacs():
    summary = summarize(zoo.build("resnet50", stem="imagenet", num_classes=1000))
    assert summary.flops / 2 == 4_089_184_256


def test_the_model_is_left_alone():
    model = zoo.build("lenet").train()
    summarize(model)
    assert model.training
    assert not any(p.is_meta for p in model.parameters())
    assert not any(m._forward_hooks for m in model.modules())


def test_an_operation_that_needs_values():
    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x):
            return self.fc(x) if float(x.sum()) < 1e9 else x

    assert summarize(Picky(), torch.zeros(1, 3)).flops == 12
