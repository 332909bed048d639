"""One training function: it learns, repeats itself exactly, and refuses what cannot be right."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

from brickwork import data, zoo
from brickwork.data.images import IGNORE
from brickwork.errors import BadData, BadModel, JobFailed, RequestError
from brickwork.evaluation import evaluate, evaluate_data
from brickwork.origin import origin_of
from brickwork.training import train


@pytest.fixture(scope="module")
def digits():
    return data.load("digits:A@40", size=8, channels=1)


def small(seed=0):
    return zoo.build("lenet", num_classes=5, in_channels=1, seed=seed)


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_lenet_learns_the_digits():
    digits = data.load("digits")
    model = zoo.build("lenet", num_classes=10, seed=0)
    result = train(model, digits.train_images, digits.train_labels, classes=digits.classes)
    assert result.model is model and not model.training
    assert evaluate_data(model, digits).accuracy >= 0.97
    assert origin_of(model).classes == digits.classes
    assert origin_of(model).preprocessing == digits.preprocessing()
    assert origin_of(model).input_shape == (3, 32, 32)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "muon"])
@pytest.mark.parametrize("augment", ["none", "crop+flip"])
def test_a_seed_gives_the_same_bytes(digits, optimizer, augment):
    options = {"epochs": 2, "optimizer": optimizer, "augment": augment, "lr": 0.01, "seed": 5}
    models = [small(), small(), small()]
    state = torch.get_rng_state()
    for model, seed in zip(models, (5, 5, 6), strict=True):
        torch.rand(seed)  # what the caller drew before must not matter
        train(model, digits.train_images, digits.train_labels, **{**options, "seed": seed})
    torch.set_rng_state(state)
    assert same(models[0], models[1])
    assert not same(models[0], models[2])


def test_the_callers_random_numbers_are_left_alone(digits):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    train(small(), digits.train_images, digits.train_labels, epochs=1)
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("schedule", ["onecycle", "cosine", "constant"])
def test_schedules_learn(digits, schedule):
    result = train(small(), digits.train_images, digits.train_labels, epochs=6, schedule=schedule, lr=4e-3)
    assert result.history[-1]["loss"] < 0.5 * result.history[0]["loss"]


def test_floating_images_train_like_the_same_raw_ones(digits):
    raw, prepared = small(), small()
    train(raw, digits.train_images, digits.train_labels, epochs=2, augment="crop")
    images, labels = digits.tensors("train")
    train(prepared, images, labels, epochs=2, augment="crop")
    assert same(raw, prepared)
    assert origin_of(prepared).preprocessing is None


def test_frozen_parameters_stay(digits):
    model = small()
    model.conv1.requires_grad_(False)
    before = copy.deepcopy(model)
    train(model, digits.train_images, digits.train_labels, epochs=1)
    assert torch.equal(model.conv1.weight, before.conv1.weight)
    assert not torch.equal(model.conv2.weight, before.conv2.weight)
    with pytest.raises(BadModel, match="every parameter of the model is frozen"):
        train(model.requires_grad_(False), digits.train_images, digits.train_labels, epochs=1)


def test_a_segmenter_learns_the_ink():
    digits = data.load("digits:0-1@30", size=8, channels=1)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))
    masks = digits.train_masks.copy()
    masks[:, 0] = IGNORE
    train(model, digits.train_images, None, masks=masks, epochs=15, batch_size=10, augment="crop", seed=1)
    found = evaluate(model, digits.test_images, None, masks=digits.test_masks)
    assert found.mean_iou is not None and found.mean_iou > 0.8


def test_another_loss_may_be_given(digits):
    def squared(logits, target):
        return nn.functional.mse_loss(logits, nn.functional.one_hot(target, 5).float())

    result = train(small(), digits.train_images, digits.train_labels, epochs=3, loss=squared)
    assert result.history[-1]["loss"] < 0.3


def test_a_model_with_an_output_object_trains(digits):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = small()

        def forward(self, x):
            return {"features": [], "logits": self.inner(x)}

    assert train(Wrapped(), digits.train_images, digits.train_labels, epochs=1).history


def test_bf16_and_channels_last_on_the_cpu(digits):
    options = {"precision": "bf16", "channels_last": True, "epochs": 8, "lr": 3e-3}
    result = train(small(), digits.train_images, digits.train_labels, **options)
    assert result.history[-1]["loss"] < 1.0


def test_journal_and_tensorboard(digits, tmp_path):
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    validation = (digits.test_images, digits.test_labels)
    options = {"epochs": 2, "metrics": tmp_path / "deep" / "run.jsonl", "tensorboard": tmp_path / "board"}
    result = train(small(), digits.train_images, digits.train_labels, validation=validation, **options)
    rows = [json.loads(line) for line in (tmp_path / "deep" / "run.jsonl").read_text().splitlines()]
    assert rows == result.history and [row["epoch"] for row in rows] == [1, 2]
    assert {"loss", "accuracy", "lr", "images_per_second", "validation_accuracy", "validation_loss"} <= rows[0].keys()
    assert any((tmp_path / "board").iterdir())
    assert len(str(result).splitlines()) == 3 and "validation loss" in result._repr_html_()
    assert json.dumps(result.to_dict())
    assert len(result.plot().lines) == 3


def test_a_loss_that_explodes_is_reported(digits):
    with pytest.raises(JobFailed, match=r"the loss became (nan|inf) in epoch \d+; a smaller lr"):
        train(small(), digits.train_images, digits.train_labels, epochs=20, optimizer="sgd", lr=1e6)


def test_every_wrong_setting_is_told_at_once(digits):
    wrong = {"optimizer": "sdg", "epochs": -1, "lr": float("nan"), "momentum": 1.0, "milestones": [3]}
    with pytest.raises(RequestError) as error:
        train(small(), digits.train_images, digits.train_labels, schedule="cosine", **wrong)
    for word in ("optimizer is 'sdg'", "epochs is -1", "lr is nan", "momentum is 1.0", "milestones"):
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.zeros(3, int)}, r"labels are \(3,\) for 200 images"),
        ({"labels": None}, "needs labels or masks"),
        ({"images": np.zeros((0, 8, 8, 1), np.uint8)}, "no images"),
        ({"images": np.zeros((200, 8, 8), np.uint8)}, "raw images are"),
        ({"masks": np.zeros((200, 8), np.uint8)}, r"masks are \(200, 8\)"),
    ],
)
def test_data_that_does_not_fit_is_refused(digits, change, message):
    given = {"images": digits.train_images, "labels": digits.train_labels, **change}
    with pytest.raises(BadData, match=message):
        train(small(), given.pop("images"), given.pop("labels"), epochs=1, **given)


def test_outputs_that_do_not_fit_are_refused(digits):
    with pytest.raises(BadModel, match="has 5 outputs, but there is a label 9"):
        train(small(), digits.train_images, np.full(200, 9), epochs=1)
    with pytest.raises(BadModel, match="for labels of shape"):
        train(nn.Conv2d(1, 5, 1), digits.train_images, digits.train_labels, epochs=1)


def test_an_unknown_device_is_refused(digits):
    with pytest.raises(RequestError, match="it must be auto, cpu, cuda"):
        train(small(), digits.train_images, digits.train_labels, device="gpu")


def test_a_recorded_step_is_a_matter_of_cuda_alone():
    """Off CUDA nothing is recorded and nothing differs; what cannot be replayed is refused everywhere."""
    images, labels = torch.rand(32, 1, 8, 8), torch.arange(32) % 2
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(64, 2)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    for net, record in zip(nets, (False, True), strict=True):
        train(net, images, labels, epochs=2, batch_size=8, lr=0.1, record=record, device="cpu", progress=False)
    assert torch.equal(nets[0][1].weight, nets[1][1].weight)
    with pytest.raises(RequestError, match="cannot be compiled as well"):
        train(nets[0], images, labels, record=True, compile=True)


def test_a_hook_before_each_step_changes_buffers_and_hears_the_step():
    model, heard = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), []
    train(
        model,
        torch.randn(10, 1, 4, 4),
        torch.arange(10) % 2,
        epochs=2,
        batch_size=5,
        device="cpu",
        progress=False,
        before_step=lambda step, steps: heard.append((step, steps, torch.is_grad_enabled())),
    )
    assert heard == [(k, 4, False) for k in range(4)]


def test_class_255_is_learned_like_any_other():
    """In a mask that number marks what does not count; among labels it is a class."""
    images = np.zeros((32, 8, 8, 1), np.uint8)
    images[::2] = 255
    labels = np.where(np.arange(32) % 2, 0, 255)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 257))
    train(net, images, labels, epochs=20, batch_size=16, lr=0.1, progress=False)
    assert evaluate(net, images, labels).accuracy == 1
    with pytest.raises(BadModel, match="255 outputs, but there is a label 255"):
        train(nn.Sequential(nn.Flatten(), nn.Linear(64, 255)), images, labels, epochs=1, progress=False)


def test_a_network_in_float64_learns_in_float64(digits):
    nets = [small(), small().double()]
    x, y = digits.train_images[:64], digits.train_labels[:64]
    found = [train(net, x, y, epochs=1, batch_size=16, lr=0.01, device="cpu", progress=False) for net in nets]
    assert {p.dtype for p in nets[1].parameters()} == {torch.float64}
    assert found[1].history[-1]["loss"] == pytest.approx(found[0].history[-1]["loss"], abs=1e-4)
    for one, two in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.allclose(one.double(), two, atol=1e-4)
    with pytest.raises(RequestError, match="network is in float64"):
        train(nets[1], x, y, epochs=1, precision="bf16", device="cpu", progress=False)


@pytest.mark.parametrize("kind", ["data set", "raw", "prepared"])
def test_images_that_the_network_does_not_take_are_refused(kind):
    colour = data.load("digits@5", size=16)
    images = colour.train_images if kind == "raw" else torch.rand(len(colour.train_labels), 3, 16, 16)
    given = (colour,) if kind == "data set" else (images, colour.train_labels)
    net = zoo.build("lenet", num_classes=10, in_channels=1)
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(BadModel, match=r"forward fails at conv1 \(lenet\.py:\d+\).*to have 1 channels, but got 3"):
        train(net, *given, epochs=1, progress=False, device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
