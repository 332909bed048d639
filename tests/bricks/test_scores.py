"""Scores against ones computed by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork.bricks.attribution import REGISTRY, margin
from brickwork.bricks.scores import score_channels
from brickwork.errors import BadData, UnknownName
from brickwork.origin import origin_of


@pytest.fixture
def tiny():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    x = torch.randn(30, 3, dtype=torch.float64)
    return net, brickwork.trace(net, x[:2]), x, torch.arange(30) % 2


def test_taylor_by_hand(tiny):
    net, bp, x, y = tiny
    found = score_channels(net, bp, x, y, batch_size=30, progress=False).scores["0"]
    a = net[0](x).detach().requires_grad_()
    logits = net[2](a.relu())
    own, other = logits[torch.arange(30), y], logits[torch.arange(30), 1 - y]
    (own - other).sum().backward()
    each = (a * a.grad).abs().detach()
    expected = np.stack([each[y == c].sum(0).numpy() for c in (0, 1)]) / each.sum().item() / 15
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_every_layer_weighs_the_same(tiny):
    net, bp, x, y = tiny
    found = score_channels(net, bp, x, y, batch_size=30, progress=False)
    assert sum((t * found.counts[:, None]).sum() for t in found.scores.values()) == pytest.approx(1)
    assert list(found.scores) == ["0"] and found.counts.tolist() == [15, 15]


@pytest.mark.parametrize("name", REGISTRY)
def test_the_registry(tiny, name):
    net, bp, x, y = tiny
    before = {k: v.clone() for k, v in net.state_dict().items()}
    net.train()
    found = score_channels(net, bp, x, y, attribution=name, progress=False)
    assert all(np.isfinite(t).all() and (t >= 0).all() for t in found.scores.values())
    assert net.training and all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert REGISTRY[name].about


def test_margin_of_one_logit():
    assert margin(torch.tensor([[3.0]]), torch.tensor([0])).item() == 3


def test_unknown_attribution_and_no_images(tiny):
    net, bp, x, y = tiny
    with pytest.raises(UnknownName, match="did you mean 'taylor'"):
        score_channels(net, bp, x, y, attribution="tailor")
    with pytest.raises(BadData, match="no images"):
        score_channels(net, bp, x[:0], y[:0])


def test_contribution_by_hand():
    net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, -1.0]]))
        net[2].weight.copy_(torch.tensor([[1.0, 3.0, -1.0], [0.5, -1.0, 2.0]]))
    x, y = torch.tensor([[1.0, 1.0], [3.0, 1.0]]), torch.tensor([0, 1])
    scores = score_channels(net, brickwork.trace(net, x), x, y, attribution="contribution", progress=False)
    # hidden responses: (1, 2, 0) for class 0 and (3, 2, 2) for class 1; only what is added counts
    first, second = np.array([1.0, 6.0, 0.0]) / 7, np.array([1.5, 0.0, 4.0]) / 5.5
    assert np.allclose(scores.scores["0"], np.stack([first, second]) / 2)


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(3, 4, 3, padding=1, stride=2),
        nn.Conv2d(3, 4, 1, stride=2),
        nn.Conv2d(4, 6, 3, groups=2),
        nn.Conv2d(4, 8, 3, groups=4, dilation=2),
    ],
)
def test_contribution_of_a_convolution(conv, monkeypatch):
    """Against the plain definition: one input channel and one output channel at a time."""
    from brickwork.bricks import contribution

    net = nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)).double()
    x = torch.randn(5, conv.in_channels, 7, 7, dtype=torch.float64)
    net(x)
    y = torch.tensor([0, 1, 0, 1, 1])
    layer = contribution.find_layers(brickwork.trace(net, x).graph, net)[0]
    one_hot = nn.functional.one_hot(y, 2).double()
    found = contribution._flow(layer, conv, x, one_hot)
    wanted = torch.zeros_like(found)
    per = conv.in_channels // conv.groups
    for q in range(conv.in_channels):
        only = torch.zeros_like(x)
        only[:, q] = x[:, q]
        parts = nn.functional.conv2d(only, conv.weight, None, conv.stride, conv.padding, conv.dilation, conv.groups)
        for c in range(2):
            wanted[c, :, q] = parts[y == c].clamp(min=0).sum((0, 2, 3))
    assert (found - wanted).abs().max() <= 1e-10 and per >= 1
    monkeypatch.setattr(contribution, "AT_ONCE", 1)  # one channel at a time
    assert (contribution._flow(layer, conv, x, one_hot) - wanted).abs().max() <= 1e-10


@pytest.mark.parametrize("name", REGISTRY)
def test_batches_do_not_matter(nets, digits, name):
    """A channel's score is a mean over images, however they are cut into batches."""
    images, labels = digits["A"].tensors("train", origin_of(nets["A"]).preprocessing)
    images, labels = images[:89].double(), labels[:89]  # a prime number: some batch is filled up
    net = copy.deepcopy(nets["A"]).double()
    bp = brickwork.trace(net, images[:2])
    found = [
        score_channels(net, bp, images, labels, attribution=name, batch_size=size, progress=False) for size in (90, 17)
    ]
    for space, table in found[0].scores.items():
        assert np.allclose(table, found[1].scores[space], rtol=1e-9, atol=1e-12)
        assert table.any()


