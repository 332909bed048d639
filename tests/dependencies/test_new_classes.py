"""New classes out of known logits: the base is untouched, the problem is solved, the folder comes back."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import data, zoo
from brickwork.dependencies import fit_head, heads
from brickwork.dependencies.depths import deeper_classes, several_depths
from brickwork.dependencies.new_classes import add_classes
from brickwork.errors import BadData, BadModel, RequestError
from brickwork.evaluation import evaluate_data
from brickwork.origin import origin_of
from brickwork.prediction import predict
from brickwork.training import train


def digits(spec):
    return data.load(spec, size=16, channels=1)


@pytest.fixture(scope="module")
def base():
    """A lenet that knows 0 to 7, trained on 60 images a class."""
    images = digits("digits:0-7@60")
    model = zoo.build("lenet", num_classes=8, in_channels=1, seed=0)
    train(
        model,
        images.train_images,
        images.train_labels,
        classes=images.classes,
        epochs=6,
        batch_size=32,
        lr=5e-3,
        optimizer="adamw",
        device="cpu",
        progress=False,
    )
    return model.eval()


@pytest.fixture(scope="module")
def grown(base):
    return add_classes(base, digits("digits:8-9"), base_data=digits("digits:0-7@40"))


def blobs(seed=0, known=4, new=2, rows=60):
    """Logits of known classes around their own axis, of new ones between two."""
    rng = np.random.default_rng(seed)
    labels, fresh = np.arange(rows) % known, np.arange(rows) % new
    between = np.stack([5 * (np.eye(known)[k] + np.eye(known)[k + 1]) for k in range(new)])
    noise = rng.normal(size=(2, rows, known))
    return between[fresh] + noise[0], fresh, 5 * np.eye(known)[labels] + noise[1], labels


def test_first_logits_are_the_models_bit_for_bit(base, grown):
    images = digits("digits").test_images
    assert torch.equal(predict(grown, images)[:, :8], predict(base, images))
    x = zoo.example_input(base).double()
    with torch.no_grad():
        assert (copy.deepcopy(grown).double()(x)[:, :8] - copy.deepcopy(base).double()(x)).abs().max() <= 1e-10


def test_joint_accuracy(base, grown):
    known, new, whole = digits("digits:0-7"), digits("digits:8-9"), digits("digits")
    assert evaluate_data(base, known).accuracy > 0.93
    assert evaluate_data(grown, whole).accuracy > 0.88 and evaluate_data(grown, new).accuracy > 0.75
    # without the known classes' images nothing says where the new ones end
    blind = add_classes(base, new, strength=1e-3)
    assert evaluate_data(blind, whole).accuracy < evaluate_data(grown, whole).accuracy


@pytest.mark.parametrize("how", ["train", "ridge"])
def test_few_images_a_class(base, how):
    found = add_classes(base, digits("digits:9@5"), base_data=digits("digits:0-7@20"), how=how)
    assert origin_of(found).classes == tuple("012345679")
    assert evaluate_data(found, digits("digits:0-7,9")).accuracy > 0.8


def test_a_folder_brings_it_back(grown, tmp_path):
    brickwork.save(grown, tmp_path / "ten", provenance={"note": "grown"})
    again = brickwork.load(tmp_path / "ten")
    images = digits("digits").test_images
    assert origin_of(again).classes == tuple("0123456789") and type(again) is type(grown)
    assert torch.equal(predict(again, images), predict(grown, images))
    # and it grows again
    more = add_classes(again, (images[:40], np.arange(40) % 2), classes=["odd", "even"], strength=1e-2)
    brickwork.save(more, tmp_path / "twelve")
    assert torch.equal(predict(brickwork.load(tmp_path / "twelve"), images), predict(more, images))


def test_nothing_else_changes(base):
    state, record = copy.deepcopy(base.state_dict()), origin_of(base)
    generator = torch.get_rng_state()
    options = {"base_data": digits("digits:0-7@5"), "how": "ridge"}
    one, two = (add_classes(base, digits("digits:8-9@10"), **options) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), generator) and origin_of(base) is record
    assert all(torch.equal(value, base.state_dict()[name]) for name, value in state.items())
    assert torch.equal(one.more.weight, two.more.weight) and torch.equal(one.more.bias, two.more.bias)
    assert not one.training and one.model is not base


def test_any_classifier_grows():
    class Pair(nn.Module):
        def forward(self, x):
            return {"aux": x.sum(), "logits": x.flatten(1)}

    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    found = add_classes(Pair(), (x[:, :, None, None], torch.arange(30) % 2), strength=1e-2)
    assert torch.equal(found(x[:, :, None, None])[:, :3], x)
    assert origin_of(found).classes == ("0", "1", "2", "3", "4")


def test_training_reaches_the_minimum():
    """The problem is convex: at the solution the gradient of the weighted cross-entropy over all classes is zero."""
    new, y, known, z = blobs()
    head = fit_head(new, y, known, z, strength=1e-2)
    theta, bias = head.theta.clone().requires_grad_(), head.bias.clone().requires_grad_()
    rows = torch.tensor(np.concatenate([new, known]))
    labels = torch.tensor(np.concatenate([y + 4, z]))
    weights = 1 / torch.bincount(labels)[labels].double()
    weights = weights / weights.sum()
    scores = torch.cat([rows, rows @ theta.T + bias], 1)
    size = (weights[:, None] * rows.square()).sum(0).mean()
    value = (weights * nn.functional.cross_entropy(scores, labels, reduction="none")).sum()
    (value + 1e-2 * size * theta.square().sum()).backward()
    assert theta.grad.abs().max() < 1e-5 and bias.grad.abs().max() < 1e-5
    assert (head(rows).argmax(1) == labels).double().mean() > 0.95


def test_ridge_without_known_images_is_least_squares():
    new, y, _, _ = blobs()
    head = fit_head(new, y, how="ridge", strength=1e-9)
    inputs = np.c_[new, np.ones(len(new))]
    wanted = np.linalg.lstsq(inputs, np.eye(2)[y], rcond=None)[0].T[:, :-1]
    direction = head.theta.numpy() / np.abs(head.theta.numpy()).max()
    np.testing.assert_allclose(direction, wanted / np.abs(wanted).max(), atol=1e-5)
    top = head(torch.tensor(new))
    assert 0.93 <= float((top.argmax(1) >= 4).double().mean()) <= 0.97


def test_classes_weigh_the_same():
    """Rows given twice change nothing."""
    new, y, known, z = blobs()
    once = fit_head(new, y, known, z, strength=1e-2)
    twice = fit_head(new, y, np.r_[known, known], np.r_[z, z], strength=1e-2)
    torch.testing.assert_close(once.theta, twice.theta, atol=1e-4, rtol=0)


def test_bad_input(base):
    fresh, known = digits("digits:8-9@5"), digits("digits:0-7@5")
    images, labels = fresh.train_images, fresh.train_labels
    with pytest.raises(BadData, match="knows '7' already; select new classes"):
        add_classes(base, digits("digits:7-8@5"))
    with pytest.raises(BadData, match="base_data holds '8', '9', which the model does not know"):
        add_classes(base, fresh, base_data=fresh)
    with pytest.raises(BadData, match="one new class alone cannot be told from anything"):
        add_classes(base, digits("digits:8@5"))
    with pytest.raises(BadData, match="no training image of '9'"):
        add_classes(base, dataclasses.replace(fresh, train_labels=labels * 0))
    with pytest.raises(BadData, match="there is no image of new class 1"):
        add_classes(base, (images, labels * 2), base_data=known, classes="abc")
    with pytest.raises(BadData, match=r"run from 0 to 1; they must be numbers 0 to 0"):
        add_classes(base, (images, labels), base_data=known, classes=["a"])
    with pytest.raises(BadData, match="labels of the known classes run from 0 to 9"):
        add_classes(base, fresh, base_data=(known.train_images, np.arange(len(known.train_images)) % 10))
    with pytest.raises(BadData, match="10 images of new classes and labels of shape"):
        add_classes(base, (images, labels[:3]))
    with pytest.raises(BadData, match="no images of new classes"):
        add_classes(base, (images[:0], labels[:0]))
    with pytest.raises(BadData, match="not all different"):
        add_classes(base, fresh, classes=["a", "a"])
    with pytest.raises(BadData, match="3 names for the 2 new classes"):
        add_classes(base, fresh, classes="abc")
    with pytest.raises(BadModel, match="not one row of logits an image"):
        add_classes(nn.Identity(), (torch.randn(4, 3, 2, 2), torch.arange(4) % 2))


def test_bad_numbers():
    new, y, known, z = blobs()
    with pytest.raises(RequestError, match="how is 'lasso'; it must be train or ridge"):
        fit_head(new, y, how="lasso")
    for wrong in (0, -1, float("nan")):
        with pytest.raises(RequestError, match="strength is"):
            fit_head(new, y, strength=wrong)
    with pytest.raises(BadData, match="both logits and labels of the known classes, or neither"):
        fit_head(new, y, known)
    with pytest.raises(BadData, match="logits of 3 and of 4 known classes"):
        fit_head(new, y, known[:, :3], z)
    with pytest.raises(BadData, match="row"):
        fit_head(np.where(new == new[5, 0], np.nan, new), y)


def test_new_classes_out_of_features(base, tmp_path):
    """The same promises, and at least as good: what the last layer reads knows more than its logits."""
    new, known = digits("digits:8-9"), digits("digits:0-7@40")
    on_logits, on_features = (add_classes(base, new, base_data=known, on=on) for on in ("logits", "features"))
    images = digits("digits").test_images
    assert torch.equal(predict(on_features, images)[:, :8], predict(base, images))
    right = [evaluate_data(m, digits("digits")).accuracy for m in (on_logits, on_features)]
    assert right[1] >= right[0] - 0.005 and right[1] > 0.9
    again = brickwork.load(brickwork.save(on_features, tmp_path / "grown"))
    assert torch.equal(predict(again, images), predict(on_features, images))
    assert origin_of(again).classes == tuple("0123456789")
    more = add_classes(again, (images[:40], np.arange(40) % 2), classes=["odd", "even"], strength=1e-2)
    assert predict(more, images).shape[1] == 12
    with pytest.raises(RequestError, match="on is 'both'"):
        add_classes(base, new, on="both")
    with pytest.raises(BadModel, match="not the output of one linear layer"):
        add_classes(on_logits, digits("digits:9@5"), classes=["nine"], base_data=known, on="features")
    with pytest.raises(BadData, match="rows of 3 and 3 features for"):
        fresh, marks, logits, labels = blobs()
        fit_head(fresh, marks, logits, labels, features=(fresh[:, :3], logits[:5, :3]))


def test_new_classes_out_of_several_depths(base, tmp_path):
    """The base's logits stay as they are, the folder comes back, and on digits it is no worse than features."""
    known, new, images = digits("digits:0-7@40"), digits("digits:8-9"), digits("digits").test_images
    deep, on_features = (add_classes(base, new, base_data=known, on=on) for on in ("depths", "features"))
    assert torch.equal(predict(deep, images)[:, :8], predict(base, images))
    right = [evaluate_data(m, digits("digits")).accuracy for m in (deep, on_features)]
    assert right[0] > right[1] - 0.01 and right[0] > 0.9
    again = brickwork.load(brickwork.save(deep, tmp_path / "grown"))
    assert torch.equal(predict(again, images), predict(deep, images))
    assert origin_of(again).classes == origin_of(deep).classes and len(origin_of(again).classes) == 10
    assert not any(m._forward_hooks for m in [*base.modules(), *deep.modules()])


