"""Batch norms: folded away without changing the function, and re-estimated on new images."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from moment_nets import SIDE, error, images, randomise, same, small, state, with_activations_in_norms
from torch import nn

from brickwork import zoo
from brickwork.errors import BadData
from brickwork.moments import Source, fold_batch_norm, match_responses, reestimate_batch_norm

WITH_NORMS = ["resnet8", "resnet18", "inception_small", "mobilenetv2", "shuffle_small"]
FULL = ["simplenetv1", "vgg16", "resnet50"]


def norms(model: nn.Module) -> list[nn.Module]:
    return [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


def check_fold(model: nn.Module, x: torch.Tensor, left: int = 0) -> nn.Module:
    before = state(model)
    folded = fold_batch_norm(model, x)
    assert len(norms(folded)) == left
    assert error(folded, model, x) <= 1e-10
    assert same(before, state(model))
    return folded


def test_every_network_with_batch_norms_is_tested():
    built = {n: zoo.build(n) for n in zoo.names()}
    assert {n for n, m in built.items() if norms(m)} == {*WITH_NORMS, *FULL}


@pytest.mark.parametrize("name", [*WITH_NORMS, *FULL])
def test_folding_is_exact_on_the_zoo(name):
    model = small(name) if name in WITH_NORMS else randomise(zoo.build(name, num_classes=3, seed=0))
    check_fold(model, images(1, side=SIDE if name in WITH_NORMS else 8))


def layers(*modules: nn.Module) -> nn.Module:
    return randomise(nn.Sequential(*modules))


@pytest.mark.parametrize(
    "model",
    [
        layers(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)),
        layers(nn.Conv2d(3, 6, 3, groups=3), nn.BatchNorm2d(6, affine=False)),
        layers(nn.Conv2d(3, 6, 3, padding=1, padding_mode="reflect"), nn.BatchNorm2d(6)),
        layers(nn.ConvTranspose2d(3, 4, 3, stride=2), nn.BatchNorm2d(4)),
        layers(nn.Conv2d(3, 6, 1), nn.ConvTranspose2d(6, 4, 3, groups=2, bias=False), nn.BatchNorm2d(4)),
        layers(nn.Flatten(), nn.Linear(3 * 8 * 8, 5, bias=False), nn.BatchNorm1d(5)),
        layers(nn.Flatten(2), nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4)),
    ],
    ids=["plain", "grouped", "reflected", "transposed", "grouped-transposed", "linear", "one-dimensional"],
)
def test_folding_is_exact_for_every_layer(model):
    check_fold(model, images(2, side=8))


class Standardised(nn.Conv2d):
    """Its kernel is computed from the parameter: a scale put into the parameter would be lost."""

    def forward(self, x):
        w = self.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / w.std((1, 2, 3), keepdim=True)
        return F.conv2d(x, w, self.bias)


class Doubled(nn.Conv2d):
    def forward(self, x):
        return 2 * super().forward(x)


class Biased(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 3


class Shared(nn.Module):
    """The convolution's output is read twice; the second norm runs twice."""

    def __init__(self):
        super().__init__()
        self.a, self.n, self.b, self.m = (nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))

    def forward(self, x):
        y = self.a(x)
        return self.m(self.b(y + self.n(y))) + self.m(y)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.n(self.a(x)))


@pytest.mark.parametrize(
    ("model", "left"),
    [
        (layers(Standardised(3, 4, 3), nn.BatchNorm2d(4)), 1),
        (layers(Doubled(3, 4, 3), nn.BatchNorm2d(4)), 1),
        (layers(nn.Flatten(), Biased(192, 4), nn.BatchNorm1d(4)), 1),
        (layers(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4)), 1),
        (layers(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)), 1),
        (randomise(Shared()), 2),
        (randomise(Tied()), 0),
    ],
    ids=["standardised", "doubled", "biased", "relu-between", "no-statistics", "shared", "tied"],
)
def test_what_cannot_be_folded_is_left(model, left):
    check_fold(model, images(2, side=8), left)


def test_an_activation_within_a_norm_outlives_the_folding():
    model, x = with_activations_in_norms(), images(3, side=8)
    before = state(model)
    folded = fold_batch_norm(model, x)
    assert error(folded, model, x) <= 1e-12 and same(before, state(model))
    assert isinstance(folded.k, nn.Identity) and float(folded.n.running_mean.abs().max()) == 0