@pytest.mark.parametrize("at", ["layer", "norm", "activation", None])
def test_where_the_derivative_is_taken(at):
    """In front of the batch norm, behind it, behind the activation; the paper's attribution: in front."""
    torch.manual_seed(0)
    conv, norm, head = nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.Linear(6, 3)
    norm.running_mean.normal_(), norm.running_var.uniform_(0.5, 2), norm.weight.data.uniform_(-1, 1)
    net = nn.Sequential(conv, norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head).double().eval()
    with torch.no_grad():
        head.weight.mul_(20)  # sure of many
    x = torch.randn(200, 2, 6, 6, dtype=torch.float64)
    y = net(x).argmax(1)
    made = {"layer": conv(x), "norm": norm(conv(x)), "activation": norm(conv(x)).relu()}[at or "layer"].detach()
    made.requires_grad_()
    behind = {"layer": net[1:], "norm": net[2:], "activation": net[3:]}[at or "layer"]
    sure = behind(made).softmax(1).gather(1, y[:, None])[:, 0]
    (sure * (sure > 0.9).detach()).sum().backward()
    by_image = made.grad.clamp(min=0).sum((2, 3))
    wanted = torch.stack([by_image[y == k].sum(0) / max(1, int(((y == k) & (sure > 0.9)).sum())) for k in range(3)])
    bp = brickwork.trace(net, x[:2])
    scores = score_channels(net, bp, x, y, attribution="frat", at=at, batch_size=50, progress=False).scores["0"]
    np.testing.assert_allclose(scores / scores.sum(), (wanted / wanted.sum()).numpy(), rtol=1e-9)


class Repeated(nn.Module):
    """A block that runs three times; every other channel within it is nearly nothing."""

    def __init__(self, stem_once: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.head, self.once = nn.Conv2d(3, 12, 3, padding=1), nn.Linear(12, 4), stem_once
        self.up, self.down = nn.Conv2d(12, 24, 3, padding=1), nn.Conv2d(24, 12, 1)
        with torch.no_grad():
            self.up.weight[::2] *= 30  # large in the one layer, and next to nothing in the other
            self.down.weight[:, ::2] *= 1e-4

    def features(self, x):
        x = self.stem(x).relu()
        for _ in range(3):
            x = x + self.down(self.up(x).relu())
        return self.head(x.mean((2, 3)))

    def forward(self, x):
        return self.features(x) if self.once else (self.features(x) + self.features(x.flip(3))) / 2


@pytest.mark.parametrize("stem_once", [True, False])
@pytest.mark.parametrize("how", [{"keep": 0.5}, {"budget": 0.6}, {"keep": 0.5, "attribution": "taylor"}])
def test_channels_of_layers_that_run_more_than_once_go_by_their_weights(stem_once, how):
    net, x = Repeated(stem_once).eval(), torch.randn(80, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    brick = brickwork.compress(net, (x, torch.arange(80) % 4), **how, progress=False)
    kept = brick.kept["up"]
    assert sum(k % 2 for k in kept) == min(12, len(kept)) and len(kept) < 24


def test_a_class_that_the_network_never_answers_is_no_hindrance():
    net, x = Repeated(True).eval(), torch.randn(80, 3, 8, 8)
    with torch.no_grad():
        net.head.bias[3] = -1e3
    assert brickwork.compress(net, x, keep=0.5, progress=False).parameters < 1
