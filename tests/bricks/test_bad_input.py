"""What a user may bring to the applications of bricks, and what is said of it; see test_disassemble for the cut itself."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import brickwork
from brickwork.errors import BadData, BadModel, RequestError, Unsupported
from brickwork.origin import Origin, Preprocessing, attach, origin_of
from brickwork.store import state_hash

QUIET = {"progress": False}
SHORT = {"epochs": 1, "attribution": "taylor", **QUIET}
ROUTED = {
    "compress": {"keep": 0.5, "images": 100, "scored": 50, **QUIET},
    "treat": SHORT,
    "transfer": SHORT,
    "routes": {"attribution": "taylor", **QUIET},
}


class Net(nn.Module):
    """A small convolutional network whose answer is changed on the way, or packed."""

    def __init__(self, how=""):
        super().__init__()
        self.how, self.a, self.b = how, nn.Conv2d(1, 8, 3), nn.Linear(8, 5)

    def forward(self, x):
        x = self.a(x)
        features = (torch.fft.fft(x).real if self.how == "fft" else x.relu()).mean((2, 3))
        made = self.b(features.to(self.b.weight.dtype))
        return {"tuple": (features, made), "dict": {"f": features, "g": made}}.get(self.how, made)


@pytest.fixture(scope="module")
def pair(digits):
    images = digits["A"].take(20)
    return images.train_images, images.train_labels


def test_a_model_in_training_mode_is_left_in_it(nets, digits):
    few = digits["A"].take(20)
    model = copy.deepcopy(nets["A"]).train()
    model.conv1.eval()
    before = state_hash(model)
    brick = brickwork.disassemble(nets["B"], "5", digits["B"], keep=0.5, images=100, **QUIET)
    found = {
        "compress": brickwork.compress(model, few, **ROUTED["compress"]).model,
        "treat": brickwork.treat(model, few, **SHORT).model,
        "transfer": brickwork.transfer(model, few, **SHORT).model,
        "distil": brickwork.distil(model, nets["A"], few.train_images, **QUIET).model,
        "increment": brickwork.increment(model, brick),
    }
    assert not [name for name, made in found.items() if made.training]
    brickwork.adapt(model, few.train_images, few.train_images, **QUIET)
    assert model.training and not model.conv1.training and state_hash(model) == before


@pytest.mark.parametrize("name", ROUTED)
def test_an_operation_that_is_not_supported(pair, name):
    with pytest.raises(Unsupported, match="fft"):
        getattr(brickwork, name)(Net("fft"), pair, **ROUTED[name])


@pytest.mark.parametrize("how", ["tuple", "dict"])
@pytest.mark.parametrize("name", ROUTED)
def test_a_model_that_returns_several_things(pair, name, how):
    with pytest.raises(BadModel, match="several tensors"):
        getattr(brickwork, name)(Net(how), pair, **ROUTED[name])


@pytest.mark.parametrize(("how", "output"), [("tuple", 1), ("tuple", "1"), ("dict", "g")])
def test_the_output_that_matters_can_be_named(pair, how, output):
    small = brickwork.compress(Net(how), pair, output=output, **ROUTED["compress"])
    made = small.model(torch.zeros(3, 1, 16, 16))
    assert made[int(output) if how == "tuple" else output].shape == (3, 5) and small.output == output


def test_a_tolerance_no_cut_meets(pair):
    """One channel is as narrow as a layer gets, so nothing can be cut: the whole comes back, and says so."""
    net = nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU(), nn.Flatten(), nn.Linear(14 * 14, 5))
    small = brickwork.compress(net, pair, tolerance=0.0, **QUIET)
    assert "no cut" in small.note and "the whole network" in small.note and small.parameters == 1.0
    x = torch.randn(3, 1, 16, 16)
    assert torch.equal(small.model(x), net(x))


@pytest.mark.parametrize("name", ROUTED)
def test_dtypes_that_a_model_mixes_itself(pair, name):
    net = Net()
    net.b.double()
    with pytest.raises(BadModel, match="bring the model to one dtype"):
        getattr(brickwork, name)(net, pair, **ROUTED[name])


@pytest.mark.parametrize("name", ROUTED)
def test_dtypes_that_do_not_fit(pair, name):
    """Half of the parameters in float64: one sentence, not an error from the depths of torch."""
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 5).double())
    with pytest.raises(BadModel, match="float64"):
        getattr(brickwork, name)(net, pair, **ROUTED[name])


def test_wrong_requests(nets, digits):
    model, few = nets["A"], digits["A"].take(20)
    for name, options, message in (
        ("treat", {"rule": "rout"}, "did you mean 'route'"),
        ("treat", {"strength": float("nan")}, "strength is nan"),
        ("treat", {"epochs": 0}, "epochs is 0"),
        ("treat", {"depth": 5}, "choose a smaller depth"),
        ("transfer", {"what": "some"}, "what is 'some'"),
        ("transfer", {"lr": -1}, "lr is -1"),
        ("compress", {"keep": 2}, "keep is 2"),
    ):
        with pytest.raises(RequestError, match=message):
            getattr(brickwork, name)(model, few, **{**ROUTED[name], **options})


def test_a_budget_in_words_and_labels_that_are_none_are_named(nets, pair):
    with pytest.raises(RequestError, match="budget is 'half'; it must be a "):
        brickwork.compress(nets["A"], pair, budget="half", **QUIET)
    with pytest.raises(BadData, match=r"labels are None.*the images alone"):
        brickwork.compress(nets["A"], (pair[0], None), budget=0.5, **QUIET)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (nn.Linear(8, 1), "one output, .*give its last layer two rows"),
        (
            nn.Sequential(nn.Linear(8, 3), nn.LogSoftmax(1)),
            r"mixed behind its last layer \(_log_softmax.*put it behind the part",
        ),
        (nn.Sequential(nn.Linear(8, 3), nn.Softmax(1)), r"mixed behind its last layer \(_softmax"),
        (
            nn.Sequential(nn.Linear(8, 3), nn.LogSoftmax(1), nn.Unflatten(1, (3, 1)), nn.Flatten()),
            r"mixed behind its last layer \(_log_softmax",
        ),
    ],
)
def test_outputs_that_are_no_classes_say_the_way_on(end, said):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), end)
    with pytest.raises(BadModel, match=said):
        brickwork.disassemble(net, [0], torch.randn(40, 4), budget=0.5, progress=False)


class Named(torch.utils.data.Dataset):
    """Images with the user's own transform, and the names of their classes, as torchvision's folders have them."""

    classes = ("cat", "dog", "emu", "fox", "gnu")

    def __init__(self, images):
        self.images = torch.from_numpy(images.train_images).permute(0, 3, 1, 2)[:200].float() / 255 - 0.5
        self.targets = images.train_labels[:200].tolist()

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, k):
        return self.images[k], self.targets[k]


class Towers(nn.Module):
    """Of two images one answer; of one, a map of answers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 5, 1)

    def forward(self, left, right=None):
        maps = self.b(self.a(left).relu())
        return maps if right is None else (maps - self.b(self.a(right).relu())).mean((2, 3))


