"""Cut out == the whole with the other channels zeroed (float64), for every construct and random networks."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from architectures import draw
from checks import TOLERANCE, call, check_select, difference, draw_keep, fill, randomise, restricted
from constructs import BAKED, CONSTRUCTS, IMAGE, OUTPUTS, Net, block, conv, example, linear, pooled
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.errors import Unsupported

SLOW = {"resnet50", "vgg16", "resnet18", "mobilenetv2", "fcn8s"}


@pytest.mark.parametrize("name", [n for n in CONSTRUCTS if n != "attention_one_head"])
def test_constructs(name):
    model = randomise(CONSTRUCTS[name]())
    accepted = check_select(model, example(name), range(6), OUTPUTS.get(name), may_refuse=name in BAKED)
    assert accepted >= (1 if name in BAKED else 3)


def test_one_head_stays_whole():
    """Its forward fixes the head's size: the stream can be cut, the head cannot, though both are as wide."""
    model, x = randomise(CONSTRUCTS["attention_one_head"]()), example("attention_one_head")
    bp = brickwork.trace(model, x)
    keep = {"embed": [0, 3, 4, 7, 11]}
    small, inputs = bp.select(model, keep), fill(x, 1)
    assert difference(call(small, inputs), call(bp.zero(model, keep), inputs)) <= TOLERANCE
    with pytest.raises(Unsupported):
        bp.select(model, {"v": range(5)})


@settings(max_examples=10, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**6))
def test_random_architectures(seed):
    drawn = draw(seed)
    check_select(randomise(drawn.model, seed), drawn.example, range(seed, seed + 2), may_refuse=drawn.stiff)


@pytest.mark.parametrize("name", zoo.names())
def test_zoo(name):
    model = randomise(zoo.build(name, num_classes=7, seed=0))
    x = zoo.example_input(model, batch=1).double()
    seeds = range(1) if name in SLOW else range(2)
    check_select(model, x, seeds, may_refuse=name in {"shuffle_small"})


# -- zero() against references that know nothing of blueprints ------------------------------------------


def silenced(model: nn.Module, where: dict[str, list[int]], x: torch.Tensor) -> torch.Tensor:
    """The model with some channels of some modules' outputs set to 0 while it runs."""

    def silence(gone):
        def hook(module, args, result):
            result = result.clone()
            result[:, gone] = 0
            return result

        return hook

    handles = [model.get_submodule(p).register_forward_hook(silence(gone)) for p, gone in where.items()]
    try:
        return call(model, x)
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize("seed", range(3))
def test_chain_against_hooks(seed):
    model = randomise(CONSTRUCTS["chain"](), seed)
    bp = brickwork.trace(model, IMAGE)
    rng, x = random.Random(seed), fill(IMAGE, seed)
    gone = {"0.0": rng.sample(range(8), 3), "1.0": rng.sample(range(6), 2)}
    keep = {space: [k for k in range(bp.spaces[space]) if k not in g] for space, g in gone.items()}
    wanted = silenced(model, {"0.2": gone["0.0"], "1.2": gone["1.0"]}, x)
    assert difference(call(bp.zero(model, keep), x), wanted) <= TOLERANCE
    assert difference(call(bp.select(model, keep), x), wanted) <= TOLERANCE


def test_residual_against_hooks():
    """The stream of a residual network: a channel is silent in the stem and in what every block adds."""
    model = Net(
        lambda s, x: (lambda h: s.head(pooled(h + s.a(h))))(s.stem(x)),
        stem=block(3, 8),
        a=nn.Sequential(block(8, 6), conv(6, 8)),
        head=linear(8),
    )
    model, gone = randomise(model), [1, 4, 7]
    bp, x = brickwork.trace(model, IMAGE), fill(IMAGE, 5)
    keep = {"stem.0": [k for k in range(8) if k not in gone]}
    wanted = silenced(model, {"stem": gone, "a": gone}, x)
    assert difference(call(bp.zero(model, keep), x), wanted) <= TOLERANCE
    assert difference(call(bp.select(model, keep), x), wanted) <= TOLERANCE


