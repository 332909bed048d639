"""Turning the dimensions of heads: the same function, and the first dimensions say most."""

import copy

import pytest
import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.blueprint.open_heads import open_heads
from brickwork.errors import BadData
from brickwork.moments.heads import turn_heads


def network(dim=24, heads=3):
    torch.manual_seed(0)
    net = zoo.build("vit_small", num_classes=4, image_size=16, patch_size=4, dim=dim, heads=heads, depth=2)
    net = net.double().eval()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.randn(12, 3, 16, 16, dtype=torch.float64)
    return open_heads(net, x), x


def test_the_function_stays_and_what_dimensions_say_falls():
    net, x = network()
    before = copy.deepcopy(net.state_dict())
    turned, said = turn_heads(net, x.split(5))
    assert (turned(x) - net(x)).abs().max() < 1e-10
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert list(said) == ["blocks.0.attn", "blocks.1.attn"]
    for energy in said.values():
        assert energy.shape == (3, 8) and (energy.diff(dim=1) <= 0).all() and energy.min() >= 0


def scores(net, x):
    """What the first attention compares, each image's mean over its keys taken away: it changes no weight."""
    made = {}
    attention = net.blocks[0].attn
    hooks = [
        getattr(attention, kind).register_forward_hook(lambda _m, _i, out, kind=kind: made.update({kind: out}))
        for kind in "qk"
    ]
    net(x)
    for hook in hooks:
        hook.remove()
    q, k = (made[kind].unflatten(-1, (attention.num_heads, -1)).transpose(1, 2) for kind in "qk")
    return q @ (k - k.mean(2, keepdim=True)).mT


@pytest.mark.parametrize("left", [1, 3, 6])
def test_the_scores_lose_what_was_foretold_and_less_than_by_dropping_dimensions(left):
    net, x = network()
    turned, said = turn_heads(net, [x])
    bp = brickwork.trace(turned, x)
    keep = {"blocks.0.attn.q": [8 * head + k for head in range(3) for k in range(left)]}
    whole = scores(net, x)
    lost = (scores(bp.select(turned, keep), x) - whole).square().sum((0, 2, 3))
    dropped = (scores(bp.select(net, keep), x) - whole).square().sum((0, 2, 3))
    assert (lost < dropped).all()
    # the moments are those of any query with any key, so that the sum foretold is of as many independent pairs
    tokens = 17
    foretold = said["blocks.0.attn"][:, left:].sum(1) * len(x) * tokens**2
    assert (lost <= 2 * foretold).all()


def test_values_hold_their_variance_in_the_first_dimensions():
    net, x = network()
    turned, _ = turn_heads(net, [x])
    attention, seen = turned.blocks[0].attn, {}
    hook = attention.out.register_forward_pre_hook(lambda _m, inputs: seen.update(mixed=inputs[0]))
    turned(x)
    hook.remove()
    mixed = seen["mixed"].unflatten(-1, (3, 8)).flatten(0, 1)
    for head in range(3):
        own = mixed[:, head] - mixed[:, head].mean(0)
        covariance = own.mT @ own / len(own)
        assert (covariance - torch.eye(8)).abs().max() < 1e-3  # but for the floor under small variances
    rows = attention.out.weight.unflatten(1, (3, 8)).permute(1, 2, 0)
    norms = rows.norm(dim=2)
    assert (norms.diff(dim=1) <= 1e-9).all()
    gram = rows @ rows.mT
    assert (gram - torch.diag_embed(gram.diagonal(dim1=1, dim2=2))).abs().max() < 1e-8


def test_a_last_layer_narrower_than_a_head():
    net, x = network(dim=4, heads=1)
    turned, _ = turn_heads(net, [x])
    assert (turned(x) - net(x)).abs().max() < 1e-10


def test_numbers_that_are_none_are_refused_by_layer_and_batch():
    net, x = network()
    bad = x.clone()
    bad[7, 0, 0, 0] = float("nan")
    with pytest.raises(BadData, match=r"activations at blocks.0.attn.q became NaN or infinite in batch 1"):
        turn_heads(net, bad.split(5))
    with torch.no_grad():
        net.blocks[1].attn.k.weight[0, 0] = float("inf")
    with pytest.raises(BadData, match=r"activations at blocks.1.attn.k became NaN or infinite in batch 0"):
        turn_heads(net, x.split(5))


def test_squares_of_halves_do_not_overflow():
    net, x = network()
    with torch.no_grad():
        net.blocks[0].attn.q.bias += 300  # 300² is more than float16 holds
    net, x = net.half(), x.half()
    turned, said = turn_heads(net, [x])
    assert all(energy.isfinite().all() for energy in said.values())
    assert all(p.isfinite().all() for p in turned.parameters())


def test_an_attention_that_is_not_called_is_left_as_it_is():
    net, x = network()
    net.spare = copy.deepcopy(net.blocks[0].attn)
    turned, said = turn_heads(net, [x])
    assert list(said) == ["blocks.0.attn", "blocks.1.attn"]
    assert torch.equal(turned.spare.q.weight, net.spare.q.weight)
