"""Token adapters: identities in float64, layouts there and back, every way, growth that changes no bit, refusals by name."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import brickwork
from brickwork import data as data_sets
from brickwork import zoo
from brickwork.blueprint.splitting import split
from brickwork.errors import BadData, BadFile, BadModel, RequestError
from brickwork.origin import Preprocessing, attach, origin_of
from brickwork.store import state_hash
from brickwork.transplant import WAYS, Adapter, Layout, TokenAdapter, add, connect, learn_adapter, match_features, tune
from brickwork.transplant.folders import load_net, save_net
from brickwork.transplant.layout import grid_below
from brickwork.transplant.parts import alone
from brickwork.transplant.spaces import hidden_features

IMAGE = (1, 16, 16)
MAP, TOKENS, BARE, FINE = (
    Layout.of((6, 8, 8)),
    Layout.of((17, 8), (4, 4)),
    Layout.of((16, 8), (4, 4)),
    Layout.of((66, 6), (8, 8)),
)


def vit(seed, **args):
    wanted = {"image_size": 16, "patch_size": 4, "dim": 8, "depth": 2, "heads": 2, **args}
    return zoo.build("vit_small", num_classes=3, in_channels=1, seed=seed, **wanted).eval()


def cnn(seed):
    model = zoo.build("lenet", num_classes=3, in_channels=1, seed=seed).eval()
    attach(model, replace(origin_of(model), preprocessing=Preprocessing((16, 16), 1, (0.3,), (0.4,))))
    return model


def nets():
    """A ViT's task with a CNN, another ViT and a finer ViT beside it."""
    net = add(None, vit(0), at="blocks.0", category="dog", task="classify").net
    net = add(net, cnn(1), at="pool1", category="cat", task="cats").net
    net = add(net, vit(2, dim=12), at="blocks.0", category="cow", task="cows").net
    return add(net, vit(3, patch_size=2), at="blocks.0", category="fine", task="fines").net.eval()


@pytest.fixture(scope="module")
def digits():
    return data_sets.load("digits:0-2@20", size=16, channels=1)


@pytest.fixture
def images():
    return torch.randn(4, *IMAGE, generator=torch.Generator().manual_seed(0))


# identities


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("kernel", [1, 3])
def test_an_identity_adapter_inside_a_vit_changes_no_bit(layers, kernel, images):
    model = vit(0).double()
    net = add(None, model, at="blocks.0", category="dog", task="classify", input_shape=IMAGE).net
    net = net.add_category("twin", split(model, "blocks.0").below)
    adapter = TokenAdapter(*net.layouts("twin", "classify"), layers=layers, kernel=kernel).double()
    net = net.connect("twin", "classify", adapter).eval()
    with torch.no_grad():
        assert torch.equal(net(images.double(), "twin", "classify"), model(images.double()))


@pytest.mark.parametrize("resize", ["windows", "interpolate"])
@pytest.mark.parametrize(
    ("one", "other"), [(Layout.of((8, 4, 4)), TOKENS), (BARE, Layout.of((8, 8, 8))), (BARE, TOKENS)]
)
def test_there_and_back(one, other, resize):
    shape = (one.prefix + 16, 8) if one.tokens else (8, *one.grid)
    x = torch.randn(3, *shape, dtype=torch.float64)
    there, back = (TokenAdapter(a, b, resize=resize).double() for a, b in ((one, other), (other, one)))
    apart = (back(there(x)) - x).abs().max()
    assert apart <= 1e-12 if resize == "windows" or one.grid == other.grid else apart > 0


@pytest.mark.parametrize("layout", [MAP, TOKENS, BARE, FINE])
def test_a_layout_is_taken_apart_and_put_together(layout):
    shape = (layout.prefix + layout.grid[0] * layout.grid[1], layout.channels) if layout.tokens else (6, 8, 8)
    x = torch.randn(2, *shape)
    assert torch.equal(layout.together(*layout.apart(x)), x)


