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
from brickwork.blueprint.open_heads import open_attentions, open_heads, opened_again
from brickwork.blueprint.self_attention import SelfAttention
from brickwork.errors import Unsupported
from brickwork.moments.heads import turn_heads
from brickwork.origin import origin_of
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


class Shown(Own):
    """Gives out the weights of its attention, too."""

    def forward(self, x):
        tokens = self.embed(x.flatten(2).mT)
        mixed, weights = self.attention(tokens)
        return {"logits": self.head((tokens + mixed).mean(1)), "attentions": [weights]}


def test_weights_that_go_out_of_the_network_still_do():
    net, x = Shown().double().eval(), torch.randn(2, 3, 4, 4, dtype=torch.float64)
    opened = open_heads(net, x, "logits")
    assert torch.equal(opened(x)["attentions"][0], net(x)["attentions"][0]) and not open_attentions(opened)


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


class Apart(nn.Module):
    """Layers of their own for queries, keys and values; weights may be dropped, and the output."""

    def __init__(self, dropped=0.0, proj_drop=0.0):
        super().__init__()
        self.heads = 3
        self.q, self.k, self.v, self.proj = (nn.Linear(12, 12, bias=False) for _ in range(4))
        self.resid_dropout, self.proj_drop = nn.Dropout(dropped), proj_drop

    def forward(self, hidden_states, attention_mask=None):
        q, k, v = (
            layer(hidden_states).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        scores = q @ k.mT * 0.5
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask, float("-inf"))
        return self.end((self.weights(scores) @ v).transpose(1, 2).flatten(2))

    def weights(self, scores):
        return scores.softmax(-1)

    def end(self, mixed):
        return F.dropout(self.proj(mixed), self.proj_drop, self.training)


class Stack(nn.Module):
    """Attentions one behind the other, called in some way."""

    def __init__(self, *attentions, patch=1, call=lambda attention, tokens: attention(tokens)):
        super().__init__()
        self.patch, self.attentions = nn.Conv2d(3, 12, patch, patch), nn.ModuleList(attentions)
        self.head, self.call = nn.Linear(12, 4), call

    def forward(self, x):
        tokens = self.patch(x).flatten(2).mT
        for attention in self.attentions:
            tokens = tokens + self.call(attention, tokens)
        return self.head(tokens.mean(1))


def stack(*attentions, size=3, **how):
    net = Stack(*attentions, **how).double().eval()
    rng = torch.Generator().manual_seed(0)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.4, generator=rng)
    return net, torch.randn(4, 3, size, size, dtype=torch.float64, generator=rng)


def tied(how):
    one, other = Apart(), Apart()
    match how:
        case "queries and keys":
            one.k.weight = one.q.weight
        case "queries of two":
            other.q.weight = one.q.weight
        case "last layer of two":
            other.proj = one.proj
    return one, other


@pytest.mark.parametrize(
    "how, left", [("queries and keys", ["attentions.1"]), ("queries of two", []), ("last layer of two", [])]
)
def test_attentions_that_share_weights_are_not_opened(how, left):
    net, x = stack(*tied(how))
    opened = open_heads(net, x)
    assert open_attentions(opened) == left
    turned, _ = turn_heads(opened, [x])
    assert (turned(x) - net(x)).abs().max() < 1e-10


@pytest.mark.parametrize("within", [nn.Identity, nn.Sequential], ids=["itself", "in a module that does"])
def test_an_attention_that_stands_in_two_places_stays_one(within):
    attention = Apart() if within is nn.Identity else nn.Sequential(Apart())
    net, x = stack(attention, Apart(), attention)
    opened = open_heads(net, x)
    assert opened.attentions[0] is opened.attentions[2] and len(open_attentions(opened)) == 2
    assert sum(p.numel() for p in opened.parameters()) == sum(p.numel() for p in net.parameters())
    turned, _ = turn_heads(opened, [x])
    assert (turned(x) - net(x)).abs().max() < 1e-10
    again = opened_again(net, origin_of(opened).steps[-1]["modules"])
    assert again.attentions[0] is again.attentions[2] and torch.equal(again(x), opened(x))
    bp = brickwork.trace(turned, x)
    keep = {name: some_of_every_head(bp, name, 2) for name in bp.spaces if bp.cells(name) is not None}
    assert (bp.select(turned, keep)(x) - bp.zero(turned, keep)(x)).abs().max() < 1e-10


class Near(Apart):
    """Of many tokens each sees those that are near."""

    def weights(self, scores):
        count = scores.shape[-1]
        far = (torch.arange(count)[:, None] - torch.arange(count)).abs() > 2
        return (scores.masked_fill(far, float("-inf")) if count > 20 else scores).softmax(-1)


def test_an_attention_is_tried_on_as_many_tokens_as_it_is_called_with():
    net, x = stack(Near(), patch=16, size=128)  # 64 tokens, and 16 of an image of half the size
    assert open_heads(net, x) is net