def test_scaled_features_give_a_head_for_features_as_they_are():
    """Of other units, the same answers: what scaling does is undone in Θ and b."""
    logits, labels, base_logits, base_labels = blobs()
    rng = np.random.default_rng(1)
    features, base_features = (x @ rng.normal(size=(4, 6)) for x in (logits, base_logits))
    units = 10.0 ** np.arange(-2, 4)
    heads = [
        fit_head(
            logits,
            labels,
            base_logits,
            base_labels,
            features=(features * u + u, base_features * u + u),
            scaled=True,
            strength=1e-2,
        )
        for u in (np.ones(6), units)
    ]
    one, two = (
        h(torch.tensor(logits), torch.tensor(features * u + u)) for h, u in zip(heads, (1.0, units), strict=True)
    )
    torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)


class Tokens(nn.Module):
    """A network of one size of map: tokens through six layers."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(5, 5) for _ in range(6))
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        x = x.flatten(2).mT[..., :1].expand(-1, -1, 5)
        for block in self.blocks:
            x = x + block(x).relu()
        return self.head(x.mean(1))


def test_depths_are_the_last_of_each_size_or_evenly_spread():
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2, 3, 1),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4, 3),
    )
    assert several_depths(net, torch.zeros(2, 1, 8, 8)) == ["1", "3", "5", "7"]
    assert several_depths(Tokens(), torch.zeros(2, 1, 4, 4)) == ["blocks.1", "blocks.2", "blocks.4", "blocks.5"]
    with pytest.raises(BadModel, match="no layer of the model answers with maps or tokens"):
        several_depths(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), torch.zeros(2, 1, 4, 4))
    with pytest.raises(BadModel, match="no layer 'nine'"):
        deeper_classes(net, ["nine"], 4, 1)


def test_a_strength_is_chosen_with_every_known_class_that_has_images(monkeypatch):
    """Of many rows some are taken; a known class of few images is not lost by that."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), [300, 300, 5, 3])
    known = rng.normal(size=(len(labels), 4)) + 3 * np.eye(4)[labels]
    fresh = rng.normal(size=(60, 4)) + np.array([2, 2, -2, 0])
    fitted, fit = [], heads._fit
    monkeypatch.setattr(heads, "ENOUGH", 60)
    monkeypatch.setattr(heads, "MANY", 100)

    def watched(rows, *args):
        fitted.append(torch.bincount(rows.labels, minlength=5).tolist())
        return fit(rows, *args)

    monkeypatch.setattr(heads, "_fit", watched)
    fit_head(fresh, np.zeros(60, int), known, labels)
    assert fitted[0][2:4] == [3, 2] and fitted[0][0] < 40 and fitted[0][4] == 40  # two thirds are inside
    assert fitted[-1] == [300, 300, 5, 3, 60]


