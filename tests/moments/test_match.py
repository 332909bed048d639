"""Response matching: what is right stays, what was broken is mended, and nothing given is touched."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from moment_nets import (
    SMALL,
    error,
    images,
    matched,
    noisy,
    randomise,
    same,
    small,
    state,
    thinned,
    with_activations_in_norms,
)
from torch import nn

import brickwork
from brickwork.errors import BadData, BadModel, RequestError
from brickwork.moments import Source, match_responses
from brickwork.moments.gathering import Run, _held_out
from brickwork.moments.ridge import RIDGES

# what is right stays


@pytest.mark.parametrize("name", SMALL)
def test_a_network_matched_to_itself_is_itself(name):
    model, x = small(name), images(12)
    before = state(model)
    result = matched(model, model, x)
    assert error(result.model, model, images(4, seed=1)) <= 1e-8
    assert same(before, state(model))
    weights = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    assert len(result.fits) == len(weights)
    for fit in result.fits:
        assert fit.unexplained < 1e-5 and fit.error < 1e-6 and fit.rows >= 12


def test_an_activation_within_a_norm_is_not_what_its_layer_is_to_say():
    model, x = with_activations_in_norms(), images(40, side=8)
    assert error(matched(model, model, x).model, model, images(4, seed=1, side=8)) <= 1e-8
    for layer in ("a", "b", "c"):
        mended = matched(noisy(model, layer), model, x, ridge=0.0).model
        assert error(mended, model, images(4, seed=1, side=8)) <= 1e-6, layer


def test_without_feedback_and_places_it_is_itself_too():
    model, x = small("resnet8"), images(9)
    for options in ({"feedback": False}, {"places": 3}, {"places": None}, {"ridge": 0.0}, {"batch_size": 4}):
        assert error(matched(model, model, x, **options).model, model, x) <= 1e-8


# what was broken is mended


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("lenet", "conv2"),
        ("lenet", "fc3"),
        ("resnet8", None),
        ("inception_small", None),
        ("shuffle_small", None),
        ("vit_small", "head"),
    ],
)
def test_a_layer_of_noise_is_recovered(name, layer):
    """Every layer of the named network that a few images determine, one at a time."""
    teacher, x = small(name), images(40)
    known = matched(teacher, teacher, x[:2]).fits
    chosen = [layer] if layer else [f.layer for f in known if f.inputs <= 80][:: max(1, len(known) // 4)]
    for path in chosen:
        student = noisy(teacher, path)
        assert error(student, teacher, x) > 1e-2
        result = matched(student, teacher, x, layers=[path], ridge=0.0, places=None)
        assert error(result.model, teacher, x) <= 1e-8, path
        assert [f.layer for f in result.fits] == [path]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_all_forms_of_convolution_are_recovered(groups):
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.LeakyReLU(0.3),
        nn.Conv2d(4, 8, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=groups),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 4, 3, padding="same", padding_mode="reflect", bias=False),
        nn.Flatten(2),
        nn.Conv1d(4, 5, 3, stride=2, padding=1),
    )
    teacher, x = randomise(model), images(30, side=8)
    student = noisy(teacher, "0", "2", "5", "7")
    result = matched(student, teacher, x, ridge=0.0, places=None, batch_size=8)
    assert error(result.model, teacher, images(5, seed=3, side=8)) <= 1e-8
    assert [f.layer for f in result.fits] == ["0", "2", "5", "7"]


class Sums(nn.Module):
    """Sums within sums: what `a` is added to is itself a sum of two layers that run after it."""

    def __init__(self):
        super().__init__()
        self.stem, self.a, self.b, self.c, self.head = (nn.Conv2d(i, o, 1) for i, o in [(3, 4), *[(4, 4)] * 3, (4, 2)])

    def forward(self, x):
        h = F.leaky_relu(self.stem(x), 0.3)
        a = self.a(h)
        return self.head(F.leaky_relu(a + F.leaky_relu(self.b(h) + self.c(h.tanh()), 0.3), 0.3))


def test_layers_that_meet_in_nested_sums_are_solved_in_an_order_that_sees_new_weights():
    teacher, x = randomise(Sums()), images(20, side=4)
    result = matched(noisy(teacher, "stem", "a", "b", "c", "head"), teacher, x, ridge=0.0, places=None)
    assert error(result.model, teacher, x) <= 1e-8
    assert [f.layer for f in result.fits] == ["stem", "c", "b", "a", "head"]


def test_a_sum_is_mended_by_the_layer_in_front_of_it():
    """The shortcut is wrong (its layer is not solved): the other summand makes good what it can."""
    teacher, x = randomise(Sums()), images(20, side=4)
    student = copy.deepcopy(teacher)
    with torch.no_grad():
        student.a.weight += 0.2
    mended = matched(student, teacher, x, layers=["a"], ridge=0.0, places=None).model
    assert error(mended, teacher, x) <= 1e-8
    broken = noisy(teacher, "c")
    with_feedback = error(matched(broken, teacher, x, layers=["a"], ridge=0.0, places=None).model, teacher, x)
    without = error(matched(broken, teacher, x, layers=["a"], ridge=0.0, places=None, feedback=False).model, teacher, x)
    assert with_feedback < 0.9 * without


# more data


def residual(model: nn.Module, teacher: nn.Module, x: torch.Tensor) -> float:
    with torch.no_grad():
        return float((model(x) - teacher(x)).square().sum() / len(x))


@pytest.mark.parametrize("ridge", [0.0, 1e-4, 1.0])
def test_the_training_residual_is_never_worse_than_the_unsolved_ones(ridge):
    teacher, student, x = small("lenet"), noisy(small("lenet", seed=1), "fc3"), images(60)
    for n in (1, 2, 5, 20, 60):
        new = matched(student, teacher, x[:n], layers=["fc3"], ridge=ridge).model
        assert residual(new, teacher, x[:n]) <= residual(student, teacher, x[:n]) * (1 + 1e-9)


def test_more_data_never_makes_the_training_residual_worse():
    """On all the data seen so far, solving again beats every solution from less of it."""
    teacher, student, x = small("lenet"), small("lenet", seed=1), images(120)
    counts = (2, 10, 40, 90, 120)
    solved = [matched(student, teacher, x[:n], layers=["fc3"], ridge=0.0).model for n in counts]
    for k, n in enumerate(counts):
        best = residual(solved[k], teacher, x[:n])
        for earlier in solved[:k]:
            assert best <= residual(earlier, teacher, x[:n]) * (1 + 1e-9)
    features = torch.cat([_features(student, x), torch.ones(len(x), 1, dtype=x.dtype)], 1)
    with torch.no_grad():
        optimum = torch.linalg.lstsq(features, teacher(x), driver="gelsd")
        best = float((features @ optimum.solution - teacher(x)).square().sum() / len(x))
    assert residual(solved[-1], teacher, x) == pytest.approx(best, rel=1e-6)


def _features(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    seen = []
    handle = model.fc3.register_forward_pre_hook(lambda m, inputs: seen.append(inputs[0].detach()))
    model(x)
    handle.remove()
    return seen[0]


# cut networks


def rows_of(teacher: nn.Module, keep: dict[str, list[int]], x: torch.Tensor) -> dict[str, np.ndarray]:
    """For every layer the source's output channels that a cut kept."""
    bp = brickwork.trace(teacher, x)
    gone = {int(u) for name, ids in keep.items() for u in np.delete(bp.space(name).units, ids)}
    return {
        s.module: np.array([k for k, u in enumerate(s.makes) if int(u) not in gone])
        for s in bp.sites
        if s.makes is not None and s.kind in ("conv", "linear")
    }


