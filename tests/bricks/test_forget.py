"""`forget`: what is left is as good as before, what is gone is gone, and nothing given is changed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.bricks import forget
from brickwork.bricks.forgetting import _instead, _probe
from brickwork.bricks.subject import prepare
from brickwork.errors import RequestError, UnknownName
from brickwork.evaluation import evaluate_data
from brickwork.origin import origin_of
from brickwork.store import state_hash

QUIET = {"progress": False}


@pytest.fixture(scope="module")
def left(nets, digits):
    return forget(nets["A"], ["3"], digits["A"], **QUIET)


def test_a_class_is_gone_and_the_others_stay(nets, digits, left):
    assert left.before.forgotten > 0.9 and left.after.forgotten < 0.2
    assert left.after.retained > left.before.retained - 0.03
    assert left.after.probed < left.before.probed - 0.1
    assert left.classes == tuple("0124") == origin_of(left.model).classes and left.forgotten == ("3",)
    assert left.used["judged"] == {"images": len(digits["A"].test_labels), "of": "test"}


def test_what_is_said_of_it_is_what_its_answers_are(digits, left):
    rest = brickwork.data.load("digits:0,1,2,4", size=16, channels=1)
    assert evaluate_data(left.model, rest).accuracy == pytest.approx(left.after.retained, abs=1e-12)


def test_the_network_is_left_as_it_was_and_the_same_seed_gives_the_same_bytes(nets, digits, left):
    before = state_hash(nets["A"])
    again = forget(nets["A"], "3", digits["A"], **QUIET)
    assert state_hash(nets["A"]) == before and state_hash(again.model) == state_hash(left.model)


def test_outputs_may_stay(nets, digits):
    kept = forget(nets["A"], [3], digits["A"], outputs="keep", strength=1.0, **QUIET)
    assert kept.classes == tuple("01234") and kept.model(torch.zeros(1, 1, 16, 16)).shape == (1, 5)
    per_class = evaluate_data(kept.model, digits["A"]).per_class
    assert per_class["3"] == pytest.approx(kept.after.forgotten) and kept.after.forgotten < 0.1


def test_it_is_saved_and_loaded_with_what_was_done(tmp_path, left):
    brickwork.save(left.model, tmp_path / "m")
    again = brickwork.load(tmp_path / "m")
    x = torch.randn(3, 1, 16, 16)
    assert torch.equal(again(x), left.model(x))
    said = origin_of(again).provenance["forget"]
    assert said["classes"] == ["3"] and said["ridge"] == left.used["ridge"]  # the one that was chosen


def test_an_image_is_paired_with_one_of_the_next_best_class(nets, digits):
    subject = prepare(nets["A"], None, digits["A"], device=None, output=None, seed=0)
    wrong = subject.samples.of_classes([3], 20, 0)
    others = _instead(subject, wrong, [0, 1, 2, 4], 0)
    second = torch.tensor([0, 1, 2, 4])[subject.logits(wrong)[:, [0, 1, 2, 4]].argmax(1)]
    assert subject.samples.labels[others].tolist() == second.tolist()


def test_a_probe_of_features_that_say_everything_is_right(digits):
    """A last layer that reads the label itself: the probe must recover it."""
    x = torch.eye(3, dtype=torch.float64).repeat(40, 1)
    labels = torch.arange(3).repeat(40)
    net = nn.Sequential(nn.Linear(3, 3).double())
    subject = prepare(net, None, (x, labels), device=None, output=None, seed=0)
    held = subject.samples.held
    answers = _probe(net, subject, subject.samples.use, held).argmax(1)
    assert answers.tolist() == subject.samples.labels[held].tolist()


@pytest.mark.parametrize(
    ("arch", "more"), [("resnet8", {"width": 8}), ("vit_small", {"image_size": 16, "depth": 2, "dim": 24})]
)
def test_residual_networks_and_transformers(arch, more):
    images = brickwork.data.load("digits:0-2@30", size=16, channels=1)
    net = zoo.build(arch, num_classes=3, in_channels=1, seed=0, **more)
    result = forget(net, [1], images, images=30, **QUIET)
    assert result.model(torch.zeros(2, 1, 16, 16)).shape == (2, 2)


def test_few_images_for_many_features_do_not_cost_the_other_classes_much():
    """A last layer of 200 inputs and 120 images: the least ridge fits noise, and a larger one is chosen."""
    generator = torch.Generator().manual_seed(0)
    means = 0.9 * torch.randn(4, 200, generator=generator)
    labels = torch.arange(4).repeat(150)
    x = means[labels] + 2.5 * torch.randn(600, 200, generator=generator)
    net = nn.Sequential(nn.Linear(200, 4))
    with torch.no_grad():
        net[0].weight.copy_(means)
        net[0].bias.copy_(-means.square().sum(1) / 2)
    few = {"images": 90, **QUIET}
    chosen, least = forget(net, [1], (x, labels), **few), forget(net, [1], (x, labels), ridge=1e-4, **few)
    assert chosen.used["ridge"] > 1e-4 == least.used["ridge"]
    assert chosen.after.retained > least.after.retained + 0.05 and chosen.after.forgotten < 0.2
    assert least.note == "" and (chosen.used["lost"] <= 0.01) == (chosen.note == "")
    strict = forget(net, [1], (x, labels), tolerance=0.0, strength=50, **few)
    assert strict.used["lost"] > 0 and strict.note in str(strict)
    assert (
        "every ridge costs the other classes more than the tolerance of 0.00%; the largest, 1, was taken" in strict.note
    )


def test_wrong_requests(nets, digits):
    with pytest.raises(RequestError, match=r"tolerance`? is not used beside `?ridge"):
        forget(nets["A"], [3], digits["A"], ridge=0.1, tolerance=0.1, **QUIET)
    with pytest.raises(RequestError, match="all 5 classes are to be forgotten; leave at least one"):
        forget(nets["A"], "0-4", digits["A"], **QUIET)
    with pytest.raises(UnknownName, match="'cat'"):
        forget(nets["A"], ["cat"], digits["A"], **QUIET)
    with pytest.raises(RequestError, match="no classes were asked for"):
        forget(nets["A"], None, digits["A"], **QUIET)
    with pytest.raises(RequestError, match="strength is 0; it must be above 0"):
        forget(nets["A"], [3], digits["A"], strength=0, **QUIET)
    with pytest.raises(RequestError, match="outputs is 'hide'"):
        forget(nets["A"], [3], digits["A"], outputs="hide", **QUIET)


class Several(nn.Module):
    """Two outputs, neither of which is called logits."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.other = nn.Linear(4, 16), nn.Linear(16, 3), nn.Linear(16, 5)

    def forward(self, x):
        seen = self.body(x).relu()
        return {"main": self.head(seen), "other": self.other(seen)}


