"""Bad input: one clear BrickworkError that names the place, and nothing changed."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from checks import check_select, fingerprint, randomise, same
from constructs import CONSTRUCTS, IMAGE, Net, block, conv, linear, pooled
from torch import nn
from torch.nn.utils import prune

import brickwork
from brickwork.errors import BadModel, BrickworkError, RequestError, UnknownName, Unsupported


def chain() -> nn.Module:
    return randomise(CONSTRUCTS["chain"]())


def net(forward, **members) -> nn.Module:
    return randomise(Net(forward, **({"stem": block(3, 8), "head": linear(8)} | members)))


def refused(model, example, *matches, error=BrickworkError, output=None):
    before = fingerprint(model)
    with pytest.raises(error) as caught:
        brickwork.trace(model, example, output=output)
    text = str(caught.value)
    assert all(m in text for m in matches), text
    assert len(text) < 600
    assert "\n" not in text
    assert same(before, fingerprint(model))


# -- the request -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ([0, 8], r"index 8 is out of range.*'0\.0'.*0 to 7"),
        ([-1], "index -1 is out of range"),
        ([0, 1, 1], "index 1 .*twice"),
        ([], "nothing is kept"),
        ([False] * 8, "nothing is kept"),
        ([True] * 7, "8 entries"),
        ([0.5, 1.0], "whole numbers"),
        (["a"], "whole numbers"),
        ("abc", "whole numbers"),
        (3, "whole numbers"),
        (None, "whole numbers"),
        ([[0, 1]], "whole numbers"),
        (torch.tensor([0.0, 1.0]), "whole numbers"),
        ({0: 1}, "whole numbers"),
    ],
)
@pytest.mark.parametrize("operation", ["select", "zero"])
def test_indices(kept, message, operation):
    model = chain()
    before, bp = fingerprint(model), brickwork.trace(model, IMAGE)
    with pytest.raises(RequestError, match=message):
        getattr(bp, operation)(model, {"0.0": kept})
    assert same(before, fingerprint(model))


@pytest.mark.parametrize("keep", [[("0.0", [0])], "0.0", None, 3])
def test_kept_set_is_a_mapping(keep):
    model = chain()
    with pytest.raises(RequestError, match="mapping"):
        brickwork.trace(model, IMAGE).select(model, keep)


def test_unknown_space():
    model = chain()
    bp = brickwork.trace(model, IMAGE)
    for ask in (bp.select, bp.zero, bp.permute):
        with pytest.raises(UnknownName, match="did you mean 'classes'"):
            ask(model, {"clases": [0]})
    with pytest.raises(UnknownName, match="Known: "):
        bp.space("nowhere")


@pytest.mark.parametrize("round_to", [0, -8, 2.5, "8"])
def test_rounding(round_to):
    model = chain()
    with pytest.raises(RequestError):
        brickwork.trace(model, IMAGE).select(model, {"0.0": [0]}, round_to=round_to)


def test_another_model():
    bp = brickwork.trace(chain(), IMAGE)
    with pytest.raises(BadModel, match="another model"):
        bp.select(randomise(CONSTRUCTS["gate"]()), {"0.0": [0]})
    with pytest.raises(BadModel, match="another model"):
        bp.select(bp.select(chain(), {"0.0": [0, 1]}), {"0.0": [0]})


# -- spaces that must not be cut -------------------------------------------------------------------------

STUCK = {
    "mean over channels": lambda s, x: s.head(pooled((h := s.stem(x)) * h.mean(1, keepdim=True))),
    "max over channels": lambda s, x: s.head(pooled((h := s.stem(x)) - h.amax(1, keepdim=True))),
    "softmax over channels": lambda s, x: s.head(pooled(torch.softmax(s.stem(x), 1))),
    "cumulative sum": lambda s, x: s.head(pooled(s.stem(x).cumsum(1))),
    "sorted channels": lambda s, x: s.head(pooled(s.stem(x)).sort(1)[0]),
    "constants that meet channels": lambda s, x: s.head(pooled(s.stem(x)) * torch.arange(8.0)),
    "norm of sigmoids": lambda s, x: s.head(F.normalize(pooled(torch.sigmoid(s.stem(x))), dim=1)),
}


@pytest.mark.parametrize("name", STUCK)
def test_spaces_that_must_stay(name):
    model = net(STUCK[name])
    before, bp = fingerprint(model), brickwork.trace(model, IMAGE)
    with pytest.raises(BadModel, match=r"channel \d of space 'stem\.0' must stay: .*\(.*\)|belong to no channel"):
        bp.select(model, {"stem.0": range(4)})
    assert same(before, fingerprint(model))
    bp.select(model, {"stem.0": range(8)})  # all of it may be named
    bp.select(model, {"classes": [0, 2]})


def mixed(bias: bool) -> nn.Module:
    """Tokens (places) mixed by a linear layer, then a LayerNorm over channels, as in MLP-Mixers."""

    def forward(s, x):
        tokens = s.stem(x).flatten(2)
        return s.head(s.norm((tokens + s.mix(tokens)).transpose(1, 2)).mean(1))

    return net(forward, stem=conv(3, 8), mix=nn.Linear(64, 64, bias=bias), norm=nn.LayerNorm(8))


def test_a_bias_of_places_fills_channels_that_are_cut():
    """Zero channels do not stay zero behind it, so those a LayerNorm reads together must stay; and it says which."""
    model = mixed(bias=True)
    bp = brickwork.trace(model, IMAGE)
    with pytest.raises(BadModel) as caught:
        bp.select(model, {"stem": range(4)})
    assert "channel 4 of space 'stem' must stay: its channels are normalised together" in str(caught.value)
    assert "(native_layer_norm.default in norm), where those that are cut would not be zero" in str(caught.value)
    plain = mixed(bias=False)
    check_select(plain, IMAGE, range(2))
    brickwork.trace(plain, IMAGE).select(plain, {"stem": range(4)})


def test_a_number_that_is_learned_fills_channels_that_are_cut():
    def forward(s, x):
        return s.head(s.norm(s.stem(x).flatten(2).mean(2) + s.shift))

    model = net(forward, stem=conv(3, 8), norm=nn.LayerNorm(8))
    model.shift = nn.Parameter(torch.ones(1, dtype=torch.float64))
    with pytest.raises(BadModel, match=r"native_layer_norm.default in norm\), where those that are cut would not"):
        brickwork.trace(model, IMAGE).select(model, {"stem": range(4)})


def test_option_a_channels_must_stay():
    model = randomise(CONSTRUCTS["option_a"]())
    bp = brickwork.trace(model, IMAGE)
    stuck = sorted(bp.space("stem.0").fixed)
    with pytest.raises(BadModel, match="must stay"):
        bp.select(model, {"stem.0": [k for k in range(8) if k != stuck[0]]})


def test_softmax_over_classes():
    model = net(lambda s, x: torch.softmax(s.head(pooled(s.stem(x))), 1))
    bp = brickwork.trace(model, IMAGE)
    classes = next(n for n, size in bp.spaces.items() if size == 5)
    with pytest.raises(BadModel, match="softmax"):
        bp.select(model, {classes: [0, 1]})


# -- the model -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 4, 8, 8), (2, 3), (3, 8, 8, 8, 8)])
def test_example_of_the_wrong_shape(shape):
    refused(chain(), torch.zeros(shape, dtype=torch.float64), str(shape), error=BadModel)


@pytest.mark.parametrize("example", [None, 3, "x", [], ()])
def test_example_of_the_wrong_kind(example):
    refused(chain(), example, "example", error=RequestError)


def test_not_a_module():
    with pytest.raises(RequestError, match=r"torch\.nn\.Module"):
        brickwork.trace(lambda x: x, IMAGE)


def test_train_mode_is_kept():
    model = chain().train()
    model[0].eval()
    before = fingerprint(model)
    bp = brickwork.trace(model, IMAGE)
    small = bp.select(model, {"0.0": [0, 1]})
    assert same(before, fingerprint(model))
    assert small.training
    assert not small[0].training
    assert small[1].training


def test_mixed_dtypes():
    model = chain()
    model[1][0].float()
    refused(model, IMAGE, "1.0", "shape", error=BadModel)


def test_example_of_another_dtype():
    refused(chain(), IMAGE.float(), "0.0", error=BadModel)


def test_meta_parameters():
    """A model without data can be traced; cutting it gives a model without data, or says why not."""
    model = CONSTRUCTS["chain"]().double().to("meta")
    bp = brickwork.trace(model, IMAGE)
    assert bp.spaces == {"0.0": 8, "1.0": 6, "classes": 5}
    try:
        small = bp.select(model, {"0.0": [0, 2]})
    except BrickworkError as error:
        assert "meta" in str(error)
    else:
        assert small[0][0].weight.is_meta
        assert small[0][0].weight.shape[0] == 2


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks(kind):
    model = chain()

    def spy(*args):
        return None

    getattr(model[1], kind)(spy)
    refused(model, IMAGE, "1 has a forward hook", "spy", error=Unsupported)


@pytest.mark.parametrize("how", ["new weight norm", "old weight norm", "old spectral norm", "pruned"])
def test_weights_that_are_computed_are_named_with_the_way_out(how):
    ways = {"new weight norm": nn.utils.parametrizations.weight_norm, "old weight norm": nn.utils.weight_norm}
    ways |= {"old spectral norm": nn.utils.spectral_norm, "pruned": lambda m: prune.l1_unstructured(m, "weight", 0.3)}
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(288, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older ways are to go one day
        ways[how](model[0])
    x = torch.randn(30, 3, 8, 8)
    with pytest.raises(Unsupported, match=r"the weight of 0 is computed from others .* make it a plain parameter"):
        brickwork.trace(model, x)


def test_inference_mode_is_named():
    with torch.inference_mode(), pytest.raises(RequestError, match=r"inference_mode.*no_grad"):
        brickwork.trace(chain(), IMAGE)


def _raises(s, x):
    raise ValueError("the moon is full")


def test_forward_that_raises():
    refused(net(_raises), IMAGE, "the moon is full", "ValueError", "top module", error=BadModel)


DEPENDENT = {
    "if": lambda s, x: s.head(pooled(h if (h := s.stem(x)).sum() > 0 else -h)),
    "item": lambda s, x: s.head(pooled(s.stem(x)) * s.stem(x).max().item()),
    "nonzero": lambda s, x: s.head(pooled(s.stem(x))[s.stem(x).mean((1, 2, 3)).nonzero()[:, 0]]),
    "tolist": lambda s, x: s.head(pooled(s.stem(x)) * s.stem(x).mean((1, 2, 3)).tolist()[0]),
    "numpy": lambda s, x: s.head(torch.from_numpy(pooled(s.stem(x)).numpy())),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_data_dependent_forward(name):
    refused(net(DEPENDENT[name]), IMAGE, "top module", "test_bad_input.py", error=BadModel)


def test_a_weight_that_is_computed_is_to_be_made_plain_first():
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 1)), nn.Flatten(), nn.Linear(4, 2))
    way_on = r"remove_parametrizations\(model\.get_submodule\('0'\), 'weight'\)"
    with pytest.raises(Unsupported, match=way_on) as refused:
        brickwork.trace(net, torch.zeros(1, 3, 1, 1))
    assert "the weight of 0 is computed" in str(refused.value)
    nn.utils.parametrize.remove_parametrizations(net.get_submodule("0"), "weight")
    assert brickwork.trace(net, torch.zeros(1, 3, 1, 1)).spaces["0"] == 4


def test_unknown_operation():
    refused(net(lambda s, x: s.head(torch.fft.fft(pooled(s.stem(x))).real)), IMAGE, "fft", error=Unsupported)
    refused(net(lambda s, x: s.head(torch.linalg.qr(pooled(s.stem(x)))[1])), IMAGE, "qr", error=BrickworkError)


WRITES = {
    "assigned slice": lambda x: x.__setitem__((slice(None), slice(0, 2)), 0),
    "filled slice": lambda x: x[:, :2].fill_(1.0),
    "doubled slice": lambda x: x[:, :2].mul_(2),
    "copied slice": lambda x: x[:, :2].copy_(x[:, 2:4].clone()),
    "masked": lambda x: x.masked_fill_(x > 0, 1.0),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_into_a_slice(name):
    """Refused, or exact."""

    def forward(s, x):
        h = s.stem(x) * 1
        WRITES[name](h)
        return s.head(pooled(h))

    model, x = net(forward), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    before = fingerprint(model)
    try:
        bp = brickwork.trace(model, IMAGE)
        keep = {"stem.0": [0, 3, 4, 7]}
        small = bp.select(model, keep)
    except BrickworkError as error:
        assert "top module" in str(error) or "channel" in str(error)
    else:
        with torch.no_grad():
            assert (small(x) - bp.zero(model, keep)(x)).abs().max() <= 1e-10
    assert same(before, fingerprint(model))


def test_several_outputs_without_a_name():
    model = randomise(CONSTRUCTS["returns_tuple"]())
    refused(model, IMAGE, "several tensors", "'0', '1'", "output", error=BadModel)
    refused(model, IMAGE, "no output 'logits'", output="logits", error=BadModel)
    refused(net(lambda s, x: None), IMAGE, "no tensor", error=BadModel)
    refused(net(lambda s, x: x), IMAGE, error=BadModel)


def test_nothing_to_cut():
    refused(nn.Sequential(nn.ReLU()), IMAGE, "nothing to cut", error=BadModel)
    refused(net(lambda s, x: torch.ones(2, 5) * s.gain, gain=nn.Parameter(torch.ones(5))), IMAGE, error=BadModel)


def test_conv_over_unbatched_image():
    """Refused, or exact: without a batch axis the channels come first."""
    model = net(lambda s, x: s.head(s.conv(x).mean((1, 2))), conv=conv(3, 8))
    x, keep = torch.randn(3, 8, 8, dtype=torch.float64), {"conv": [1, 2]}
    try:
        bp = brickwork.trace(model, IMAGE[0])
        small = bp.select(model, keep)
    except BrickworkError:
        return
    with torch.no_grad():
        assert (small(x) - bp.zero(model, keep)(x)).abs().max() <= 1e-10


def test_a_head_of_another_output_that_reads_what_is_cut_is_named():
    model = net(
        lambda m, x: (lambda h: {"logits": m.head(h), "more": m.beside(h)})(pooled(m.stem(x))), beside=nn.Linear(8, 3)
    )
    before, bp = fingerprint(model), brickwork.trace(model, IMAGE, output="logits")
    with pytest.raises(Unsupported, match=r"beside reads channels .* the output 'logits' .* nn\.Identity\(\)"):
        bp.select(model, {"stem.0": [0, 3]})
    assert same(before, fingerprint(model))
    model.beside = nn.Identity()
    assert brickwork.trace(model, IMAGE, output="logits").select(model, {"stem.0": [0, 3]}).head.in_features == 2