@pytest.mark.parametrize("name", ["lenet", "resnet8", "inception_small"])
def test_a_cut_network_is_repaired(name):
    teacher, x, fresh = small(name), images(600 if name == "lenet" else 150), images(60, seed=5)
    student, keep = thinned(teacher, x[:2], 2)
    source = Source(teacher, x, rows_of(teacher, keep, x[:2]))
    before = state(student), state(teacher)
    result = match_responses(student, [source], progress=False)
    off, cut = (residual(m, teacher, fresh) for m in (result.model, student))
    assert off < 0.5 * cut
    assert same(before[0], state(student)) and same(before[1], state(teacher))
    assert [tuple(p.shape) for p in result.model.parameters()] == [tuple(p.shape) for p in student.parameters()]


def test_a_cut_network_needs_rows():
    teacher, x = small("lenet"), images(4)
    student, keep = thinned(teacher, x[:2], 2)
    with pytest.raises(BadModel, match=r"conv1 makes 3 channels and is to match 6 .* Source\.rows"):
        matched(student, teacher, x)
    rows = rows_of(teacher, keep, x[:2])
    rows["conv2"] = rows["conv2"][:-1]
    with pytest.raises(BadModel, match="conv2"):
        match_responses(student, [Source(teacher, x, rows)], progress=False)