def test_a_map_of_answers_is_not_compared_with_a_label():
    """A map as wide as there are images held out would be, without an error."""
    images, labels = torch.randn(20, 1, 6, 6), torch.arange(20) % 5
    with pytest.raises(BadData, match=r"map of 5 × 4 × 4, .*give masks of class numbers, \(20, 4, 4\), or the images"):
        brickwork.compress(Towers(), (images, labels), budget=0.5, **QUIET)
    with pytest.raises(BadModel, match=r"map of 5 × 4 × 4, .*brickwork.compress takes such a model"):
        brickwork.disassemble(Towers(), [0, 1], (images, labels), budget=0.5, **QUIET)


@pytest.mark.parametrize("labels", ["data", "network"])
def test_several_inputs_are_refused_by_name(labels):
    left, right = torch.randn(2, 20, 1, 6, 6)
    for data in ((left, right), {"left": left, "right": right}, [left, right, left]):
        with pytest.raises((BadData, BadModel)):
            brickwork.compress(Towers(), data, budget=0.5, labels=labels, **QUIET)


class Odd(nn.Module):
    """Of complex numbers, of nothing, and with something to remember that is no tensor."""

    def __init__(self):
        super().__init__()
        self.phase = nn.Parameter(torch.ones(8, dtype=torch.complex64))
        self.a, self.b, self.none = nn.Conv2d(1, 8, 3), nn.Linear(8, 5), nn.Parameter(torch.zeros(0, 3))

    def forward(self, x):
        return self.b(self.a(x).relu().mean((2, 3)) * self.phase.abs())