@pytest.mark.parametrize("on", ["features", "branch"])
def test_a_last_layer_that_is_called_by_name(on):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.low, self.up, self.fc = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Linear(4, 3)

        def forward(self, x):
            return self.fc(input=self.up(self.low(x)).mean((2, 3)))

    net, images = Named().eval(), np.random.default_rng(0).integers(0, 255, (6, 8, 8, 1), np.uint8)
    training = {"epochs": 1} if on == "branch" else None
    known = (images, np.arange(6) % 3)
    grown = add_classes(net, (images, np.arange(6) % 2), base_data=known, on=on, **(training or {}))
    assert torch.equal(predict(grown, images)[:, :3], predict(net, images))


@pytest.mark.parametrize("how", heads.HOWS)
def test_the_papers_form_has_no_bias_and_no_base_images(how):
    fresh, labels, known, known_labels = blobs()
    head = fit_head(fresh, labels, how=how, bias=False)
    assert not head.bias.any()
    scores = torch.tensor(fresh) @ head.theta.T
    assert (scores.argmax(1).numpy() == labels).mean() > 0.9  # told apart from each other
    joint = fit_head(fresh, labels, known, known_labels, how=how, bias=False)
    assert not joint.bias.any() and not torch.equal(joint.theta, head.theta)


def test_no_bias_where_one_is_needed(base):
    for on in ("depths", "branch"):
        with pytest.raises(RequestError, match=f"bias is off, and on {on} needs one"):
            add_classes(base, digits("digits:8-9"), base_data=digits("digits:0-7@10"), on=on, bias=False)