@pytest.mark.parametrize(("name", "space", "module"), [("grouped", "a.0", "a"), ("depthwise", "stem.0", "a")])
def test_groups_against_hooks(name, space, module):
    model, gone = randomise(CONSTRUCTS[name]()), [0, 3, 5]
    bp, x = brickwork.trace(model, IMAGE), fill(IMAGE, 6)
    keep = {space: [k for k in range(bp.spaces[space]) if k not in gone]}
    wanted = silenced(model, {module: gone}, x)  # a channel that nobody reads may hold anything before
    assert difference(call(bp.select(model, keep), x), wanted) <= TOLERANCE


def test_heads_against_hooks():
    model, gone = randomise(CONSTRUCTS["attention_separate"]()), [1]
    bp, x = brickwork.trace(model, example("attention")), fill(example("attention"), 7)
    handle = model.out.register_forward_pre_hook(lambda m, a: a[0] * torch.tensor([1.0] * 4 + [0] * 4 + [1] * 4))
    wanted = call(model, x)
    handle.remove()
    keep = {"q": [k for k in range(3) if k not in gone]}
    assert difference(call(bp.select(model, keep), x), wanted) <= TOLERANCE


# -- how a request may be written --------------------------------------------------------------------------


def test_indices_of_every_kind():
    model = randomise(CONSTRUCTS["chain"]())
    bp, x = brickwork.trace(model, IMAGE), fill(IMAGE)
    wanted = call(bp.select(model, {"0.0": [1, 2, 3]}), x)
    mask = [k in (1, 2, 3) for k in range(8)]
    kinds = (range(1, 4), (1, 2, 3), {1, 2, 3}, np.array([1, 2, 3]), torch.tensor([1, 2, 3]), mask, np.array(mask))
    for kept in kinds:
        assert torch.equal(call(bp.select(model, {"0.0": kept}), x), wanted)


def test_order_is_followed():
    model = randomise(CONSTRUCTS["chain"]())
    bp, x = brickwork.trace(model, IMAGE), fill(IMAGE)
    keep = {"0.0": [5, 0, 3], "classes": [4, 1, 2]}
    small = bp.select(model, keep)
    wanted = restricted(bp, keep, call(bp.zero(model, keep), x))
    assert difference(call(small, x), wanted) <= TOLERANCE
    assert torch.equal(small[0][0].weight, model[0][0].weight[[5, 0, 3]])


def test_nothing_named_is_a_copy():
    model = randomise(CONSTRUCTS["residual"]())
    bp, x = brickwork.trace(model, IMAGE), fill(IMAGE)
    again = bp.select(model, {})
    assert again is not model
    assert torch.equal(call(again, x), call(model, x))
    assert {t.data_ptr() for t in again.parameters()}.isdisjoint(t.data_ptr() for t in model.parameters())


def test_cut_twice_is_cut_once():
    for name in ("residual", "dense", "gate", "depthwise_2", "layer_norm", "attention_separate"):
        model, shape = randomise(CONSTRUCTS[name]()), example(name)
        bp, x = brickwork.trace(model, shape), fill(shape)
        space, size = max(((n, s) for n, s in bp.spaces.items() if n != "classes"), key=lambda p: p[1])
        first = bp.select(model, {space: range(1, size)})
        second = brickwork.trace(first, shape).select(first, {space: range(1, size - 1)})
        assert difference(call(second, x), call(bp.select(model, {space: range(2, size)}), x)) <= TOLERANCE


def test_rounding_widens():
    model = randomise(CONSTRUCTS["chain"]())
    bp, x = brickwork.trace(model, IMAGE), fill(IMAGE)
    small = bp.select(model, {"0.0": [1, 5, 6]}, round_to=4)
    assert small[0][0].out_channels == 4
    wanted = call(bp.zero(model, {"0.0": [0, 1, 5, 6]}), x)
    assert difference(call(small, x), wanted) <= TOLERANCE
    assert bp.select(model, {"0.0": range(7)}, round_to=16)[0][0].out_channels == 8


def test_inputs_of_another_size():
    """Cut on one size of image, used on another and on another batch."""
    model = randomise(CONSTRUCTS["dense"]())
    bp = brickwork.trace(model, IMAGE)
    keep = draw_keep(bp, 3)
    small, whole = bp.select(model, keep), bp.zero(model, keep)
    for shape in ((1, 3, 8, 8), (5, 3, 11, 17)):
        x = fill(torch.zeros(shape), 9)
        assert difference(call(small, x), restricted(bp, keep, call(whole, x))) <= TOLERANCE