class Remembers(Odd):
    def get_extra_state(self):
        return {"seen": 3}

    def set_extra_state(self, state):
        pass


def test_tensors_of_other_kinds(pair, tmp_path):
    brick = brickwork.compress(Odd(), pair, keep=0.5, **QUIET)
    again = brickwork.load(brick.save(tmp_path / "odd"), arch=Odd)
    assert state_hash(again) == state_hash(brick.model)
    merged = brickwork.merge([Odd(), Odd()], "match", data=[pair[0], pair[0]])
    assert merged.none.shape == (0, 3)


@pytest.mark.parametrize("verb", ["compress", "match", "linear"])
def test_what_is_no_tensor_or_has_no_values_is_named(pair, verb):
    for net, said in ((Remembers(), "_extra_state"), (nn.Sequential(nn.Flatten(), nn.LazyLinear(5)), "lazy layer")):
        with pytest.raises((BadModel, RequestError), match=said):
            if verb == "compress":
                brickwork.compress(net, pair, keep=0.5, **QUIET)
            else:
                brickwork.merge([net, net], verb, **({"data": [pair[0], pair[0]]} if verb == "match" else {}))


def test_arrays_that_run_backwards_are_taken(pair):
    images, labels = pair
    net = Net()
    one = brickwork.compress(net, (images[::-1], labels[::-1]), keep=0.5, **QUIET)
    other = brickwork.compress(net, (images[::-1].copy(), labels[::-1].copy()), keep=0.5, **QUIET)
    assert state_hash(one.model) == state_hash(other.model)


def test_a_network_without_names_takes_those_of_the_data(digits):
    """What was cut with a Dataset is judged with it: its parts know the classes by the same names."""
    named, net = Named(digits["A"]), Net().eval()
    brick = brickwork.disassemble(net, ["dog", "cat"], named, keep=0.5, **QUIET)
    assert brick.classes == ("dog", "cat")
    whole = brickwork.compress(net, named, keep=0.5, **QUIET)
    assert whole.classes == named.classes
    assert brickwork.eval(whole.model, named).classes == brickwork.eval(net, named).classes == named.classes
    with pytest.raises(BadData, match=r"does not know 'emu', 'fox', 'gnu'.*attach"):
        brickwork.eval(brick.model, named)


def test_a_brick_where_a_network_is_due(pair, tmp_path):
    """Its network is asked for by name; eval once ended in "'float' object is not callable"."""
    net, data = Net().eval(), pair
    brick = brickwork.compress(net, data, keep=0.5, **QUIET)
    for refused in (
        lambda: brickwork.eval(brick, *data),
        lambda: brickwork.compress(brick, data, keep=0.5),
        lambda: brickwork.export_model(brick, tmp_path / "x", to="torch"),
    ):
        with pytest.raises(RequestError, match=r"a torch.nn.Module is needed, and this is a Brick; give its \.model\."):
            refused()
    with pytest.raises(BadModel, match=r"is a Brick; call its own \.save\(folder\)"):
        brickwork.save(brick, tmp_path / "x")
    with pytest.raises(RequestError, match="not a Net; a whole network is the first argument of increment"):
        brickwork.assemble([net, brick])


def test_how_images_are_prepared_says_which_are_taken(nets, digits):
    """A network with class names and a preprocessing of its own needs nothing more to be joined or exported."""
    net = Net().eval()
    attach(net, Origin(classes=Named.classes, preprocessing=Preprocessing((16, 16), 1, (0.5,), (0.5,))))
    assert origin_of(net).input_shape == (1, 16, 16)
    part = brickwork.disassemble(nets["B"], ["5"], digits["B"], keep=0.5, **QUIET)
    assert brickwork.increment(net, part).brickwork_origin.classes == (*Named.classes, "5")
    with pytest.raises(BadModel, match=r"does not say how its classes are called.*attach\(model, Origin\(classes="):
        brickwork.increment(Net(), part)