def test_several_sources_weigh_in():
    """One linear layer between two teachers: the weighted mean of both where they see the same images."""
    a, b = (randomise(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), seed) for seed in (0, 1))
    x = images(50, side=2)
    sources = [Source(a, x, weight=3.0), Source(b, x, weight=1.0)]
    result = match_responses(a, sources, ridge=0.0, progress=False).model
    torch.testing.assert_close(result[1].weight, 0.75 * a[1].weight + 0.25 * b[1].weight)
    torch.testing.assert_close(result[1].bias, 0.75 * a[1].bias + 0.25 * b[1].bias)


# promises


def test_the_same_seed_gives_the_same_bytes():
    teacher, student, x = small("resnet8"), small("resnet8", seed=1), images(10)

    def bytes_of(seed, **options):
        new = matched(student, teacher, x, seed=seed, places=4, **options).model
        return b"".join(t.numpy().tobytes() for t in new.state_dict().values())

    first = bytes_of(3)
    torch.manual_seed(12345)
    assert bytes_of(3) == first
    assert bytes_of(4) != first


@pytest.mark.parametrize("training", [True, False])
def test_nothing_given_is_touched_and_the_mode_is_kept(training):
    teacher, student, x = (small("resnet8").train(training), small("resnet8", seed=1).train(training), images(6))
    next(m for m in teacher.modules() if isinstance(m, nn.Conv2d)).train(not training)
    before = state(teacher), state(student), x.clone()
    result = matched(student, teacher, x)
    assert same(before[0], state(teacher)) and same(before[1], state(student)) and torch.equal(x, before[2])
    assert [m.training for m in result.model.modules()] == before[1]["modes"]
    assert torch.backends.cudnn.allow_tf32 is True


def test_a_source_of_another_precision_is_left_as_it_is():
    teacher, x = small("lenet"), images(8)
    before = state(teacher.float())
    result = matched(small("lenet", seed=1), teacher, x)
    assert same(before, state(teacher))
    assert next(result.model.parameters()).dtype == torch.float64


def test_float32_networks_match_to_float32():
    model, x = small("resnet8").float(), images(12).float()
    assert error(matched(model, model, x).model, model, x) < 1e-3


def test_the_result_prints_and_is_json():
    import json

    result = matched(small("lenet"), small("lenet"), images(3))
    layers = json.loads(json.dumps(result.to_dict()))["layers"]
    assert [row["layer"] for row in layers] == ["conv1", "conv2", "fc1", "fc2", "fc3"]


def test_layers_are_chosen_by_name_or_by_a_test():
    model, x = small("lenet"), images(3)
    assert [f.layer for f in matched(model, model, x, layers=["fc2", "conv1"]).fits] == ["conv1", "fc2"]
    assert [f.layer for f in matched(model, model, x, layers=lambda n: n.startswith("fc")).fits] == [
        "fc1",
        "fc2",
        "fc3",
    ]


class Odd(nn.Module):
    """Layers that have no weight of their own to solve for, beside one that has."""

    def __init__(self):
        super().__init__()
        self.free, self.twice = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)
        self.tied, self.tied2 = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
        self.up = nn.ConvTranspose2d(4, 2, 2)
        self.tied2.weight = self.tied.weight

    def forward(self, x):
        return self.up(self.tied2(self.tied(self.twice(self.twice(self.free(x))))))


