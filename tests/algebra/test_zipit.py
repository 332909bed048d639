"""ZipIt!: the paper's formula with matrices, networks it merges without loss, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.algebra import merge_on
from brickwork.algebra.zipping import pair_channels
from brickwork.errors import BadModel, RequestError
from brickwork.origin import origin_of
from brickwork.store import state_hash

QUIET = {"progress": False}


def conv_net(seed, channels=4):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, channels, 3),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, groups=2),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, groups=channels),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * channels, 3),
    ).double()


X = torch.randn(80, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def doubled(seed):
    """A network whose channels come in pairs that do the same."""
    net = conv_net(seed, 8)
    with torch.no_grad():
        for k, reads in ((0, False), (2, True), (4, False)):
            for twin in range(0, 8, 2):  # groups are of channels 0–3 and 4–7
                net[k].weight[twin + 1], net[k].bias[twin + 1] = net[k].weight[twin], net[k].bias[twin]
            if reads:
                net[k].weight[:, 1::2] = net[k].weight[:, ::2]
    return net


def test_networks_with_room_to_spare_are_merged_without_loss():
    """Every channel twice in both: pairs are found within, and the merged one gives the mean of both answers."""
    nets = [doubled(0), doubled(1)]
    hashes = [state_hash(net) for net in nets]
    merged = merge_on(nets, [X], "zipit", **QUIET)
    with torch.no_grad():
        wanted = (nets[0](X) + nets[1](X)) / 2
        assert (merged(X) - wanted).abs().max() <= 1e-10
        assert (brickwork.merge(nets)(X) - wanted).abs().max() > 1e-2  # which the mean of the weights does not
        across = merge_on(nets, [X], "zipit", within=0.0, **QUIET)
        assert (across(X) - wanted).abs().max() > 1e-2
    told = origin_of(merged).provenance["merge"]
    assert told["within_a_network"] == {"0": 4, "2": 4} and [state_hash(net) for net in nets] == hashes
    assert state_hash(merge_on(nets, [X], "zipit", **QUIET)) == state_hash(merged)


@pytest.mark.parametrize("name", ["lenet", "resnet8"])
def test_a_network_and_a_permuted_copy_are_the_network_again(name):
    torch.manual_seed(0)
    small = {"width": 4} if name == "resnet8" else {}
    net = zoo.build(name, num_classes=4, seed=0, **small).double().eval()
    with torch.no_grad():
        for key, tensor in net.state_dict().items():
            if key.endswith("bias"):
                tensor.copy_(torch.rand_like(tensor) + 0.5)  # nothing is silent
    x = torch.randn(12, *zoo.example_input(net, batch=1).shape[1:], dtype=torch.float64)
    net = brickwork.algebra.repair(net, x) if name != "lenet" else net
    bp = brickwork.trace(net, x[:2])
    order = {}
    for space, size in bp.spaces.items():
        kinds = bp.kinds(space, groups=True)
        if space != "classes" and not bp.space(space).fixed:
            order[space] = np.arange(size)
            for kind in np.unique(kinds):
                places = np.flatnonzero(kinds == kind)
                order[space][places] = np.roll(places, 1)
    turned = bp.permute(net, {n: o.tolist() for n, o in order.items()})
    merged = merge_on([net, turned], [x], "zipit", **QUIET)
    for key, tensor in net.state_dict().items():
        assert (tensor - merged.state_dict()[key]).abs().max() <= 1e-10, key


def test_it_is_the_papers_formula():
    """W = M · blockdiag(W_a, W_b) · U: M the means of the pairs, U gives each of a pair what they have in common."""
    torch.manual_seed(0)
    a, b = (nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double() for _ in range(2))
    x = torch.randn(60, 5, dtype=torch.float64)
    merged = merge_on([a, b], [x], "zipit", **QUIET)
    with torch.no_grad():
        made = [torch.cat([f(net[0](x)) for net in (a, b)], 1) for f in (lambda z: z, torch.tanh)]
    alike = sum(np.corrcoef(m.T.numpy()) for m in made) / 2
    pairs = pair_channels(alike, np.zeros(8), 1.0)
    means, common = torch.zeros(4, 8).double(), torch.zeros(8, 4).double()
    used = {min(p) for p in pairs if min(p) < 4}
    left = iter(sorted(set(range(4)) - used))
    for i, j in pairs:
        k = i if i < 4 else next(left)
        means[k, [i, j]] = 0.5
        common[[i, j], k] = 1
    first = means @ torch.cat([a[0].weight, b[0].weight])
    last = torch.cat([a[2].weight, b[2].weight], 1) @ common / 2
    assert (merged[0].weight - first).abs().max() <= 1e-12 and (merged[2].weight - last).abs().max() <= 1e-12
    assert (merged[2].bias - (a[2].bias + b[2].bias) / 2).abs().max() <= 1e-12


def test_repair_gives_a_channel_the_statistics_of_its_pair():
    """Of networks with room to spare every pair is one of doubles, whose responses the merged channel has already."""
    nets = [doubled(0), doubled(1)]
    plain = merge_on(nets, [X], "zipit", **QUIET)
    repaired = merge_on(nets, [X], "zipit", repair=True, **QUIET)
    assert all(
        (v - plain.state_dict()[n]).abs().max() <= 1e-10 for n, v in repaired.state_dict().items() if n[0] != "7"
    )
    with torch.no_grad():  # the outputs alone are means of two networks, and are given their spread
        spread = [net(X).std(0, correction=0) for net in (*nets, repaired, plain)]
    assert (spread[2] - (spread[0] + spread[1]) / 2).abs().max() <= 1e-10 and (spread[3] < spread[2]).all()


def test_all_channels_are_paired_within_their_kind():
    rng = np.random.default_rng(0)
    for within in (0.0, 0.3, 1.0):
        alike = rng.normal(size=(14, 14))
        kinds = np.tile([0, 0, 0, 1, 1, 1, 1], 2)
        pairs = pair_channels(alike + alike.T, kinds, within)
        assert sorted(k for pair in pairs for k in pair) == list(range(14))
        assert all(kinds[i] == kinds[j] for i, j in pairs)
        inside = sum((i < 7) == (j < 7) for i, j in pairs)
        assert inside == 0 if within == 0 else inside % 2 == 0


class Masked(nn.Module):
    """Computes the kernel of its convolution in its own forward."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.ones(2, 1, 3, 3, dtype=torch.float64))
        self.register_buffer("mask", torch.ones(2, 1, 3, 3, dtype=torch.float64))

    def forward(self, x):
        return nn.functional.conv2d(x, self.kernel * self.mask).mean((2, 3))


def test_wrong_requests():
    net = conv_net(0)
    up = nn.Sequential(nn.ConvTranspose2d(1, 2, 2), nn.ReLU(), nn.Conv2d(2, 2, 1)).double()
    vit = zoo.build("vit_small", dim=12, depth=1, image_size=8, in_channels=1, seed=0).double()
    for models, options, error, message in (
        ([net], {}, RequestError, "zipit merges 2 models, not 1"),
        ([net] * 3, {}, RequestError, "zipit merges 2 models, not 3"),
        ([net] * 2, {"within": 2}, RequestError, "within is 2; it must be a number from 0 to 1"),
        ([net] * 2, {"weights": [1, 2]}, RequestError, "zipit takes no weights"),
        ([Masked()] * 2, {}, BadModel, "a layer of the top module is neither a plain convolution nor a linear layer"),
        ([up] * 2, {}, BadModel, "0 is neither a plain convolution nor a linear layer"),
        ([vit] * 2, {}, BadModel, "attention, whose heads cannot be zipped"),
    ):
        with pytest.raises(error, match=message):
            merge_on(models, [X], "zipit", **options, **QUIET)
