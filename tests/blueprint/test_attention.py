"""Attention as plain layers: the same numbers, and heads that can go."""

import copy

import pytest
import torch
from torch import nn

import brickwork
from brickwork.blueprint.attention import Attention, explicit_attention

BATCH, LENGTH, WIDTH, HEADS = 3, 5, 8, 4


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("other_widths", [True, False])
def test_the_same_numbers(bias, batch_first, other_widths):
    torch.manual_seed(0)
    widths = {"kdim": 6, "vdim": 10} if other_widths else {}
    source = nn.MultiheadAttention(WIDTH, HEADS, bias=bias, batch_first=batch_first, dropout=0.3, **widths)
    source = source.double().eval()
    for parameter in source.parameters():
        nn.init.normal_(parameter)
    before = copy.deepcopy(source.state_dict())
    net = Attention(source)
    sizes = WIDTH, widths.get("kdim", WIDTH), widths.get("vdim", WIDTH)
    shape = (BATCH, LENGTH) if batch_first else (LENGTH, BATCH)
    q, k, v = (torch.randn(*shape, size, dtype=torch.float64) for size in sizes)
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    padding = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    padding[1, 3:] = True
    a_head = torch.randn(BATCH * HEADS, LENGTH, LENGTH, dtype=torch.float64)
    asked = [{}, {"need_weights": False}, {"average_attn_weights": False}, {"key_padding_mask": padding}]
    asked += [{"attn_mask": causal}, {"attn_mask": a_head, "key_padding_mask": padding.double() * -9}]
    for how in asked:
        for mine, wanted in zip(net(q, k, v, **how), source(q, k, v, **how), strict=True):
            assert (mine is None) == (wanted is None)
            if mine is not None:
                torch.testing.assert_close(mine, wanted, rtol=1e-12, atol=1e-12)
    alone = [x[0] if batch_first else x[:, 0] for x in (q, k, v)]
    for mine, wanted in zip(net(*alone), source(*alone), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(value, before[name]) for name, value in source.state_dict().items())


class Tokens(nn.Module):
    """A small transformer of torch's own layers over the pixels of an image."""

    def __init__(self, num_classes=3):
        super().__init__()
        self.embed = nn.Linear(2, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, num_classes)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x.flatten(2).mT)).mean(1))


@pytest.mark.parametrize("how", [{"budget": 0.4, "of": "macs"}, {"keep": 0.5}], ids=["budget", "keep"])
def test_heads_are_cut_saved_and_loaded(tmp_path, how):
    torch.manual_seed(0)
    net, x = Tokens().eval(), torch.rand(60, 2, 3, 3)
    before = copy.deepcopy(net.state_dict())
    wanted = net(x[:4])
    explicit = explicit_attention(net)
    torch.testing.assert_close(explicit(x[:4]), wanted)
    assert isinstance(net.encoder.layers[0].self_attn, nn.MultiheadAttention)
    brick = brickwork.disassemble(net, [2, 0], (x, torch.arange(60) % 3), device="cpu", progress=False, **how)
    assert brick.macs <= how.get("budget", 0.6)
    cut = [module for module in brick.model.modules() if isinstance(module, Attention)]
    assert len(cut) == 2
    for attention in cut:  # narrower heads
        assert attention.num_heads == 4 and max(attention.q.out_features, attention.v.out_features) < 16
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    brick.save(tmp_path / "brick")
    again = brickwork.load(tmp_path / "brick", arch=Tokens)
    torch.testing.assert_close(again(x[:4]), brick.model(x[:4]), rtol=0, atol=0)


def test_heads_go_whole_where_they_are_not_open():
    torch.manual_seed(0)
    net, x = explicit_attention(Tokens().double().eval()), torch.rand(2, 2, 3, 3, dtype=torch.float64)
    bp = brickwork.trace(net, x)
    keep = {"encoder.layers.0.self_attn.q": [3, 1]}
    small = bp.select(net, keep)
    assert small.encoder.layers[0].self_attn.num_heads == 2
    assert (small(x) - bp.zero(net, keep)(x)).abs().max() < 1e-12


def test_what_adds_keys_of_its_own_is_left_alone():
    for how in ({"add_bias_kv": True}, {"add_zero_attn": True}):
        net = nn.Sequential(nn.MultiheadAttention(8, 2, **how))
        assert explicit_attention(net) is net
    shared = nn.MultiheadAttention(8, 2)
    pair = explicit_attention(nn.ModuleList([shared, shared]))
    assert isinstance(pair[0], Attention) and pair[0] is pair[1]


def test_a_padding_mask_takes_no_path_that_reads_other_weights():
    torch.manual_seed(0)
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    padded = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        found = explicit_attention(net)(x, src_key_padding_mask=padded)
    wanted = net(x, src_key_padding_mask=padded)  # with gradients, where torch takes the plain path too
    torch.testing.assert_close(found[~padded], wanted[~padded])


def test_what_is_frozen_stays_frozen():
    net = nn.TransformerEncoderLayer(8, 2, 16)
    net.self_attn.requires_grad_(False)
    assert not any(p.requires_grad for p in explicit_attention(net).self_attn.parameters())
