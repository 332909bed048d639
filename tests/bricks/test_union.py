"""Bricks of one network as one part: exact where plain cuts meet, repaired where the network is at hand."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import brickwork
from brickwork import data, zoo
from brickwork.bricks.union import unite
from brickwork.errors import BadModel, RequestError
from brickwork.evaluation import evaluate_data
from brickwork.origin import Origin, attach, origin_of
from brickwork.store import state_hash

X = torch.randn(9, 1, 16, 16, generator=torch.Generator().manual_seed(0))


def cut(net, classes, digits, **options):
    return brickwork.disassemble(net, classes, digits["A"], progress=False, **options)


@pytest.fixture(scope="module")
def plain(nets, digits):
    net = copy.deepcopy(nets["A"]).double()
    return net, [cut(net, c, digits, keep=0.4, repair="none") for c in (["1"], ["4", "0"])]


def zeroed(net, bricks):
    """The whole with every channel that no brick keeps set to zero; the logits of the bricks' classes."""
    bp = brickwork.trace(net, X.double())
    kept = {s: sorted(set().union(*(b.kept[s] for b in bricks))) for s in bp.spaces if s != "classes"}
    with torch.no_grad():
        return bp.zero(net, kept)(X.double())[:, [k for b in bricks for k in b.kept["classes"]]], kept


def test_plain_cuts_with_their_network(plain):
    net, bricks = plain
    before = [state_hash(m) for m in (net, *(b.model for b in bricks))]
    wanted, kept = zeroed(net, bricks)
    model = brickwork.assemble(bricks, source=net)
    assert (model(X.double()) - wanted).abs().max() <= 1e-10
    assert brickwork.trace(model, X.double()).spaces == {**{s: len(k) for s, k in kept.items()}, "classes": 3}
    assert origin_of(model).classes == ("1", "4", "0") and origin_of(model).provenance["assemble"]["united"] == 1
    assert [state_hash(m) for m in (net, *(b.model for b in bricks))] == before


def test_without_the_network_missing_connections_are_zero(plain, digits):
    net, bricks = plain
    united = unite(bricks)
    sizes = brickwork.trace(united.model, X.double()).spaces
    for space in ("conv2", "fc1"):
        widths = [len(b.kept[space]) for b in bricks]
        assert max(widths) <= sizes[space] < sum(widths)
    assert all(len(united.kept[s]) == size for s, size in sizes.items() if s != "classes")
    # a brick that keeps everything brings every connection but those into the other one's logits
    everything = cut(net, ["2"], digits, keep=1.0, repair="none")
    model = brickwork.assemble([bricks[1], everything])
    bp = brickwork.trace(net, X.double())
    with torch.no_grad():
        own = bp.zero(net, {"fc2": bricks[1].kept["fc2"]})(X.double())[:, [4, 0]]
        wanted = torch.cat([own, net(X.double())[:, [2]]], 1)
        assert (model(X.double()) - wanted).abs().max() <= 1e-10


def test_a_united_model_is_a_folder(plain, tmp_path):
    _, bricks = plain
    model = brickwork.assemble(bricks)
    again = brickwork.load(brickwork.save(model, tmp_path / "m"))
    assert torch.equal(again(X.double()), model(X.double()))


def test_repaired_bricks(nets, digits):
    net = nets["A"]
    bricks = [cut(net, c, digits, budget=0.2) for c in (["1"], ["4"])]
    apart = brickwork.assemble(bricks)
    assert origin_of(apart).provenance["assemble"]["united"] == 0
    with pytest.raises(RequestError, match="was repaired"):
        brickwork.assemble(bricks, shared="union")
    model = brickwork.assemble(bricks, source=net, data=digits["A"].train_images)
    channels = [sum(len(p) for n, p in m.named_parameters() if n.endswith("bias")) for m in (model, apart)]
    assert channels[0] < channels[1]
    assert evaluate_data(model, data.load("digits:1,4", size=16, channels=1)).accuracy > 0.95
    same = brickwork.assemble(bricks, source=net, data=digits["A"].train_images)
    assert state_hash(same) == state_hash(model)


def test_united_beside_another_network(nets, digits):
    bricks = [cut(nets["A"], [c], digits, keep=0.5, repair="none") for c in ("1", "4")]
    other = brickwork.disassemble(nets["B"], ["7"], digits["B"], keep=0.5, progress=False)
    model = brickwork.assemble([bricks[0], other, bricks[1]], calibrate="none")
    assert origin_of(model).classes == ("1", "4", "7")
    with torch.no_grad():
        wanted = torch.cat([unite(bricks).model(X), other.model(X)], 1)
        assert (model(X) - wanted).abs().max() <= 1e-5


def test_what_cannot_be_united(plain, nets, digits):
    _, bricks = plain
    with pytest.raises(BadModel, match="not the one"):
        unite(bricks, source=nets["B"])
    other = brickwork.disassemble(nets["B"], ["7"], digits["B"], keep=0.5, progress=False)
    with pytest.raises(RequestError, match="nothing to unite"):
        brickwork.assemble([other], shared="union")
    with pytest.raises(RequestError, match="shared is 'both'"):
        brickwork.assemble(bricks, shared="both")
    foreign = copy.deepcopy(bricks)
    for brick in foreign:
        attach(brick.model, Origin())
    with pytest.raises(RequestError, match="give the network"):
        unite(foreign)