def test_a_folded_network_remembers_it_and_keeps_its_mode():
    model = small("resnet8").train()
    folded = fold_batch_norm(model, images(1))
    assert folded.training and model.training
    assert folded.brickwork_origin.steps[-1]["op"] == "fold_batch_norm"


# re-estimation


@pytest.mark.parametrize("pieces", [1, 3, 10])
@pytest.mark.parametrize("where", ["image", "vector"])
def test_statistics_are_the_datas_however_it_is_split(pieces, where):
    model = nn.Sequential(nn.BatchNorm2d(3) if where == "image" else nn.BatchNorm1d(3)).double()
    x = images(20, side=4) * 3 + 1
    x = x if where == "image" else x[:, :, 0, 0]
    new = reestimate_batch_norm(model, x.tensor_split(pieces))
    dims = (0, 2, 3) if where == "image" else (0,)
    torch.testing.assert_close(new[0].running_mean, x.mean(dims))
    torch.testing.assert_close(new[0].running_var, x.var(dims))


def test_later_norms_see_what_they_will_see():
    model, x = small("resnet8"), images(30)
    new = reestimate_batch_norm(model, [x])
    with torch.no_grad():
        trained = new(x)
        for m in norms(new):
            m.train()
        by_batch = new(x)
    torch.testing.assert_close(trained, by_batch, rtol=0.05, atol=0.05)  # variance: unbiased against biased


def test_reestimation_leaves_the_rest_alone():
    model = small("mobilenetv2")
    model.train()
    norms(model)[3].eval()
    model.features[2].eval()
    before = state(model)
    new = reestimate_batch_norm(model, images(8).split(4))
    assert same(before, state(model))
    after = state(new)
    assert after["modes"] == before["modes"]
    assert all(m._forward_hooks == {} for m in new.modules())
    assert [m.momentum for m in norms(new)] == [m.momentum for m in norms(model)]
    for name, tensor in before["tensors"].items():
        changed = name.endswith(("running_mean", "running_var"))
        assert torch.equal(after["tensors"][name], tensor) != changed


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.n, self.unused = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x):
        return self.n(x) + self.n(2 * x)


def test_a_norm_that_runs_twice_and_one_that_never_does():
    x = images(6, side=4)
    new = reestimate_batch_norm(Twice().double(), [x])
    torch.testing.assert_close(new.n.running_mean, torch.cat([x, 2 * x]).mean((0, 2, 3)))
    torch.testing.assert_close(new.n.running_var, torch.cat([x, 2 * x]).var((0, 2, 3)))
    assert torch.equal(new.unused.running_var, torch.ones(3, dtype=x.dtype))


def test_reestimation_refuses():
    model = nn.Sequential(nn.BatchNorm1d(3)).double()
    with pytest.raises(BadData, match="no images"):
        reestimate_batch_norm(model, [])
    with pytest.raises(BadData, match="batch of 1 cannot"):
        reestimate_batch_norm(model, [torch.zeros(1, 3, dtype=torch.float64)])
    deep = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)).double()
    x = images(4, side=4)
    x[2, 1, 0, 0] = float("nan")
    with pytest.raises(BadData, match=r"activations at 1 became NaN"):
        reestimate_batch_norm(deep, x.split(2))
    with pytest.raises(BadData, match="no images"):
        reestimate_batch_norm(deep, [x[:0]])


def test_a_batch_norm_without_weight_and_bias_takes_a_matched_response():
    torch.manual_seed(0)
    model = (
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, affine=False), nn.ReLU(), nn.Conv2d(4, 3, 3))
        .double()
        .eval()
    )
    model[1].running_mean.uniform_(-1, 1), model[1].running_var.uniform_(0.5, 2)
    x, student = torch.randn(40, 2, 8, 8, dtype=torch.float64), copy.deepcopy(model)
    with torch.no_grad():
        student[0].weight.normal_()
        result = match_responses(student, [Source(model, x)], ridge=1e-12, shrink_to="zero", progress=False)
        assert (result.model(x) - model(x)).abs().max() < 1e-6