def test_layers_without_a_weight_of_their_own_are_not_solved():
    model, x = randomise(Odd()), images(4, side=4)
    assert [f.layer for f in matched(model, model, x).fits] == ["free"]
    for name in ("tied", "twice", "up"):
        with pytest.raises(RequestError, match=f"'{name}' cannot be matched; layers that can: free"):
            matched(model, model, x, layers=[name])


# refusals


def test_a_wrong_layer_is_refused_with_the_list():
    model, x = small("lenet"), images(2)
    with pytest.raises(
        RequestError, match=re.escape("layer 'conv9' cannot be matched; layers that can: conv1, conv2, fc1")
    ):
        matched(model, model, x, layers=["conv9"])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_images_that_are_not_finite_are_refused(bad):
    model, x = small("lenet"), images(3)
    x[1, 0, 2, 2] = bad
    with pytest.raises(BadData, match="images of source 0 hold NaN"):
        matched(model, model, x)


def test_a_source_with_nan_weights_names_the_layer_and_the_batch():
    teacher, x = small("resnet8"), images(6)
    path = [n for n, m in teacher.named_modules() if isinstance(m, nn.Conv2d)][3]
    with torch.no_grad():
        teacher.get_submodule(path).weight[0, 0] = float("nan")
    with pytest.raises(
        BadData, match=rf"activations at {re.escape(path)} became NaN or infinite in the batch from image 0 on"
    ):
        matched(small("resnet8"), teacher, x, batch_size=2)