def test_the_attentions_that_are_called_as_tried_are_opened_beside_others():
    def call(attention, tokens):
        masked = isinstance(attention, OwnAttention)  # with a tensor that no attention takes as a mask
        return attention(tokens, torch.ones(1).to(tokens))[0] if masked else attention(tokens)

    net, x = stack(Apart(), OwnAttention(12, 3, 0.7), Near(), Apart(), call=call)
    assert open_attentions(open_heads(net, x)) == ["attentions.0", "attentions.2", "attentions.3"]


def test_tokens_and_masks_may_be_given_by_name():
    allowed = torch.rand(4, 1, 9, 9, generator=torch.Generator().manual_seed(0)) > 0.5
    allowed |= torch.eye(9, dtype=torch.bool)
    for mask in (None, allowed):

        def call(attention, tokens, mask=mask):
            given = None if mask is None else mask[: len(tokens)]
            return attention(hidden_states=tokens, attention_mask=given)

        net, x = stack(Apart(), call=call)
        opened = open_heads(net, x)
        assert open_attentions(opened) == ["attentions.0"] and opened.attentions[0].masks == ["bool"]
        assert (opened(x) - net(x)).abs().max() < 1e-12
        tokens = torch.randn(4, 9, 12, dtype=torch.float64)
        answers = [attention(tokens, allowed) for attention in (net.attentions[0], opened.attentions[0])]
        assert (answers[0] - answers[1]).abs().max() < 1e-12
        for refused in (allowed.double(), allowed[0, 0]):
            with pytest.raises(Unsupported, match="masks"):
                opened.attentions[0](tokens, refused)
    older = {"attentions.0": {"order": "", "scale": 0.5, "pair": False}}  # as it was recorded before
    with pytest.raises(Unsupported, match="masks"):
        opened_again(net, older).attentions[0](tokens, allowed)


class Dropped(Apart):
    """By names of GPT."""

    def __init__(self):
        super().__init__(0.3)
        self.attn_dropout = nn.Dropout(0.2)

    def weights(self, scores):
        return self.attn_dropout(scores.softmax(-1))

    def end(self, mixed):
        return self.resid_dropout(self.proj(mixed))


class Path(Apart):
    """The output of some images is dropped whole."""

    def __init__(self):
        super().__init__()
        from timm.layers import DropPath

        self.drop_path = DropPath(0.4)

    def end(self, mixed):
        return self.drop_path(self.proj(mixed))


class Twice(Apart):
    """One dropout for weights and output."""

    def __init__(self):
        super().__init__(0.3)

    def weights(self, scores):
        return self.resid_dropout(scores.softmax(-1))

    def end(self, mixed):
        return self.resid_dropout(self.proj(mixed))


class Noisy(Apart):
    def weights(self, scores):
        return (scores + torch.randn_like(scores) if self.training else scores).softmax(-1)


@pytest.mark.parametrize(
    "kind, dropout, after",
    [(Dropped, 0.2, "Dropout"), (Path, 0.0, "DropPath"), (lambda: Apart(proj_drop=0.5), 0.0, "Dropout")],
    ids=["by other names", "a path", "a number"],
)
def test_what_is_dropped_in_training_is_dropped_by_the_open_attention(kind, dropout, after):
    net, x = stack(kind())
    opened = open_heads(net, x)
    attention = opened.attentions[0]
    assert attention.dropout == dropout and type(attention.after).__name__ == after
    again = opened_again(net, origin_of(opened).steps[-1]["modules"])
    assert open_heads(opened, x) is opened  # and nothing is lost by a second time
    answers = []
    for each in (net, opened, again):
        torch.manual_seed(1)
        answers.append(each.train()(x))
    assert all((answer - answers[0]).abs().max() < 1e-12 for answer in answers[1:])
    assert (answers[0] - net.eval()(x)).abs().max() > 1e-3


@pytest.mark.parametrize("kind", [Twice, Noisy])
def test_what_does_other_things_in_training_is_left_as_it_is(kind):
    net, x = stack(kind())
    state = torch.get_rng_state()
    assert open_heads(net, x) is net and torch.equal(torch.get_rng_state(), state)


def test_a_number_of_heads_is_no_truth_value():
    net, x = stack(Apart())
    net.attentions[0].num_heads = True  # that it has several, say
    assert open_heads(net, x).attentions[0].num_heads == 3


@pytest.mark.parametrize("way, masks", [("sdpa", ["bool", "float"]), ("eager", ["float"])])
def test_both_ways_of_transformers(way, masks):
    net, x = network("hf:vit")
    net, x = net.float(), x.float()  # eager attention computes its weights in this precision
    for module in net.modules():
        if hasattr(module, "config"):
            module.config._attn_implementation = way
    opened = open_heads(net, x)
    attentions = [m for m in opened.modules() if isinstance(m, SelfAttention)]
    assert [m.masks for m in attentions] == [masks, masks]
    assert (logits_of(opened(x)) - logits_of(net(x))).abs().max() < 1e-5


def test_attentions_of_clip_are_called_by_names():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 16}
    config = transformers.CLIPVisionConfig(image_size=16, patch_size=8, **sizes)
    torch.manual_seed(0)
    net = transformers.CLIPVisionModel(config).double().eval()
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    opened = open_heads(net, x, "pooler_output")
    assert len(open_attentions(opened)) == 2
    assert (opened(x).pooler_output - net(x).pooler_output).abs().max() < 1e-10


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
