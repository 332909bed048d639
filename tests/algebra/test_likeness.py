"""Channels compared by what they answer, and re-basin by it."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.algebra import merge_on, rebasin
from brickwork.algebra.likeness import correlations
from brickwork.errors import BadData, RequestError
from brickwork.origin import Preprocessing, attach, origin_of
from brickwork.store import state_hash

QUIET = {"progress": False}


def lively(name, seed=0, **arguments):
    """A network whose channels all answer: with statistics of no batch and biases of many sizes."""
    net = zoo.build(name, num_classes=4, seed=seed, **arguments).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, tensor in net.state_dict().items():
            if key.endswith("bias") or "running" in key:
                tensor.copy_(torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype) + 0.5)
    return net


def shuffled(bp, seed=0):
    rng, orders = random.Random(seed), {}
    for name, size in bp.spaces.items():
        kinds, order = bp.kinds(name, groups=True), list(range(size))
        for kind in np.unique(kinds) if name != "classes" and not bp.space(name).fixed else ():
            places = np.flatnonzero(kinds == kind).tolist()
            for a, b in zip(places, rng.sample(places, len(places)), strict=True):
                order[a] = b
        orders[name] = order
    return {n: o for n, o in orders.items() if n != "classes"}


#: a flatten; a residual stream; a shuffle with depthwise layers; heads of attention
NETWORKS = {"lenet": {}, "resnet8": {"width": 4}, "shuffle_small": {}, "vit_small": {"dim": 24, "depth": 1}}


@pytest.mark.parametrize("name", NETWORKS)
def test_activations_give_a_permutation_back_exactly(name):
    torch.manual_seed(0)
    net = lively(name, **NETWORKS[name])
    x = torch.randn(20, *zoo.example_input(net, batch=1).shape[1:], dtype=torch.float64)
    bp = brickwork.trace(net, x[:2])
    order = shuffled(bp)
    assert any(o != sorted(o) for o in order.values())
    turned = bp.permute(net, order)
    back = rebasin(net, turned, x, by="activations")
    for key, tensor in net.state_dict().items():
        assert torch.equal(tensor, back.state_dict()[key]), key


def test_correlations_are_those_of_numpy():
    """Of a channel where it is made, and of the same behind its activation and a flatten, on average."""
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Conv2d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2)).double() for _ in range(2)]
    x = torch.randn(40, 1, 3, 3, dtype=torch.float64)
    with torch.no_grad():
        made = [net[0](x).movedim(1, -1).reshape(-1, 3).numpy() for net in nets]
    wanted = sum(np.corrcoef(f(made[0]).T, f(made[1]).T)[:3, 3:] for f in (lambda z: z, lambda z: np.maximum(z, 0)))
    assert abs(correlations(*nets, x, x)["0"] - wanted / 2).max() <= 1e-10


def test_a_channel_that_never_changes_is_like_no_other():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        net[0].weight[1], net[0].bias[1] = 0, 3.7
    x = torch.randn(30, 4)
    found = correlations(net, net, x, x)["0"]
    assert not found[1].any() and not found[:, 1].any() and (found[[0, 2], [0, 2]] > 0.99).all()
    with pytest.raises(BadData, match="activations of 0 became NaN or infinite"):
        correlations(net, net, x / 0, x)


def test_rebasin_by_activations_brings_networks_together():
    """One network twice, the second permuted and with noise on its weights: the mean is about the network again."""
    torch.manual_seed(0)
    net, x = lively("lenet").float(), torch.randn(300, 3, 16, 16)
    bp = brickwork.trace(net, x[:2])
    turned = bp.permute(net, shuffled(bp))
    with torch.no_grad():
        for p in turned.parameters():
            p += 0.1 * p.std() * torch.randn_like(p)
    hashes = state_hash(net), state_hash(turned)
    merged = merge_on([net, turned], [x[:200], x[200:]], "rebasin", by="activations", **QUIET)
    plain = brickwork.merge([net, turned])
    with torch.no_grad():
        errors = [float((m(x) - net(x)).square().mean()) for m in (merged, plain)]
    assert errors[0] < 0.3 * errors[1]
    assert (state_hash(net), state_hash(turned)) == hashes
    again = merge_on([net, turned], [x[:200], x[200:]], "rebasin", by="activations", **QUIET)
    assert state_hash(again) == state_hash(merged) and origin_of(merged).provenance["merge"]["by"] == "activations"


def test_every_network_sees_the_images_in_its_own_way():
    """The second takes images of twice the contrast through half the first weights: the same activations."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 3)).eval()
    bp = brickwork.trace(net, torch.zeros(2, 1, 8, 8))
    turned = bp.permute(net, {"0": [3, 5, 0, 2, 1, 4]})
    with torch.no_grad():  # (x − 0.5)/0.25 = 2·(x − 0.5)/0.5
        turned[0].weight /= 2
    for model, std in ((net, 0.5), (turned, 0.25)):
        attach(model, replace(origin_of(model), preprocessing=Preprocessing((8, 8), 1, (0.5,), (std,))))
    raw = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1), np.uint8)
    merged = merge_on([net, turned], [raw], "rebasin", by="activations", **QUIET)
    assert (merged[0].weight - 0.75 * net[0].weight).abs().max() <= 1e-6


def test_wrong_requests():
    net, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.randn(10, 4)
    with pytest.raises(RequestError, match="by is 'weight'; it must be weights or activations"):
        rebasin(net, net, x, by="weight")
    with pytest.raises(RequestError, match="by is 'weight'; it must be weights or activations"):
        merge_on([net, net], [x], "rebasin", by="weight", **QUIET)


def test_half_precision_does_not_overflow():
    a = lively("lenet", in_channels=1).half()
    b = lively("lenet", seed=1, in_channels=1).half()
    x = 5 + torch.randn(100, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    found, wanted = (
        correlations(*nets, given, given) for nets, given in (((a, b), x.half()), ((a.float(), b.float()), x))
    )
    for space, likeness in wanted.items():
        assert np.isfinite(found[space]).all() and abs(found[space] - likeness).max() < 0.05