class Overflow(nn.Module):
    """Fine for small images, infinite for large ones."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.b(torch.exp(self.a(x)))


def test_the_batch_is_the_one_in_which_it_happened():
    model = randomise(Overflow())
    x = torch.ones(7, 3, dtype=torch.float64)
    x[6] = 1e6
    with torch.no_grad():
        model.a.weight.abs_()
    with pytest.raises(BadData, match="activations at b became NaN or infinite in the batch from image 5 on"):
        matched(model, model, x, batch_size=3)


def test_a_student_with_nan_weights_names_the_layer():
    teacher, x = small("lenet"), images(3)
    for name in ("conv2", "fc3"):
        student = copy.deepcopy(teacher)
        with torch.no_grad():
            student.get_submodule(name).weight.view(-1)[0] = float("nan")
        with pytest.raises(BadModel, match=f"weights of {name} hold NaN"):
            matched(student, teacher, x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ridge": -1.0}, "ridge must be 0 or more, not -1.0"),
        ({"ridge": float("nan")}, "ridge must be 0 or more"),
        ({"batch_size": 0}, "batch_size must be 1 or more, not 0"),
        ({"places": 0}, "places must be"),
        ({"places": "all"}, "not 'all'"),
    ],
)
def test_wrong_options(options, message):
    model, x = small("lenet"), images(2)
    with pytest.raises(RequestError, match=message):
        matched(model, model, x, **options)


def test_wrong_sources():
    model, x = small("lenet"), images(2)
    with pytest.raises(RequestError, match="at least one source"):
        match_responses(model, [])
    with pytest.raises(BadData, match="source 0 has no images"):
        matched(model, model, x[:0])
    with pytest.raises(RequestError, match="weight of source 0 must be a positive number, not 0"):
        match_responses(model, [Source(model, x, weight=0.0)])
    with pytest.raises(BadModel, match="no layer 'conv1'"):
        matched(model, small("resnet8"), x)
    with pytest.raises(BadModel, match="without parameters"):
        matched(nn.ReLU(), model, x)


@pytest.mark.parametrize("room", [0, 20_000])
def test_without_room_for_activations_the_answer_is_the_same(monkeypatch, room):
    """Values that do not fit are computed again, from the images or from what fits, with the same operations."""
    torch.manual_seed(0)
    teacher = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 9, 4),
    ).eval()
    student = copy.deepcopy(teacher)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    source = Source(teacher, torch.randn(50, 2, 8, 8))
    whole = match_responses(student, [source], batch_size=16, progress=False)
    monkeypatch.setattr("brickwork.moments.gathering.ROOM", {"cpu": room, "cuda": room})
    again = match_responses(student, [source], batch_size=16, progress=False)
    for (name, a), b in zip(whole.model.state_dict().items(), again.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_batches_of_two_lengths_share_one_room(monkeypatch):
    """Twice the room was taken where the last batches are one image shorter."""
    monkeypatch.setattr("brickwork.moments.gathering.ROOM", {"cpu": 30_000, "cuda": 30_000})
    net = nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)).eval()
    run = Run(net, Source(net, torch.randn(50, 2, 8, 8)), 16)
    assert len(run.theirs) == 2
    for program in run.theirs:
        program.get(
            run.theirs_by_path[0]["0"].output if program is run.theirs[0] else run.theirs_by_path[1]["0"].output
        )
    held = [sum(state.size for state in program.states) for program in run.theirs]
    assert 0 < sum(held) <= 30_000


def test_the_ridge_of_each_layer_is_chosen_on_images_held_out():
    """Responses that the inputs tell want a small one, responses to other images, which they do not tell, a large one."""
    torch.manual_seed(0)
    teacher = randomise(nn.Sequential(nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 2)))
    x, others = torch.randn(2, 60, 30, dtype=torch.float64)
    told = matched(noisy(teacher, "0"), teacher, x, ridge=None, shrink_to="zero", layers=["0"])
    assert [fit.ridge for fit in told.fits] == [RIDGES[0]]
    untold = [Source(teacher, x, own=others)]
    fits = match_responses(teacher, untold, ridge=None, shrink_to="zero", layers=["0"], progress=False).fits
    assert [fit.ridge for fit in fits] == [RIDGES[-1]]
    assert [fit.ridge for fit in matched(teacher, teacher, x[:4], ridge=None).fits] == [
        RIDGES[0]
    ] * 2  # none to hold out
    few = match_responses(teacher, untold, ridge=(0.2, 5.0), shrink_to="zero", layers=["0"], progress=False).fits
    assert [fit.ridge for fit in few] == [5.0]
    with pytest.raises(RequestError, match="ridge is an empty list"):
        matched(teacher, teacher, x, ridge=())
    for wrong in (-1.0, (0.1, -1.0)):
        with pytest.raises(RequestError, match="ridge must be 0 or more"):
            matched(teacher, teacher, x, ridge=wrong)


class Flattened(nn.Module):
    """Tokens that lie in one dimension with the images, or keep one of their own."""

    def __init__(self, flat):
        super().__init__()
        self.flat, self.a, self.o = flat, nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x):
        tokens = x.reshape(-1, 6) if self.flat else x
        return self.o(torch.tanh(self.a(tokens)).reshape(len(x), -1, 12).mean(1))


def test_tokens_of_one_image_are_held_out_together():
    """Whether they have a dimension of their own or not: the same function gets the same ridges and weights."""
    nets = [randomise(Flattened(flat)) for flat in (True, False)]
    nets[1].load_state_dict(nets[0].state_dict())
    x, others = torch.randn(2, 40, 5, 6, dtype=torch.float64)
    found = [match_responses(net, [Source(net, x, own=others)], ridge=None, progress=False) for net in nets]
    assert [fit.ridge for fit in found[0].fits] == [fit.ridge for fit in found[1].fits]
    for name, value in found[0].model.state_dict().items():
        torch.testing.assert_close(value, found[1].model.state_dict()[name], rtol=1e-9, atol=1e-12)


def test_rows_that_cannot_be_told_apart_by_image_are_not_held_out():
    assert _held_out(torch.zeros(7, 10, 3), range(10)) is None  # tokens first
    assert _held_out(torch.zeros(20, 10, 3), range(10)) is None
    assert _held_out(torch.zeros(10, 4), range(5, 15)).tolist() == [k % 5 == 4 for k in range(5, 15)]
    assert _held_out(torch.zeros(20, 4), range(10)).tolist() == [k // 2 % 5 == 4 for k in range(20)]