@pytest.mark.parametrize(
    ("source", "target"), [(MAP, TOKENS), (TOKENS, MAP), (TOKENS, FINE), (FINE, BARE), (BARE, TOKENS)]
)
@pytest.mark.parametrize("options", [{}, {"kernel": 3}, {"prefix": "constant"}, {"resize": "interpolate"}])
def test_matching_finds_an_adapter_that_there_is(source, target, options):
    """Least squares give back what made the features, in float64; what is given is as it was."""
    hidden = TokenAdapter(source, target, start="random", seed=3, scale=0.7, **options).double()
    shape = (source.prefix + source.grid[0] * source.grid[1], source.channels) if source.tokens else (6, 8, 8)
    x = torch.randn(400, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    order = torch.randperm(source.channels, generator=torch.Generator().manual_seed(2))
    given = TokenAdapter(source, target, order=order, scale=1.3, **options).double()
    before = state_hash(given)
    with torch.no_grad():
        wanted = hidden(x)
        found = match_features(given, x, wanted)(x)
    # the ridge of 1e-4, at least, is all that is left of an error
    assert (found - wanted).norm() <= 2e-3 * wanted.norm() and state_hash(given) == before


def test_a_positive_adapter_gives_nothing_below_zero():
    x = torch.randn(2, 17, 8)
    assert (TokenAdapter(TOKENS, MAP, positive=True)(x) >= 0).all()
    assert (TokenAdapter(TOKENS, MAP)(x) < 0).any()


# whole nets


def test_grids_are_read_off_the_networks():
    net = nets()
    assert [str(Layout.of(p.gives, p.grid)) for p in net.categories.values()] == [
        "1+4×4 tokens of 8",
        "6×8×8",
        "1+4×4 tokens of 12",
        "1+8×8 tokens of 8",
    ]
    wide = vit(0, image_size=16)
    halves = split(wide, "blocks.0")
    assert grid_below(halves.below, IMAGE, (6, 8, 8)) is None


@pytest.mark.parametrize("category", ["cat", "cow", "fine"])
def test_growth_by_tokens_changes_no_bit_and_learns(category, digits, images):
    net = nets()
    before = {route: net(images, *route) for route in net.routes}
    hashes = net.provenance
    once, twice = (
        connect(net, category, "classify", data=digits, steps=20, lr=0.01, seed=1, progress=False) for _ in range(2)
    )
    assert once.options.way == "match+distill" and once.note["matched_to"] == "dog"
    for route, answer in before.items():
        assert torch.equal(once.net(images, *route), answer)
    assert hashes == net.provenance == once.net.provenance and (category, "classify") not in net.routes
    assert state_hash(once.learned.adapter) == state_hash(twice.learned.adapter)
    assert once.learned.history[-1]["answers"] < once.learned.history[0]["answers"]


@pytest.mark.parametrize("way", list(WAYS))
def test_every_way_learns_with_tokens_or_says_why_not(way, digits):
    net = nets()
    for category, task in (("cat", "classify"), ("dog", "cats"), ("cow", "classify")):
        how = {"way": way, "labels": 2 if "labels" in WAYS[way].needs else 0, "data": digits, "progress": False}
        if WAYS[way].terms:
            how["steps"] = 2
        if WAYS[way].pseudo:
            with pytest.raises(RequestError, match=rf"^{way.replace('+', '.')} sends pseudo-gradients.*use match"):
                connect(net, category, task, **how)
            continue
        done = connect(net, category, task, **how)
        assert isinstance(done.learned.adapter, TokenAdapter)
        assert done.learned.adapter.positive == (task == "cats")  # what a pool behind a ReLU gives
        assert done.note["after"]["accuracy"] >= 0


def test_match_also_joins_maps(digits):
    net = add(None, cnn(0), at="pool1", category="dog", task="classify").net
    net = add(net, cnn(1), at="pool1", category="cat", task="cats").net
    done = connect(net, "cat", "classify", way="match", data=digits, progress=False)
    assert isinstance(done.learned.adapter, Adapter) and done.note["images"] == 60


@pytest.mark.parametrize("options", [{}, {"prefix": "constant", "kernel": 3, "layers": 2}, {"resize": "interpolate"}])
def test_a_folder_comes_back_bit_for_bit(options, digits, images, tmp_path):
    net = nets()
    for category, task in (("cat", "classify"), ("dog", "cats"), ("fine", "classify")):
        net = connect(net, category, task, way="match", data=digits, progress=False, **options).net
    folder = save_net(net, tmp_path / "net")
    again = load_net(folder)
    for route in net.routes:
        assert torch.equal(again(images, *route), net(images, *route))
    assert again.table() == net.table() and again.layouts("cat", "classify") == net.layouts("cat", "classify")
    twin = save_net(again, tmp_path / "twin")
    for name in ("transplant.json", "adapters.safetensors"):
        assert (twin / name).read_bytes() == (folder / name).read_bytes()
    entries = json.loads((folder / "transplant.json").read_text())
    assert entries["categories"]["cat"] == {"shape": [6, 8, 8]}  # as it always was
    assert entries["tasks"]["classify"] == {"shape": [17, 8], "grid": [4, 4]}


def test_damaged_folders_are_told(digits, tmp_path):
    net = connect(nets(), "cat", "classify", way="match", data=digits, progress=False).net
    path = save_net(net, tmp_path / "net") / "transplant.json"
    whole = json.loads(path.read_text())
    for change, message in (
        (lambda c: c["tasks"]["classify"].update(grid=[5, 5]), r"features of 17×8 cannot lie on a grid of \[5, 5\]"),
        (lambda c: c["tasks"]["classify"].update(grid=[4]), "cannot lie on a grid"),
        (lambda c: c["tasks"]["classify"].pop("grid"), "lie on no known grid"),
        (lambda c: c["routes"][-1]["tokens"].update(resize="no"), "resize is 'no'"),
        (lambda c: c["routes"][-1].pop("tokens"), "Unexpected key"),
        (lambda c: c["routes"][-1].update(kernel=2), "odd kernel"),
    ):
        broken = json.loads(json.dumps(whole))
        change(broken)
        path.write_text(json.dumps(broken))
        with pytest.raises(BadFile, match=message) as caught:
            load_net(path.parent)
        assert "\n" not in str(caught.value)


def test_a_part_that_was_exported_knows_its_grid(tmp_path, digits):
    folder = brickwork.save(alone(nets(), task="classify"), tmp_path / "task")
    net = add(None, cnn(1), at="pool1", category="cat", task="cats", input_shape=IMAGE).net
    net = add(net, brickwork.load(folder), task="classify").net
    assert str(net.layouts("cat", "classify")[1]) == "1+4×4 tokens of 8"
    done = connect(net, "cat", "classify", data=digits, steps=2, progress=False)
    assert done.options.way == "distill"  # no category came with the task, so there is nothing to match
    with pytest.raises(RequestError, match=r"classify came with no other category, so nothing tells.*use distill"):
        connect(net, "cat", "classify", way="match", data=digits, force=True, progress=False)


def test_tuning_and_looking_at_features(digits):
    net = connect(nets(), "cat", "classify", way="match", data=digits, progress=False).net
    done = tune(net, [("cat", "classify", digits)], parts=("adapters",), steps=2, progress=False)
    assert done.note["changed"] == [["cat", "classify"]]
    assert done.net.tasks["classify"].grid == (4, 4)
    whole = tune(net, [("cat", "classify", digits)], steps=1, progress=False).net
    assert whole.layouts("cat", "classify") == net.layouts("cat", "classify")
    from brickwork.transplant.route import route_model

    seen = hidden_features(route_model(net, "cat", "classify"), digits.test_images[:5], layer="blocks.1.mlp.fc2")
    assert seen.shape == (5, 8)  # tokens are averaged, channels are not


# refusals


def test_what_cannot_be_joined(digits, images):
    net = nets()
    for category, task, adapter in (
        ("cat", "classify", None),
        ("cat", "classify", Adapter(6, 8)),
        ("cow", "classify", None),
    ):
        with pytest.raises(RequestError, match="give TokenAdapter"):
            net.connect(category, task, adapter)
    with pytest.raises(RequestError, match=r"an adapter from 6×8×8 to 1\+4×4 tokens of 8 joins them not"):
        net.connect("cow", "classify", TokenAdapter(MAP, TOKENS))
    with pytest.raises(BadModel, match="crossed by the output of"):
        add(None, vit(0), at="blocks.0.attn", category="a", task="b")
    with pytest.raises(BadModel, match=r"features of 84 are neither maps .* nor tokens"):
        flat = add(net, cnn(5), at="fc2", category="flat", task="flats").net
        connect(flat, "flat", "classify", data=digits)
    with pytest.raises(RequestError, match=r"`?prefix`? is for tokens, and here are maps on both sides"):
        twice = add(net, cnn(6), at="pool1", category="more", task="mores").net
        connect(twice, "more", "cats", way="match", prefix="constant", data=digits)
    with pytest.raises(RequestError, match="needs images"):
        connect(net, "cat", "classify")
    with pytest.raises(BadData, match="features of 3 and 2 images are not paired"):
        match_features(TokenAdapter(MAP, TOKENS), torch.zeros(3, 6, 8, 8), torch.zeros(2, 17, 8))
    with pytest.raises(RequestError, match=r"needs `?wanted`?"):
        learn_adapter(
            TokenAdapter(MAP, TOKENS), net.task("classify").module, way="match", unlabelled=torch.zeros(3, 6, 8, 8)
        )


class Unfolded(nn.Module):
    """Tokens that no convolution made: nothing tells on which grid they lie."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.embed, self.mix = nn.Linear(256 // tokens, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.mix(self.embed(x.reshape(-1, self.tokens, 256 // self.tokens))).mean(1))


def test_tokens_on_no_known_grid(digits):
    net = add(nets(), Unfolded(16), at="embed", category="row", task="rows").net
    net = add(net, Unfolded(16), at="embed", category="other", task="others").net
    done = connect(net, "row", "others", way="match", data=digits, progress=False)  # as many: one by one
    assert done.learned.adapter.extra_repr().startswith("16 tokens of 8 → 16 tokens of 8")
    with pytest.raises(
        RequestError, match=r"16 tokens of 8 lie on no known grid, so they cannot become 1\+4×4 tokens of 8"
    ):
        connect(net, "row", "classify", way="match", data=digits)
    with pytest.raises(RequestError, match="a kernel of 3×3 has no neighbours"):
        connect(net, "row", "others", way="match", kernel=3, data=digits)
    for bad in ({"kernel": 2}, {"layers": 0}, {"start": "no"}, {"resize": "no"}, {"prefix": "no"}):
        with pytest.raises(RequestError):
            TokenAdapter(MAP, TOKENS, **bad)
    with pytest.raises(RequestError, match="each of the 6 channels once"):
        TokenAdapter(MAP, TOKENS, order=torch.zeros(6))


# other people's transformers

OTHERS = {
    "timm:vit_tiny_patch16_224": ({"img_size": 16, "patch_size": 4, "depth": 2}, "1+4×4 tokens of 192"),
    "timm:deit_tiny_distilled_patch16_224": ({"img_size": 16, "patch_size": 4, "depth": 2}, "2+4×4 tokens of 192"),
    "timm:vit_base_patch16_gap_224": (
        {"img_size": 16, "patch_size": 4, "depth": 2, "embed_dim": 24, "num_heads": 2},
        "4×4 tokens of 24",
    ),
}


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="needs the extra timm")
@pytest.mark.parametrize("arch", list(OTHERS))
def test_networks_of_timm(arch, digits, images, tmp_path):
    args, layout = OTHERS[arch]
    model = zoo.build(arch, num_classes=3, in_channels=1, seed=0, **args).eval()
    net = add(nets(), model, at="blocks.0", category="timm", task="timms", input_shape=None).net.eval()
    assert str(net.layouts("timm", "classify")[0]) == layout
    for route in (("timm", "classify"), ("cat", "timms")):
        net = connect(net, *route, way="match", data=digits, progress=False).net
    again = load_net(save_net(net, tmp_path / "net"))
    for route in net.routes:
        assert torch.equal(again(images, *route), net(images, *route))
    with torch.no_grad():
        assert torch.equal(net(images, "timm", "timms"), model(images))