class Bare(nn.Module):
    """The last layer is a weight of the network itself."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.weight = nn.Linear(4, 16), nn.Parameter(torch.randn(3, 16))

    def forward(self, x):
        return nn.functional.linear(self.body(x).relu(), self.weight)


def test_the_output_that_is_named_is_probed_as_well():
    torch.manual_seed(0)
    x = torch.randn(90, 4)
    result = forget(Several(), [1], (x, torch.arange(90) % 3), output="main", **QUIET)
    assert result.before.probed is not None and result.model(x)["main"].shape == (90, 2)


def test_a_norm_behind_the_last_layer_is_not_what_is_probed():
    torch.manual_seed(0)
    x, y = torch.randn(120, 4), torch.arange(120) % 3
    body = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    norm = nn.Sequential(*body, nn.BatchNorm1d(3)).eval()
    plain, normed = (
        _probe(s.whole, s, s.samples.use, s.samples.held)
        for s in (prepare(net, None, (x, y), device=None, output=None, seed=0) for net in (body, norm))
    )
    assert torch.equal(plain, normed)


def test_features_that_cannot_be_watched_are_not_reported():
    torch.manual_seed(0)
    result = forget(Bare(), [1], (torch.randn(90, 4), torch.arange(90) % 3), **QUIET)
    assert result.before.probed is None and result.before.forgotten is not None
