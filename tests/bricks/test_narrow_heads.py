"""Heads that are opened for a cut: by the numbers of the network given, where it answers as before, and as often as asked."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.blueprint.open_heads import open_attentions, open_heads
from brickwork.bricks.depth import layers_in_order, spaces_above
from brickwork.bricks.narrow_heads import with_open_heads
from brickwork.bricks.options import DisassembleOptions
from brickwork.bricks.subject import prepare
from brickwork.errors import UnknownName

TIMM = {"img_size": 16, "patch_size": 8, "embed_dim": 12, "num_heads": 2, "depth": 2}
OPTIONS = DisassembleOptions(keep=0.5)


def network(arch="timm:vit_tiny_patch16_224", **sizes):
    net = zoo.build(arch, num_classes=3, seed=0, **(sizes or TIMM)).double().eval()
    rng = torch.Generator().manual_seed(0)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.3, generator=rng)
    return net, torch.randn(60, 3, 16, 16, dtype=torch.float64, generator=rng)


def subject_of(net, x):
    return prepare(net, None, (x, torch.arange(len(x)) % 3), device="cpu", output=None, seed=0)


def test_a_depth_means_the_layers_of_the_network_given():
    net, x = network()
    closed = subject_of(net, x)
    opened = with_open_heads(closed, OPTIONS)
    given, order = opened.given_layers, layers_in_order(closed.bp)
    assert list(dict.fromkeys(given.values())) == order and list(opened.heads) == ["blocks.0.attn", "blocks.1.attn"]
    for depth in (*range(1, len(order) + 1), *order):
        above = spaces_above(opened.bp, depth, given)
        assert {given[name] for name in above} == set(spaces_above(closed.bp, depth))
    data = (x, torch.arange(60) % 3)
    brick = brickwork.compress(net, data, keep=0.5, depth="blocks.1.attn.qkv", device="cpu", progress=False)
    assert set(brick.kept) == {"blocks.1.attn.q", "blocks.1.attn.v", "blocks.1.mlp.fc1", "classes"}
    with pytest.raises(UnknownName, match=r"blocks.1.attn.qkv"):
        brickwork.compress(net, data, keep=0.5, depth="blocks.1.attn.q", device="cpu", progress=False)


def test_heads_that_are_open_already_are_turned_again():
    net, x = network()
    opened = open_heads(net, x[:2])
    subject = with_open_heads(subject_of(opened, x), OPTIONS)
    assert list(subject.heads) == ["blocks.0.attn", "blocks.1.attn"]
    assert (subject.whole(x) - net(x)).abs().max() < 1e-10
    assert not torch.equal(subject.whole.blocks[0].attn.q.weight, opened.blocks[0].attn.q.weight)


class Capped(nn.Module):
    """Scores stop at 1000, which numbers it is tried on do not reach."""

    def __init__(self):
        super().__init__()
        self.num_heads, self.qkv, self.proj = 2, nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT * 6**-0.5).clamp(max=1000).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attention, self.head = nn.Linear(3, 12), Capped(), nn.Linear(12, 3)

    def forward(self, x):
        tokens = self.embed(x.flatten(2).mT)
        return self.head((tokens + self.attention(tokens)).mean(1))


def test_a_network_that_answers_otherwise_with_turned_heads_is_left_as_it_is():
    torch.manual_seed(0)
    net, x = Net().double().eval(), torch.randn(60, 3, 4, 4, dtype=torch.float64)
    subject = subject_of(net, x)
    assert open_attentions(with_open_heads(subject, OPTIONS).whole)
    with torch.no_grad():
        net.attention.qkv.weight[:24] *= 200
    subject = subject_of(net, x)
    assert open_attentions(open_heads(net, x[:2]))  # by numbers of its own it is an attention like any other
    assert with_open_heads(subject, OPTIONS) is subject


@pytest.mark.parametrize("to, file", [("onnx", "part.onnx"), ("pt2", "part.pt2")])
def test_parts_of_transformers_are_exported(to, file, tmp_path):
    """What writes them down hands their attention a mask that allows everything."""
    pytest.importorskip("onnxruntime")
    sizes = {"image_size": 16, "patch_size": 8, "hidden_size": 12, "num_attention_heads": 2}
    net, x = network("hf:vit", **sizes, num_hidden_layers=1, intermediate_size=16)
    net, x = net.float(), x.float()
    part = brickwork.compress(net, (x, torch.arange(60) % 3), keep=0.5, device="cpu", progress=False).model
    assert len(open_attentions(part)) == 1
    written = brickwork.export_model(part, tmp_path / file, to=to)
    assert written.path.exists() and written.largest_difference < 1e-4
