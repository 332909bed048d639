"""Evaluation against scikit-learn and by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, log_loss, roc_auc_score
from torch import Tensor, nn

from brickwork import data, zoo
from brickwork.data.images import IGNORE
from brickwork.errors import BadData, BadModel
from brickwork.evaluation import evaluate, evaluate_data, measure_logits, predict
from brickwork.measures import auroc, calibration_error
from brickwork.origin import Origin, Preprocessing, attach
from brickwork.outputs import logits_of

NAMES = ("cat", "dog", "fox")


def sample(count=200, seed=0):
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (count,), generator=source)
    return 2 * nn.functional.one_hot(labels, 3) + torch.randn(count, 3, generator=source), labels


def test_measures_agree_with_scikit_learn():
    logits, labels = sample()
    found = evaluate(nn.Identity(), logits, labels, classes=NAMES, batch_size=7)
    share = logits.double().softmax(1).numpy()
    predicted = logits.argmax(1).numpy()
    assert found.accuracy == pytest.approx((predicted == labels.numpy()).mean())
    assert found.confusion == confusion_matrix(labels, predicted).tolist()
    assert found.nll == pytest.approx(log_loss(labels, share), rel=1e-6)
    for i, name in enumerate(NAMES):
        assert found.auroc[name] == pytest.approx(roc_auc_score(labels == i, share[:, i]))
        assert found.per_class[name] == pytest.approx((predicted == i)[labels == i].mean())


def test_auroc_counts_ties_half_and_needs_both_kinds():
    scores = torch.randint(0, 4, (300,), generator=torch.Generator().manual_seed(1)).float()
    positive = torch.rand(300, generator=torch.Generator().manual_seed(2)) < 0.3
    assert auroc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))
    assert auroc(scores, torch.zeros(300, dtype=torch.bool)) is None


def test_one_output_is_ranked_by_its_logit():
    logits = torch.tensor([[3.0], [1.0], [2.0]])
    found = measure_logits(logits, torch.zeros(3, dtype=torch.int64))
    assert found.accuracy == 1.0 and found.auroc == {"0": None}


def test_calibration_error_by_hand():
    # four answers at 0.9 of which one is right, two at 0.6 of which both are
    confidence = torch.tensor([0.9, 0.9, 0.9, 0.9, 0.6, 0.6])
    right = torch.tensor([True, False, False, False, True, True])
    assert calibration_error(confidence, right) == pytest.approx((4 * 0.65 + 2 * 0.4) / 6)
    assert calibration_error(torch.ones(5), torch.ones(5, dtype=torch.bool)) == 0


def test_masks_by_hand():
    truth = torch.tensor([[[0, 0, 1], [1, 1, IGNORE]]])
    predicted = torch.tensor([[[0, 1, 1], [1, 0, 0]]])
    logits = nn.functional.one_hot(predicted, 2).permute(0, 3, 1, 2).float() * 5
    found = evaluate(nn.Identity(), logits, None, classes=("ground", "thing"), masks=truth)
    assert found.accuracy == pytest.approx(3 / 5)
    assert found.iou == {"ground": pytest.approx(1 / 3), "thing": pytest.approx(2 / 4)}
    assert found.mean_iou == pytest.approx((1 / 3 + 1 / 2) / 2)
    told = found.to_dict()
    assert told["pixel_accuracy"] == found.accuracy and "auroc" not in told
    assert "mean IoU" in str(found)


@dataclass
class Output:
    loss: float
    logits: Tensor


@dataclass
class Nameless:
    first: Tensor


ONE = torch.ones(2, 3)


@pytest.mark.parametrize(
    "output",
    [ONE, (ONE, 1), [ONE], {"logits": ONE, "a": ONE * 2}, {"x": ONE}, Output(0.0, ONE), Nameless(ONE)],
    ids=lambda o: type(o).__name__,
)
def test_logits_of_any_output(output):
    assert torch.equal(logits_of(output), ONE)


def test_one_of_several_tensors_is_not_guessed():
    with pytest.raises(BadModel, match=r"'features', 'prediction'.*none is called 'logits'"):
        logits_of({"features": ONE, "prediction": ONE, "more": 1})
    assert logits_of({"aux": ONE * 2, "out": ONE}) is ONE


@pytest.mark.parametrize("output", [None, "text", {}, {"a": 1}])
def test_no_logits_is_refused(output):
    with pytest.raises(BadModel, match="returned no tensor"):
        logits_of(output)


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(), nn.Linear(3, 3))
    model.train()
    model[0].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = predict(model, torch.randn(10, 3, generator=torch.Generator().manual_seed(0)), batch_size=3)
    second = predict(model, torch.randn(10, 3, generator=torch.Generator().manual_seed(0)), batch_size=10)
    torch.testing.assert_close(first, second)
    assert [m.training for m in model.modules()] == [True, False, True, True]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.is_grad_enabled()


def test_raw_images_go_through_the_models_preprocessing():
    model = nn.Flatten()
    attach(model, Origin(preprocessing=Preprocessing(size=(2, 2), channels=1, mean=(0.5,), std=(0.25,))))
    found = predict(model, np.full((1, 4, 4, 3), 255, np.uint8))
    torch.testing.assert_close(found, torch.full((1, 4), 2.0))


class Mean(nn.Module):
    """Scores five classes by the brightness of five rows."""

    def forward(self, images):
        return images.mean((1, 3))[:, :5]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=["float64", "bfloat16"])
def test_images_are_given_in_the_models_precision(dtype):
    model = zoo.build("lenet", num_classes=3, in_channels=1, seed=0).to(dtype)
    images = np.random.default_rng(0).integers(0, 255, (4, 16, 16, 1), np.uint8)
    expected = model.eval()((torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255).to(dtype)).float()
    found = predict(model, images)
    assert found.dtype == torch.float32 and torch.equal(found, expected.detach())
    assert next(model.parameters()).dtype == dtype


def test_classes_are_matched_by_name():
    model = Mean()
    attach(model, Origin(classes=tuple("01234")))
    whole = evaluate_data(model, data.load("digits:A", size=8))
    some = evaluate_data(model, data.load("digits:3,1", size=8))
    assert some.classes == tuple("01234")
    assert some.per_class["3"] == whole.per_class["3"] and some.per_class["0"] is None
    with pytest.raises(BadData, match=r"does not know '7' .* Select those it knows: digits:1\.$"):
        evaluate_data(model, data.load("digits:1,7", size=8))
    with pytest.raises(BadData, match="None of them is in digits:7; give images of the model's classes"):
        evaluate_data(model, data.load("digits:7", size=8))


def test_results_print_and_serialise():
    logits, labels = sample()
    found = evaluate(nn.Identity(), logits, labels, classes=("<b>", "dog", "fox"))
    assert json.loads(json.dumps(found.to_dict()))["classes"] == ["<b>", "dog", "fox"]
    assert str(found).splitlines()[0].startswith("200 images: accuracy ")
    assert len(str(found).splitlines()) == 5
    assert "&lt;b&gt;" in found._repr_html_()
    assert replace(found, accuracy=0.5).accuracy == 0.5


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (torch.tensor([0, 1]), None, "3 images and labels of shape"),
        (torch.tensor([0, 1, 3]), None, "labels run from 0 to 3; the model has 3 outputs"),
        (torch.tensor([0, 1, 2]), ["a"], "1 class names for 3 outputs"),
    ],
)
def test_what_does_not_fit_is_refused(labels, classes, message):
    with pytest.raises(BadData, match=message):
        evaluate(nn.Identity(), torch.eye(3), labels, classes=classes)


def test_a_pair_and_arrays_that_run_backwards():
    logits, labels = sample()
    found = evaluate(nn.Identity(), logits, labels).accuracy
    assert evaluate(nn.Identity(), (logits, labels)).accuracy == found
    assert evaluate(nn.Identity(), logits.numpy()[::-1], labels.numpy()[::-1]).accuracy == found


def test_no_images_is_refused():
    with pytest.raises(BadData, match="no images"):
        evaluate(nn.Identity(), torch.zeros(0, 3), torch.zeros(0))


@pytest.mark.parametrize("count", [10, 100])  # from 64 images on, the layout in memory is tried first
def test_logits_that_are_no_numbers_are_told(count):
    net = zoo.build("lenet", num_classes=3, seed=0)
    with torch.no_grad():
        net.fc3.bias[1] = float("nan")
    found = evaluate(net, np.zeros((count, 32, 32, 3), np.uint8), np.arange(count) % 3)
    assert f"{count} images are no numbers" in found.note


def test_images_that_the_network_does_not_take_are_refused():
    net = zoo.build("lenet", num_classes=10, in_channels=1)
    colour = data.load("digits@5", size=16)
    with pytest.raises(
        BadModel, match=r"forward fails at conv1 \(lenet\.py:\d+\).* give images of the size and channels"
    ):
        evaluate_data(net, colour)


def test_one_output_takes_labels_of_zero_and_one_in_a_column():
    """Also where the network answers a number an image, without an axis for it."""
    logits, truth = torch.tensor([[1.5], [-2.0], [3.0], [-0.5]]), torch.tensor([1, 0, 0, 1])
    result = evaluate(nn.Identity(), logits, truth[:, None])
    assert result.accuracy == 0.5 and result.auroc == {"0": 0.5} and not result.note
    assert evaluate(nn.Flatten(0), logits, truth[:, None]).confusion == result.confusion
    with pytest.raises(BadData, match=r"one output, and class numbers name its one class.*labels\[:, None\]"):
        evaluate(nn.Identity(), logits, truth)
    alone = evaluate(nn.Identity(), logits, torch.zeros(4, dtype=torch.int64))
    assert "every image is of it; its accuracy says nothing" in alone.note


def test_one_output_against_images_of_other_classes():
    images = data.load("digits:A@20", size=8).select([0, 1])
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 1))
    attach(net, Origin(classes=("1",)))
    result = evaluate(net, images)
    same = evaluate(net, images.test_images, torch.from_numpy(images.test_labels)[:, None], classes=["1"])
    assert result.classes == ("1",) and result.confusion == same.confusion and result.auroc == same.auroc
    assert "answers '1' where it is above 0; images of 0 are without" in result.note


def test_probabilities_are_read_as_such_and_said():
    logits, truth = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 3
    plain, behind = evaluate(nn.Identity(), logits, truth), evaluate(nn.Softmax(1), logits, truth)
    assert behind.nll == pytest.approx(plain.nll, abs=1e-5) and behind.confusion == plain.confusion
    assert behind.calibration_error == pytest.approx(plain.calibration_error, abs=1e-5)
    assert "sum to 1, as behind a softmax" in behind.note and not plain.note
    several = evaluate(nn.Sigmoid(), logits, (logits > 0.5).long())
    assert "all outputs lie in 0..1" in several.note and several.mean_average_precision == 1.0