def test_residual_networks_share_their_stream(digits):
    net = zoo.build("resnet8", num_classes=5, in_channels=1, width=8, seed=0).double().eval()
    x = torch.randn(4, 1, 16, 16, dtype=torch.float64)
    images, labels = digits["A"].train_images[:200], digits["A"].train_labels[:200]
    bricks = [
        brickwork.disassemble(net, [c], (images, labels), keep=0.5, repair="none", progress=False) for c in (0, 3)
    ]
    with_source = brickwork.assemble(bricks, source=net)
    bp = brickwork.trace(net, x)
    kept = {s: sorted(set(bricks[0].kept[s]) | set(bricks[1].kept[s])) for s in bp.spaces if s != "classes"}
    with torch.no_grad():
        assert (with_source(x) - bp.zero(net, kept)(x)[:, [0, 3]]).abs().max() <= 1e-10
        assert brickwork.assemble(bricks)(x).shape == (4, 2)


def test_plain_cuts_of_attention_keep_the_networks_own_weights(digits):
    """Repaired parts turn the dimensions of heads, each in its own way; plain ones must not, or they could not be united."""
    net = zoo.build("vit_small", num_classes=5, image_size=16, patch_size=8, dim=12, heads=2, depth=2, seed=0)
    images = digits["A"]
    x, labels = (
        torch.from_numpy(images.train_images[:60]).permute(0, 3, 1, 2).expand(-1, 3, -1, -1) / 255.0,
        images.train_labels,
    )
    pair = (x, torch.from_numpy(labels[:60]))
    bricks = [
        brickwork.disassemble(net, classes, pair, keep=0.5, repair="none", device="cpu", progress=False)
        for classes in ([1, 2], [4, 0])
    ]
    united, whole = unite(bricks), unite(bricks, source=net)
    assert united.kept == whole.kept and set(whole.kept) == set(brickwork.trace(net, x[:2]).spaces)
    for brick in bricks:
        part, own = brick.model.state_dict(), net.state_dict()
        assert all(bool(torch.isin(value, own[name]).all()) for name, value in part.items() if name in own)


class Attention(nn.Module):
    """Its layers are called as those of an open attention are."""

    def __init__(self):
        super().__init__()
        self.num_heads = 2
        self.q, self.k, self.v, self.proj = (nn.Linear(12, 12) for _ in range(4))

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return self.proj(((q @ k.mT * 6**-0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))


class Attends(nn.Module):
    """The last layer of the attention makes a space of its own."""

    def __init__(self):
        super().__init__()
        self.embed, self.attention, self.head = nn.Linear(3, 12), Attention(), nn.Linear(12, 4)

    def forward(self, x):
        return self.head(self.attention(self.embed(x.flatten(2).mT)).relu().mean(1))


def test_heads_that_each_brick_turned_in_its_own_way_are_whole_in_the_union():
    torch.manual_seed(0)
    net, x = Attends().double().eval(), torch.randn(120, 3, 3, 3, dtype=torch.float64)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    labels = torch.arange(120) % 4
    bricks = [
        brickwork.disassemble(net, classes, (x, labels), keep=0.5, device="cpu", progress=False)
        for classes in ([0, 1], [2, 3])
    ]
    assert all(len(brick.kept["attention.q"]) < 12 for brick in bricks)
    united = unite(bricks, source=net, images=x)
    spaces = brickwork.trace(net, x[:2]).spaces
    assert set(united.kept) == set(spaces)
    assert len(united.kept["attention.q"]) == spaces["attention.q"]
    for ours, theirs in (("embed", "embed"), ("attention.proj", "attention.out")):  # what was not turned stays cut
        assert united.kept[ours] == sorted({k for brick in bricks for k in brick.kept[theirs]})
        assert len(united.kept[ours]) < 12
    assert "heads of attention are as wide as the network's" in united.note
    assert united.model(x).shape == (120, 4)
    plain = [
        brickwork.disassemble(net, [c], (x, labels), keep=0.5, repair="none", device="cpu", progress=False)
        for c in (0, 3)
    ]
    assert unite(plain, source=net).note == ""


def test_plain_cuts_of_a_network_of_ones_own_stay_apart_where_nobody_can_build_it(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 12, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(48, 3))
    images = torch.randn(40, 1, 8, 8)
    how = {"keep": 0.8, "repair": "none", "progress": False}
    bricks = [brickwork.disassemble(net, c, (images, torch.arange(40) % 3), **how) for c in ([0], [1, 2])]
    model = brickwork.assemble(bricks, calibrate="none")
    assert torch.allclose(model(images), torch.cat([b.model(images) for b in bricks], 1), atol=1e-6)
    assert origin_of(model).provenance["assemble"]["united"] == 0
    assert origin_of(brickwork.assemble(bricks, source=net)).provenance["assemble"]["united"] == 1
    with pytest.raises(RequestError, match="give the network they were cut from"):
        brickwork.assemble(bricks, shared="union")
