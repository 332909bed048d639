"""Weights that are computed at run time give way to plain ones, where the answers are the same."""

import copy
import json
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

import brickwork
from brickwork.blueprint.computed_weights import PaddedConv2d, plain_again, plain_layers, plain_weights
from brickwork.errors import RequestError, Unsupported
from brickwork.origin import Origin, attach


class Standardised(nn.Conv2d):
    """As people write it themselves."""

    def forward(self, x):
        w = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        w = w / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, w, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Gained(nn.Conv2d):
    """With a gain of its own, and padding by the size of the image, as timm's NFNets."""

    def __init__(self, *sizes, **how):
        super().__init__(*sizes, **how)
        self.gain = nn.Parameter(torch.rand(self.out_channels, 1, 1, 1) + 0.5)

    def forward(self, x):
        flat = self.weight.reshape(1, self.out_channels, -1)
        w = F.batch_norm(flat, None, None, (self.gain * 0.3).view(-1), training=True, momentum=0.0).reshape_as(
            self.weight
        )
        for axis, (kernel, step) in enumerate(zip(self.kernel_size, self.stride, strict=True)):
            needed = max(0, (-(-x.shape[2 + axis] // step) - 1) * step + kernel - x.shape[2 + axis])
            pads = [needed // 2, needed - needed // 2]
            x = F.pad(x, [0, 0, *pads] if axis == 0 else pads)
        return F.conv2d(x, w, self.bias, self.stride, 0, self.dilation, self.groups)


class Around(nn.Module):
    """A module that is no convolution and holds one, which is never called."""

    def __init__(self, *sizes, **how):
        super().__init__()
        self.held = nn.Conv2d(*sizes, **how)

    def forward(self, x):
        w = F.normalize(self.held.weight.flatten(1)).view_as(self.held.weight)
        return F.conv2d(x, w, self.held.bias, padding="same")


MAKERS = {
    "standardised": lambda a, b: Standardised(a, b, 3, padding=1, stride=2),
    "grouped": lambda a, b: Standardised(a, b, 3, padding=1, groups=2, bias=False),
    "gained": lambda a, b: Gained(a, b, 3, stride=2),
    "around": lambda a, b: Around(a, b, 3),
    "weight norm": lambda a, b: parametrizations.weight_norm(nn.Conv2d(a, b, 3)),
    "spectral norm": lambda a, b: parametrizations.spectral_norm(nn.Conv2d(a, b, 3)),
    "old weight norm": lambda a, b: nn.utils.weight_norm(nn.Conv2d(a, b, 3)),
    "old spectral norm": lambda a, b: nn.utils.spectral_norm(nn.Conv2d(a, b, 3)),
    "pruned": lambda a, b: prune.l1_unstructured(nn.Conv2d(a, b, 3), "weight", 0.3),
}


def network(make, width=12):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's older ways are to go one day
        layers = [
            make(4, width),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            make(width, width),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3)).eval()


@pytest.fixture(scope="module")
def images():
    return torch.rand(60, 4, 9, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", MAKERS)
def test_the_plain_network_answers_the_same_to_the_last_bit(name, images):
    net = network(MAKERS[name])
    before = copy.deepcopy(net.state_dict())
    with torch.no_grad():
        wanted = net(images[:4])
        plain = plain_weights(net, images[:2])
        assert torch.equal(plain(images[:4]), wanted) and plain_layers(plain) == ["0", "3"]
        assert torch.equal(plain(images[:1, :, 1:, 2:]), net(images[:1, :, 1:, 2:]))
    assert type(plain[0]) is (PaddedConv2d if name == "gained" else nn.Conv2d)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert plain_weights(plain, images[:2]) is plain
    bp = brickwork.trace(plain, images[:2])
    assert not any(bp.space(space).fixed for space in bp.spaces)


@pytest.mark.parametrize("name", MAKERS)
def test_such_a_network_is_cut_repaired_saved_and_loaded(tmp_path, name, images):
    net = network(MAKERS[name])
    brick = brickwork.compress(net, images, budget=0.5, progress=False)
    same = brickwork.compress(attached(plain_weights(net, images[:2])), images, budget=0.5, progress=False)
    assert brick.kept == same.kept and 0 < brick.parameters <= 0.5
    torch.testing.assert_close(brick.model(images[:4]), same.model(images[:4]), rtol=0, atol=0)
    brick.save(tmp_path / "brick")
    again = brickwork.load(tmp_path / "brick", arch=lambda: network(MAKERS[name]))
    torch.testing.assert_close(again(images[:4]), brick.model(images[:4]), rtol=0, atol=0)
    assert json.loads((tmp_path / "brick" / "config.json").read_text())["brickwork"]


def attached(model):
    """The same without its record, as one that was built so."""
    attach(model, Origin())
    return model


class ByImage(nn.Conv2d):
    def forward(self, x):
        return F.conv2d(x, self.weight * x.mean(), self.bias)


class Further(nn.Conv2d):
    def forward(self, x):
        return F.conv2d(x, F.normalize(self.weight), self.bias) + x.mean()


def read_from_outside(a, b):
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Gained(a, b, 3)

        def forward(self, x):
            return self.inner(x) * self.inner.gain.mean()

    return Reads()


@pytest.mark.parametrize("make", [lambda a, b: ByImage(a, b, 3), lambda a, b: Further(a, b, 3), read_from_outside])
def test_what_a_plain_convolution_does_not_answer_stays(make, images):
    net = network(make)
    assert plain_weights(net, images[:2]) is net


def test_what_is_shared_stays(images):
    net = network(MAKERS["standardised"])
    other = Standardised(12, 12, 3, padding=1, stride=2)
    other.weight = net[3].weight
    shared = nn.Sequential(*net[:4], other, *net[4:])
    assert plain_layers(plain_weights(shared, images[:2])) == ["0"]
    twice = nn.Sequential(*net[:4], net[3], *net[4:])
    assert plain_layers(plain_weights(twice, images[:2])) == ["0"]


def test_what_is_frozen_stays_frozen_and_what_trains_trains(images):
    net = network(MAKERS["standardised"]).train()
    net[0].requires_grad_(False)
    plain = plain_weights(net, images[:2])
    assert not plain[0].weight.requires_grad and plain[3].weight.requires_grad and plain[0].training


def test_info_says_so():
    net = network(MAKERS["gained"])
    found = brickwork.info(net, input_shape=(4, 9, 8), dry_run=["0=0-5"])
    assert found.to_dict()["computed_weights"] == ["0", "3"] and found.dry_run["spaces"] == {"0": [12, 6]}
    assert "the weights of 2 layers (0, 3) are computed" in str(found)
    assert "computed" not in str(brickwork.info(network(lambda a, b: nn.Conv2d(a, b, 3)), input_shape=(4, 9, 8)))


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"9": {"computed": ["weight"]}}, "names '9', which the network has not"),
        ({"7": {"computed": ["weight"]}}, r"makes \['weight'\] of '7' plain, and they are"),
        ({"7": {"like": "weight"}}, "names '7', which is no convolution"),
        ({"1": {"like": "gain"}}, "names '1', which is no convolution"),
    ],
)
def test_a_record_of_another_network_is_refused(record, told):
    with pytest.raises(Unsupported, match=told):
        plain_again(network(MAKERS["standardised"]), record)


def test_a_configuration_has_no_plain_layers(images):
    net = network(MAKERS["standardised"])
    attach(net, Origin(arch="timm:resnetv2_50x1_bit"))
    with pytest.raises(RequestError, match=r"resnetv2_50x1_bit builds, which compute their weights \(0, for one\)"):
        brickwork.compress(net, images, budget=0.5, uniform=True, progress=False)
