"""What a blueprint says: spaces, layouts, what must stay and why; nothing is run on data, and it is quick."""

from __future__ import annotations

import time

import pytest
import torch
import torch.nn.functional as F
from checks import fingerprint, randomise, same
from constructs import CONSTRUCTS, IMAGE, OUTPUTS, Net, block, conv, example, linear, pooled
from torch import nn

import brickwork
from brickwork import zoo

SPACES = {
    "chain": {"0.0": 8, "1.0": 6, "classes": 5},
    "residual": {"stem.0": 8, "a.0.0": 6, "classes": 5},
    "projection": {"stem.0": 6, "side": 8, "a.0.0": 6, "classes": 5},
    "preactivation": {"stem": 8, "classes": 5},
    "depthwise": {"stem.0": 8, "b.0": 6, "classes": 5},
    "depthwise_2": {"stem.0": 6, "b.0": 6, "classes": 5},
    "grouped": {"stem.0": 8, "a.0": 12, "classes": 5},
    "concat": {"a.0": 4, "b.0": 6, "c.0": 6, "classes": 5},
    "dense": {"stem.0": 4, "a.0": 3, "b.0": 5, "classes": 5},
    "gate": {"stem.0": 8, "down": 3, "classes": 5},
    "flatten": {"stem.0": 4, "hidden": 7, "classes": 5},
    "called_twice": {"stem.0": 6, "classes": 5},
    "tied": {"stem.0": 6, "classes": 5},
    "attention": {"embed": 12, "qkv": 3, "mlp.1": 10, "classes": 5},
    "attention_separate": {"embed": 12, "q": 3, "mlp.1": 10, "classes": 5},
    "attention_registers": {"embed": 12, "q": 3, "mlp.1": 10, "classes": 5},
    "attention_table": {"embed": 12, "q": 3, "mlp.1": 10, "classes": 5},
    "attention_normed": {"embed": 12, "q": 1, "mlp.1": 10, "classes": 5},
}

LAYOUTS = {
    "flatten": {"hidden.weight": ["hidden", "stem.0 × 16"], "stem.0.weight": ["stem.0", None, None, None]},
    "dense": {"head.weight": ["classes", "stem.0 + a.0 + b.0"], "b.0.weight": ["b.0", "stem.0 + a.0", None, None]},
    "depthwise_2": {"a.0.weight": ["stem.0 × 2", None, None, None], "a.1.running_var": ["stem.0 × 2"]},
    "attention": {"qkv.weight": ["qkv × 12", "embed"], "position": [None, None, "embed"]},
    "transposed": {"a.weight": ["stem.0", "a", None, None], "a.bias": ["a"]},
}


@pytest.mark.parametrize("name", SPACES)
def test_spaces(name):
    assert brickwork.trace(CONSTRUCTS[name]().double(), example(name)).spaces == SPACES[name]


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name):
    bp = brickwork.trace(CONSTRUCTS[name]().double(), example(name))
    for tensor, wanted in LAYOUTS[name].items():
        assert [None if a is None else str(a) for a in bp.axes[tensor]] == wanted


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_every_tensor_has_a_layout(name):
    """An entry for each axis of each parameter and buffer, as long as the axis where it is a channel axis."""
    model = randomise(CONSTRUCTS[name]())
    before = fingerprint(model)
    bp = brickwork.trace(model, example(name), output=OUTPUTS.get(name))
    tensors = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    assert set(bp.axes) == set(tensors)
    for tensor, axes in bp.axes.items():
        assert [n if a is None else len(a) for a, n in zip(axes, tensors[tensor].shape, strict=True)] == list(
            tensors[tensor].shape
        )
    assert same(before, fingerprint(model))
    assert "Blueprint(" in repr(bp)
    assert {s["name"] for s in bp.to_dict()["spaces"]} == set(bp.spaces)


def test_option_a_says_why():
    space = brickwork.trace(CONSTRUCTS["option_a"]().double(), IMAGE).space("stem.0")
    assert len(space.fixed) == 4
    assert all("belong to no channel" in reason for reason in space.fixed.values())


def test_who_makes_and_reads():
    space = brickwork.trace(CONSTRUCTS["residual"]().double(), IMAGE).space("stem.0")
    assert space.made_by[0] == "stem.0"
    assert {"a.0.0", "head"} <= set(space.read_by)


def test_nothing_is_run_on_data():
    """A forward that would take minutes on real tensors, and parameters that hold NaN, cost nothing."""
    model = Net(_busy, stem=block(3, 64), a=conv(64, 64), head=linear(64)).double()
    with torch.no_grad():
        model.stem[0].weight.fill_(float("nan"))
    start = time.process_time()
    bp = brickwork.trace(model, torch.empty(64, 3, 512, 512, dtype=torch.float64, device="meta"))
    assert bp.spaces["classes"] == 5
    assert time.process_time() - start < 5


def _busy(s: Net, x: torch.Tensor) -> torch.Tensor:
    x = s.stem(x)
    for _ in range(20):
        x = s.a(x)
    return s.head(pooled(x))


def test_resnet50_is_quick():
    model = zoo.build("resnet50", stem="imagenet", num_classes=1000)
    example = torch.zeros(1, 3, 224, 224)
    best = 1e9
    for _ in range(2):
        start = time.process_time()
        brickwork.trace(model, example)
        best = min(best, time.process_time() - start)
    assert best < 3  # the issue asks for 2 s on two free cores


@pytest.mark.parametrize(
    "case", [(lambda m, x: m(x), IMAGE), (lambda m, x: m(x), (IMAGE,)), (lambda m, x: m(x=x), {"x": IMAGE})]
)
def test_examples_of_every_kind(case):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.head = block(3, 6), linear(6)

        def forward(self, x):
            return self.head(pooled(self.a(x)))

    assert brickwork.trace(Named().double(), case[1]).spaces == {"a.0": 6, "classes": 5}


def test_two_inputs():
    model = Net(lambda s, x, y: s.head(pooled(s.a(x) + s.b(y))), a=conv(3, 6), b=conv(2, 6), head=linear(6)).double()
    bp = brickwork.trace(model, (IMAGE, IMAGE[:, :2]))
    assert bp.spaces == {"a": 6, "classes": 5}
    small = bp.select(model, {"a": [0, 5]})
    assert (small.a.in_channels, small.b.in_channels) == (3, 2)


@pytest.mark.parametrize(("output", "size"), [("logits", 5), (None, 5), ("features", 6)])
def test_named_outputs(output, size):
    bp = brickwork.trace(CONSTRUCTS["returns_dict"]().double(), IMAGE, output=output)
    assert bp.spaces["classes"] == size


def test_same_space_for_tied_names():
    model = CONSTRUCTS["tied"]().double()
    bp = brickwork.trace(model, IMAGE)
    small = bp.select(model, {"stem.0": [0, 2, 3]})
    assert small.a.weight is small.b.weight
    assert F.relu(small.a.weight).shape == (3, 3, 3, 3)
