"""Several labels an image, and floating targets for a loss of one's own."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import brickwork
from brickwork.errors import BadData, BadModel
from brickwork.evaluation import LabelsEvaluation, evaluate_labels


@pytest.fixture
def several():
    """Images of which each channel is bright or not: three labels, any of them at once."""
    draw = torch.Generator().manual_seed(0)
    labels = (torch.rand(400, 3, generator=draw) < 0.5).long()
    images = 0.3 * torch.rand(400, 3, 6, 6, generator=draw) + 0.5 * labels[:, :, None, None]
    return images, labels


def network(outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, outputs))


HOW = {"epochs": 30, "lr": 0.05, "batch_size": 40, "optimizer": "adam", "augment": "none", "progress": False}


@pytest.mark.parametrize("kind", [torch.int64, torch.float32, torch.bool])
def test_several_labels_are_learned_and_measured(several, kind):
    images, labels = several
    net = network()
    result = brickwork.train(net, images, labels.to(kind), classes=["r", "g", "b"], **HOW)
    assert result.history[-1]["accuracy"] > 0.99 > result.history[0]["accuracy"]
    found = brickwork.eval(net, images, labels.to(kind))
    assert isinstance(found, LabelsEvaluation) and found.classes == ("r", "g", "b")
    assert found.accuracy > 0.99 and found.exact_match > 0.97 and found.mean_average_precision > 0.99
    with torch.no_grad():
        right = (net(images) > 0) == (labels > 0)
    assert found.exact_match == pytest.approx(right.all(1).double().mean().item())
    assert sum(found.confusion[1]) == 400 and found.confusion[1][2] + found.confusion[1][3] == int(labels[:, 1].sum())
    assert "images all right" in str(found) and found.to_dict()["exact_match"] == found.exact_match


def test_a_loader_of_several_labels(several):
    images, labels = several
    nets = network(), network()
    brickwork.train(nets[0], images, labels, **HOW)
    brickwork.train(nets[1], DataLoader(TensorDataset(images, labels), 16), **HOW)
    assert torch.equal(nets[0][2].weight, nets[1][2].weight)
    loader = DataLoader(TensorDataset(images, labels), 16)
    assert brickwork.eval(nets[0], loader).to_dict() == brickwork.eval(nets[0], images, labels).to_dict()


def test_average_precision_is_that_of_scikit_learn():
    draw = np.random.default_rng(0)
    logits, labels = draw.normal(size=(60, 4)).round(1), draw.integers(0, 2, (60, 4))  # rounded: with ties
    labels[:, 3] = 0
    found = evaluate_labels(torch.from_numpy(logits), torch.from_numpy(labels))
    for k in range(3):
        wanted = average_precision_score(labels[:, k], logits[:, k])
        assert found.average_precision[str(k)] == pytest.approx(wanted, abs=1e-9)
    assert found.average_precision["3"] is None


def test_floating_targets_reach_the_callers_loss_as_they_are(several):
    images, _ = several
    targets = images.mean((1, 2, 3)) * 3 - 1.5
    seen = []

    def loss(outputs, target):
        seen.append(target)
        return nn.functional.mse_loss(outputs[:, 0], target)

    net = network(1)
    result = brickwork.train(net, images, targets, loss=loss, **HOW)
    assert "accuracy" not in result.history[-1] and result.history[-1]["loss"] < 0.01 < result.history[0]["loss"]
    assert all(target.is_floating_point() for target in seen)
    assert torch.equal(torch.cat(seen[:10]).sort().values, targets.sort().values)
    with pytest.raises(BadData, match="labels are fractions"):
        brickwork.eval(net, images, targets)


def test_labels_that_cannot_be(several):
    images, labels = several
    with pytest.raises(BadModel, match=r"gives \(40, 2\) for labels of shape \(40, 3\)"):
        brickwork.train(network(2), images, labels, **HOW)
    with pytest.raises(BadData, match="of 0 and 1"):
        brickwork.eval(network(), images, 2 * labels)
    with pytest.raises(BadData, match="labels are float32"):
        brickwork.train(network(), images, 0.5 * labels, **HOW)
    with pytest.raises(BadData, match=r"labels are \(10, 3\) for 400 images"):
        brickwork.train(network(), images, labels[:10], **HOW)


def test_one_output_learns_from_a_column_of_zero_and_one():
    images = torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = (images.mean((1, 2, 3)) > 0.5).long()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 1))
    brickwork.train(net, images, labels[:, None], epochs=30, lr=0.05, optimizer="adamw", progress=False)
    assert brickwork.eval(net, images, labels[:, None]).accuracy > 0.9
    for numbers in (labels, torch.zeros_like(labels)):
        with pytest.raises(BadModel, match=r"one output, and cross-entropy teaches it nothing.*labels\[:, None\]"):
            brickwork.train(net, images, numbers, epochs=1, progress=False)
    with pytest.raises(BadModel, match="one number an image without an axis for it"):
        brickwork.train(nn.Sequential(net, nn.Flatten(0)), images, labels[:, None], epochs=1, progress=False)


def test_cross_entropy_is_not_taken_of_probabilities():
    images, labels = torch.rand(20, 3, 8, 8), torch.arange(20) % 2
    ended = nn.Sequential(nn.Flatten(), nn.Linear(192, 2), nn.Softmax(1))
    with pytest.raises(BadModel, match="take the softmax away"):
        brickwork.train(ended, images, labels, epochs=1, progress=False)
    own = {"loss": lambda p, y: -p.gather(1, y[:, None]).log().mean()}
    assert brickwork.train(ended, images, labels, epochs=1, progress=False, **own).history


def test_a_pair_and_arrays_that_run_backwards_train_as_others(several):
    images, labels = several[0].numpy()[::-1], several[1][:, 0].numpy()[::-1]
    weights = []
    for given in ((images, labels), ((images.copy(), labels.copy()),)):
        net = network(2)
        brickwork.train(net, *given, **{**HOW, "epochs": 1})
        weights.append(net[2].weight)
    assert torch.equal(*weights)
