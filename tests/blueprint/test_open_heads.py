"""Heads that become narrower: the same numbers before, exact cuts after, and what is not known is left as it is."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import brickwork
from brickwork import zoo
from brickwork.blueprint.attention import explicit_attention
from brickwork.blueprint.open_heads import SelfAttention, open_attentions, open_heads
from brickwork.errors import Unsupported
from brickwork.outputs import logits_of

SMALL = {"image_size": 16, "patch_size": 8}
NETWORKS = {
    "vit_small": {**SMALL, "dim": 24, "heads": 3, "depth": 2},
    "timm:vit_tiny_patch16_224": {"img_size": 16, "patch_size": 8, "embed_dim": 24, "num_heads": 3, "depth": 2},
    "timm:deit_tiny_patch16_224": {"img_size": 16, "patch_size": 8, "embed_dim": 24, "num_heads": 3, "depth": 2},
    "hf:vit": {**SMALL, "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 32},
    "hf:deit": {**SMALL, "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 32},
    "torchvision:vit_b_16": {"image_size": 32},
}


def network(arch):
    torch.manual_seed(0)
    size = NETWORKS[arch].get("image_size", 16)
    net = zoo.build(arch, num_classes=4, **NETWORKS[arch]).eval()
    net = net.double() if arch != "torchvision:vit_b_16" else net
    if arch == "torchvision:vit_b_16":  # one size only, too wide for double precision: two blocks of it
        net.encoder.layers = net.encoder.layers[:2]
        nn.init.normal_(net.heads.head.weight)
    return net, torch.randn(2, 3, size, size, dtype=next(net.parameters()).dtype)


def some_of_every_head(bp, name, count):
    cells = bp.cells(name)
    return sorted(int(k) for head in range(cells.max() + 1) for k in np.flatnonzero(cells == head)[-count:])


@pytest.mark.parametrize("arch", NETWORKS)
def test_dimensions_of_heads_are_cut_exactly(arch):
    net, x = network(arch)
    before = copy.deepcopy(net.state_dict())
    opened = open_heads(explicit_attention(net), x)
    assert len(open_attentions(opened)) == 2 and not open_attentions(net)
    bound = 1e-10 if x.dtype == torch.float64 else 1e-4
    assert (logits_of(opened(x)) - logits_of(net(x))).abs().max() < bound
    bp = brickwork.trace(opened, x)
    queries, values = ([n for n in bp.spaces if n.endswith(f".{kind}")] for kind in "qv")
    assert len(queries) == len(values) == 2
    width = len(np.flatnonzero(bp.cells(queries[0]) == 0))
    for counts in ((width // 2, width - 1), (1, 1), (width, 1)):
        keep = {queries[0]: some_of_every_head(bp, queries[0], counts[0])}
        keep[values[1]] = some_of_every_head(bp, values[1], counts[1])
        small, zeroed = bp.select(opened, keep), bp.zero(opened, keep)
        assert (logits_of(small(x)) - logits_of(zeroed(x))).abs().max() < bound
        assert bp.count(keep).parameters == sum(p.numel() for p in small.parameters())
        if counts[0] < width:
            assert bp.count(keep).macs < bp.count().macs
        assert brickwork.trace(small, x).count().macs == bp.count(keep).macs
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_heads_keep_equally_many():
    net, x = network("vit_small")
    opened = open_heads(net, x)
    bp = brickwork.trace(opened, x)
    for name in ("blocks.0.attn.q", "blocks.1.attn.v"):
        with pytest.raises(Unsupported):  # five dimensions are no number for three heads
            bp.select(opened, {name: range(5)})
        with pytest.raises(Unsupported, match="different heads"):
            bp.select(opened, {name: range(6, 24)})
        with pytest.raises(Unsupported, match="different heads"):  # on shapes alone, too
            bp.select(copy.deepcopy(opened).to("meta"), {name: range(6, 24)})


class OwnAttention(nn.Module):
    """As somebody may write it: rows by heads, a scale of its own, tokens and weights returned."""

    def __init__(self, dim, heads, scale):
        super().__init__()
        self.n_heads, self.scale = heads, scale
        self.to_qkv, self.to_out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        q, k, v = self.to_qkv(x).unflatten(-1, (self.n_heads, 3, -1)).permute(3, 0, 2, 1, 4)
        weights = (q @ k.mT * self.scale).softmax(-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2)), weights


class Own(nn.Module):
    def __init__(self, scale=0.7, masked=False, kind=OwnAttention):
        super().__init__()
        self.embed, self.masked = nn.Linear(3, 12), masked
        self.attention = kind(12, 3, scale)
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        tokens = self.embed(x.flatten(2).mT)
        more = (torch.ones(1, device=x.device, dtype=x.dtype),) if self.masked else ()
        return self.head((tokens + self.attention(tokens, *more)[0]).mean(1))


class Normed(OwnAttention):
    """Queries and keys are normalised: their dimensions cannot be turned into each other."""

    def forward(self, x, mask=None):
        q, k, v = self.to_qkv(x).unflatten(-1, (self.n_heads, 3, -1)).permute(3, 0, 2, 1, 4)
        weights = (F.normalize(q, dim=-1) @ k.mT * self.scale).softmax(-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2)), weights


def test_an_attention_of_somebodys_own_is_known_by_its_numbers():
    torch.manual_seed(0)
    net, x = Own().double().eval(), torch.randn(2, 3, 2, 2, dtype=torch.float64)
    opened = open_heads(net, x)
    assert isinstance(opened.attention, SelfAttention) and opened.attention.scale == 0.7
    assert (opened(x) - net(x)).abs().max() < 1e-12
    with pytest.raises(Unsupported, match="masks"):
        opened.attention(torch.zeros(1, 4, 12, dtype=torch.float64), torch.ones(4, 4))


@pytest.mark.parametrize("net", [Own(masked=True), Own(kind=Normed)], ids=["called with a mask", "normalised"])
def test_what_is_not_known_is_left_as_it_is(net):
    x = torch.randn(2, 3, 2, 2)
    assert open_heads(net.eval(), x) is net


def test_a_narrowed_network_is_saved_and_loaded(tmp_path):
    net, x = network("timm:vit_tiny_patch16_224")
    opened = open_heads(net, x)
    bp = brickwork.trace(opened, x)
    small = bp.select(
        opened, {name: some_of_every_head(bp, name, 3) for name in bp.spaces if bp.cells(name) is not None}
    )
    brickwork.save(small, tmp_path / "small")
    again = brickwork.load(tmp_path / "small")
    assert torch.equal(again(x), small(x)) and len(open_attentions(again)) == 2


def test_narrowed_networks_are_joined():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)

    def narrowed(classes, count):
        net = zoo.build("vit_small", num_classes=classes, **NETWORKS["vit_small"]).double().eval()
        nn.init.normal_(net.head.weight)
        opened = open_heads(net, x)
        bp = brickwork.trace(opened, x)
        return bp.select(opened, {n: some_of_every_head(bp, n, count) for n in bp.spaces if bp.cells(n) is not None})

    one, same, other = narrowed(3, 4), narrowed(2, 4), narrowed(2, 2)
    for pair, kind in (([one, same], "ViT"), ([one, other], "Branches")):  # heads of one width stand side by side
        both = brickwork.join(pair, x)
        assert type(both).__name__ == kind
        assert (both(x) - torch.cat([net(x) for net in pair], 1)).abs().max() < 1e-10
