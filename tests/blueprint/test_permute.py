"""Permuted == original; a permutation and its inverse give the weights back."""

from __future__ import annotations

import random

import pytest
import torch
from architectures import draw
from checks import axes_of, check_permute, draw_keep, kinds, randomise
from constructs import BAKED, CONSTRUCTS, IMAGE, OUTPUTS, example
from hypothesis import given, settings
from hypothesis import strategies as st

import brickwork
from brickwork import zoo
from brickwork.errors import BrickworkError, RequestError, UnknownName

#: statistics run over a group: a channel that leaves its group changes the function, and is refused
STIFF = {"group_norm", *BAKED}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_constructs(name):
    model = randomise(CONSTRUCTS[name]())
    check_permute(model, example(name), range(3), OUTPUTS.get(name), may_refuse=name in STIFF)


@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**6))
def test_random_architectures(seed):
    drawn = draw(seed)
    check_permute(randomise(drawn.model, seed), drawn.example, range(seed, seed + 1), may_refuse=drawn.stiff)


@pytest.mark.parametrize("name", [n for n in zoo.names() if n not in {"resnet50", "vgg16"}])
def test_zoo(name):
    model = randomise(zoo.build(name, num_classes=5, seed=0))
    check_permute(model, zoo.example_input(model, batch=1).double(), range(1), may_refuse=name == "shuffle_small")


BOTH_WAYS = ["residual", "grouped", "depthwise", "dense", "attention_separate", "flatten"]


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_there_and_back(name):
    """The function and every tensor return, except where a layer keeps an order of its own."""
    model, rng = randomise(CONSTRUCTS[name]()), random.Random(1)
    bp = brickwork.trace(model, example(name))
    order, back = {}, {}
    for space, size in bp.spaces.items():
        free = max(kinds(bp, space, axes_of(bp)), key=len)
        order[space], back[space] = list(range(size)), list(range(size))
        for a, b in zip(free, rng.sample(free, len(free)), strict=True):
            order[space][a], back[space][b] = b, a
    moved = bp.permute(model, order)
    again = brickwork.trace(moved, example(name)).permute(moved, back)
    assert any(not torch.equal(t, moved.state_dict()[n]) for n, t in model.state_dict().items())
    if name != "grouped":  # groups that were broken up come back as a dense layer
        assert all(torch.equal(t, again.state_dict()[n]) for n, t in model.state_dict().items())


def test_classes_follow():
    model = randomise(CONSTRUCTS["chain"]())
    bp, x = brickwork.trace(model, IMAGE), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    moved = bp.permute(model, {"classes": [4, 2, 0, 1, 3]})
    with torch.no_grad():
        # a sum may be taken in another order where its row stands elsewhere
        assert (moved(x) - model(x)[:, [4, 2, 0, 1, 3]]).abs().max() <= 1e-12


def test_permute_then_select_is_select():
    model = randomise(CONSTRUCTS["residual"]())
    bp, x = brickwork.trace(model, IMAGE), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    order = [3, 1, 0, 2, 7, 6, 5, 4]
    moved = bp.permute(model, {"stem.0": order})
    keep = draw_keep(bp, 11)
    keep["stem.0"] = [0, 3, 6]
    there = {**keep, "stem.0": sorted(order.index(k) for k in keep["stem.0"])}
    with torch.no_grad():
        a, b = bp.select(model, keep)(x), brickwork.trace(moved, IMAGE).select(moved, there)(x)
    assert (a - b).abs().max() <= 1e-10


@pytest.mark.parametrize(
    ("order", "error", "message"),
    [
        ({"0.0": [0, 1]}, RequestError, "all its 8 channels"),
        ({"0.0": [0] * 8}, RequestError, "twice"),
        ({"0.0": [*range(7), 8]}, RequestError, "out of range"),
        ({"0.0": ["a"] * 8}, RequestError, "whole numbers"),
        ({"nowhere": [0]}, UnknownName, "nowhere"),
    ],
)
def test_bad_orders(order, error, message):
    model = randomise(CONSTRUCTS["chain"]())
    with pytest.raises(error, match=message):
        brickwork.trace(model, IMAGE).permute(model, order)


def test_what_must_stay_cannot_move():
    model = randomise(CONSTRUCTS["option_a"]())
    bp = brickwork.trace(model, IMAGE)
    fixed = sorted(bp.space("stem.0").fixed)
    free = [k for k in range(8) if k not in fixed]
    order = list(range(8))
    order[fixed[0]], order[free[0]] = free[0], fixed[0]
    with pytest.raises(BrickworkError, match="cannot"):
        bp.permute(model, {"stem.0": order})
