"""Joined == the parts' outputs side by side; one part cut out of a joined network == that part."""

from __future__ import annotations

import pytest
import torch
from architectures import draw
from checks import TOLERANCE, call, check_join, difference, draw_keep, fill, randomise, twins
from constructs import CONSTRUCTS, IMAGE, OUTPUTS, TOKENS, example
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.blueprint.parts import Branches
from brickwork.errors import BrickworkError, RequestError

#: constructs that are joined layer by layer; the others may run as branches
WOVEN = {
    "chain",
    "residual",
    "projection",
    "preactivation",
    "depthwise",
    "depthwise_2",
    "grouped",
    "concat",
    "dense",
    "gate",
    "transposed",
    "dilated",
    "flatten",
    "called_twice",
    "group_norm",
    "layer_norm",
    "dropout",
    "arithmetic",
    "attention",
    "attention_separate",
    "segmentation",
    "returns_tuple",
    "returns_dict",
    "returns_dataclass",
    "conv1d",
    "prelu",
}


@pytest.mark.parametrize("how", ["auto", "branches"])
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_side_by_side(name, how):
    models = twins(CONSTRUCTS[name], 3)
    joined = check_join(models, example(name), how, OUTPUTS.get(name))
    if how == "branches" or name in WOVEN:
        assert isinstance(joined, Branches) == (how == "branches")


@pytest.mark.parametrize("name", sorted(WOVEN))
def test_woven(name):
    joined = check_join(twins(CONSTRUCTS[name]), example(name), "blocks", OUTPUTS.get(name))
    assert not isinstance(joined, Branches)


@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**6))
def test_random_architectures(seed):
    models = [randomise(draw(seed).model, k) for k in range(2)]
    check_join(models, IMAGE, "auto")


@settings(max_examples=5, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**6))
def test_parts_of_different_widths(seed):
    """Cut two networks of one architecture differently, then join what is left."""
    parts = []
    for k in range(2):
        model = randomise(draw(seed, without={"shuffled", "halves", "attended"}).model, k)
        bp = brickwork.trace(model, IMAGE)
        parts.append(bp.select(model, draw_keep(bp, seed + k)))
    x = fill(IMAGE, seed)
    joined = brickwork.join(parts, IMAGE)
    assert difference(call(joined, x), torch.cat([call(p, x) for p in parts], 1)) <= TOLERANCE


@pytest.mark.parametrize("name", [n for n in zoo.names() if n not in {"resnet50", "vgg16"}])
def test_zoo(name):
    models = [randomise(zoo.build(name, num_classes=n, seed=0), n) for n in (3, 4)]
    check_join(models, zoo.example_input(models[0], batch=1).double(), "auto")


@pytest.mark.parametrize("name", ["chain", "residual", "depthwise", "grouped", "concat", "gate", "flatten", "conv1d"])
def test_a_part_comes_back(name):
    """Select of one part's channels out of the joined network gives that part."""
    parts, x = twins(CONSTRUCTS[name]), fill(example(name), 8)
    joined = brickwork.join(parts, example(name), how="blocks")
    bp = brickwork.trace(joined, example(name))
    first = brickwork.trace(parts[0], example(name))
    keep = {space: range(first.spaces[space]) for space in bp.spaces}
    assert set(bp.spaces) == set(first.spaces)
    assert difference(call(bp.select(joined, keep), x), call(parts[0], x)) <= TOLERANCE
    rest = {space: range(first.spaces[space], bp.spaces[space]) for space in bp.spaces}
    assert difference(call(bp.select(joined, rest), x), call(parts[1], x)) <= TOLERANCE


def test_cut_then_join_is_the_whole():
    """Two class parts that keep every channel: side by side they are the original's logits."""
    model = randomise(CONSTRUCTS["residual"]())
    bp, x = brickwork.trace(model, IMAGE), fill(IMAGE)
    parts = [bp.select(model, {"classes": c}) for c in ([0, 1], [2, 3, 4])]
    assert difference(call(brickwork.join(parts, IMAGE), x), call(model, x)) <= TOLERANCE


def test_joined_networks_join_again():
    models, x = twins(CONSTRUCTS["chain"], 3), fill(IMAGE)
    pair = brickwork.join(models[:2], IMAGE)
    three = brickwork.join([pair, models[2]], IMAGE)
    assert difference(call(three, x), torch.cat([call(m, x) for m in models], 1)) <= TOLERANCE


def test_cost_is_the_sum():
    """k joined parts cost k parts, not k²."""
    models = twins(CONSTRUCTS["chain"], 4)
    joined = brickwork.join(models, IMAGE, how="blocks")
    assert sum(p.numel() for p in joined.parameters()) == sum(p.numel() for m in models for p in m.parameters())


def test_one_model_and_other_architectures():
    a, b = randomise(CONSTRUCTS["chain"]()), randomise(CONSTRUCTS["gate"]())
    x = fill(IMAGE)
    assert difference(call(brickwork.join([a], IMAGE), x), call(a, x)) == 0
    both = brickwork.join([a, b], IMAGE)
    assert isinstance(both, Branches)
    assert difference(call(both, x), torch.cat([call(a, x), call(b, x)], 1)) <= TOLERANCE
    with pytest.raises(BrickworkError, match="another structure"):
        brickwork.join([a, b], IMAGE, how="blocks")


class Tagger(nn.Module):
    """Classes of every token."""

    def __init__(self, behind: nn.Module | None = None) -> None:
        super().__init__()
        self.one, self.two, self.behind = nn.Linear(6, 8), nn.Linear(8, 3), behind or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.behind(self.two(torch.relu(self.one(x))))


@pytest.mark.parametrize("how", ["blocks", "branches"])
def test_classes_of_tokens_lie_behind_each_other_and_not_the_tokens(how):
    models, x = twins(Tagger), fill(TOKENS)
    joined = brickwork.join(models, TOKENS, how=how)
    assert difference(call(joined, x), torch.cat([call(m, x) for m in models], 2)) <= TOLERANCE


def test_outputs_whose_classes_cannot_be_told_from_their_places():
    with pytest.raises(BrickworkError, match="which axis of the output"):
        brickwork.join(twins(lambda: Tagger(nn.Softmax(-1))), TOKENS)
    turned = twins(lambda: nn.Sequential(Tagger(), nn.Flatten(1), nn.Unflatten(1, (3, 5))))
    with pytest.raises(BrickworkError, match="axis"):
        brickwork.join([twins(Tagger)[0], turned[0]], TOKENS)


@pytest.mark.parametrize(("models", "how"), [([], "auto"), ([None], "auto"), (["chain"], "sideways")])
def test_bad_requests(models, how):
    models = [m and randomise(CONSTRUCTS[m]()) for m in models]
    with pytest.raises(RequestError):
        brickwork.join(models, IMAGE, how=how)
