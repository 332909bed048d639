"""Heads fitted to the networks' own answers: what they reproduce, that nothing else changes, and wrong requests."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from brickwork.algebra.heads import GOALS, own_heads, refit_head
from brickwork.errors import BadModel, RequestError
from brickwork.store import state_hash


def network(seed, classes=4):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, classes)).double().eval()


@pytest.fixture
def pair():
    """Two networks with one trunk and different heads, on inputs that a line divides."""
    first = network(0)
    second = copy.deepcopy(first)
    with torch.no_grad():
        second[2].weight.copy_(first[2].weight[[1, 2, 3, 0]])
        second[2].bias.copy_(first[2].bias[[1, 2, 3, 0]])
    x = torch.randn(400, 6, generator=torch.Generator().manual_seed(1)).double()
    x[:, 0] = x[:, 0].abs() + 3
    other = x.clone()
    other[:, 0] *= -1
    return first, second, x, other


@pytest.mark.parametrize("goal", GOALS)
def test_a_head_of_its_own_answers_as_the_network(pair, goal):
    first, _, x, _ = pair
    trunk = copy.deepcopy(first)
    nn.init.zeros_(trunk[2].weight)
    before = state_hash(trunk), state_hash(first)
    fitted = refit_head(trunk, [first], [x], goal=goal, ridge=1e-7)
    assert (state_hash(trunk), state_hash(first)) == before
    assert torch.equal(fitted[0].weight, trunk[0].weight)
    right = 1.0 if goal != "soft" else 0.9  # probabilities are not linear in the features
    assert float((fitted(x).argmax(1) == first(x).argmax(1)).double().mean()) >= right
    if goal == "logits":
        centred = first(x) - first(x).mean(1, keepdim=True)
        assert (fitted(x) - centred).abs().max() < 1e-3


@pytest.mark.parametrize("goal", GOALS)
def test_one_head_for_two_tasks(pair, goal):
    first, second, x, other = pair
    fitted = refit_head(network(5), [first, second], [x, other], goal=goal)
    both = [float((fitted(s).argmax(1) == n(s).argmax(1)).double().mean()) for n, s in ((first, x), (second, other))]
    assert min(both) > 0.6
    counted = refit_head(network(5), [first, second], [x, other], goal=goal, weights=[50.0, 1.0])
    assert float((counted(x).argmax(1) == first(x).argmax(1)).double().mean()) >= both[0]


def test_own_heads_share_the_trunk(pair):
    first, second, x, other = pair
    heads = own_heads(first, [first, second], [x, other], ridge=1e-9)
    assert torch.equal(heads[0][0].weight, heads[1][0].weight)
    for head, net, images in zip(heads, (first, second), (x, other), strict=True):
        assert bool((head(images).argmax(1) == net(images).argmax(1)).all())


def test_a_head_without_bias_gets_one(pair):
    first, _, x, _ = pair
    trunk = nn.Sequential(copy.deepcopy(first[0]), nn.ReLU(), nn.Linear(16, 4, bias=False)).double()
    assert refit_head(trunk, [first], [x])[2].bias is not None and trunk[2].bias is None


def test_wrong_requests(pair):
    first, second, x, other = pair
    for options, message in (
        ({"goal": "x"}, "goal is 'x'"),
        ({"weights": [1.0]}, "there must be 2"),
        ({"weights": [1.0, 0.0]}, "all above 0"),
        ({"ridge": -1.0}, "ridge is -1.0"),
        ({"temperature": 0.0}, "temperature 0.0"),
    ):
        with pytest.raises(RequestError, match=message):
            refit_head(first, [first, second], [x, other], **options)
    with pytest.raises(RequestError, match="each needs its own"):
        refit_head(first, [first, second], [x])
    with pytest.raises(BadModel, match="no linear layer"):
        refit_head(nn.Sequential(nn.Conv1d(6, 4, 1)).double(), [first], [x])
    with pytest.raises(BadModel, match="worked on further"):
        refit_head(nn.Sequential(*copy.deepcopy(first), nn.Softmax(1)), [first], [x])
    with pytest.raises(BadModel, match="4 outputs, and the networks answer 3"):
        refit_head(first, [network(2, classes=3)], [x])
