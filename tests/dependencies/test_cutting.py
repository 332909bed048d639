"""Cutting a link: the loss term is the formula, reaches the training loop, and lowers the coefficient."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

from brickwork import data
from brickwork.dependencies import CoefficientPenalty, CovariancePenalty, CovLasso, DependencyMap, pairs_above
from brickwork.dependencies.cutting import parse_pair
from brickwork.errors import BadModel, RequestError, UnknownName
from brickwork.prediction import predict
from brickwork.training import train


def small_map():
    coef = np.zeros((4, 4))
    coef[0, 1], coef[1, 0], coef[2, 0], coef[3, 1], coef[3, 2] = 0.9, 0.2, -0.5, 0.3, 0.05
    return DependencyMap(tuple("abcd"), tuple("abcd"), coef, {}, {"within": True})


def test_the_formula():
    logits = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = (logits[:, 0] * logits[:, 2]).mean().abs() + (logits[:, 1] * logits[:, 3]).mean().abs()
    for pairs in ([(0, 2), (3, 1)], [(2, 0), (0, 2), (1, 3)]):
        torch.testing.assert_close(CovariancePenalty(pairs, strength=2)(logits), 2 * wanted)
    one = CovariancePenalty((0, 2))
    torch.testing.assert_close(one(torch.zeros(1), logits, torch.zeros(50)), one(logits))
    assert one(logits.bfloat16()).dtype == torch.float32
    assert CovariancePenalty((0, 2), strength=0)(logits) == 0
    masks = logits[:, :, None, None].expand(-1, -1, 2, 3)  # a segmenter's: the mean is over pixels too
    torch.testing.assert_close(one(masks), one(logits))


def test_pairs_above_a_threshold():
    found = small_map()
    assert pairs_above(found, 0.2) == [(0, 1), (0, 2), (1, 3)]
    assert pairs_above(found, 0.2, {"a": "x", "b": "x", "c": "y", "d": "y"}) == [(0, 2), (1, 3)]
    assert pairs_above(found, 0.4, "xxyy") == [(0, 2)]
    assert pairs_above(found, 2) == []


@pytest.fixture(scope="module")
def started():
    images = data.load("digits@100", size=16, channels=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 10))
    train(model, images.train_images, images.train_labels, classes=images.classes, epochs=10, lr=5e-3, **COMMON)
    return model, images


COMMON = {"batch_size": 60, "optimizer": "adamw", "device": "cpu", "progress": False}


def test_training_cuts_the_link(started):
    """Digits, the strongest link of a small network: each penalty brings down what it is made of."""
    start, images = started

    def coefficients(model):
        fit = CovLasso(lam=0.05, relative=True, threads=1).fit(predict(model, images.test_images))
        return np.abs(fit.coef_)

    before = coefficients(start)
    pair = tuple(map(int, np.unravel_index(int(before.argmax()), before.shape)))
    covariance, coefficient, right = {}, {}, {}
    for name, penalty in {
        "none": None,
        "covariance": CovariancePenalty(pair, strength=0.03),
        "coefficient": CoefficientPenalty(pair),
    }.items():
        model = copy.deepcopy(start)
        train(model, images.train_images, images.train_labels, epochs=10, lr=2e-3, penalty=penalty, **COMMON)
        logits = predict(model, images.test_images)
        covariance[name] = float(CovariancePenalty(pair)(logits))
        coefficient[name] = float(coefficients(model)[pair])
        right[name] = float((logits.argmax(1).numpy() == images.test_labels).mean())
    assert covariance["covariance"] < 0.2 * covariance["none"]
    assert coefficient["coefficient"] < 0.05 < coefficient["none"]
    assert min(right.values()) > right["none"] - 0.02


def test_the_coefficient_is_what_vanishes():
    """Zero covariance is not zero coefficient: f_2 = f_0 + f_1 with f_1 chosen so that E f_0 f_2 = 0."""
    rng = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 4000, generator=rng, dtype=torch.float64)
    logits = torch.stack([a, b - a, b, torch.zeros_like(a)], 1)  # f_2 = f_0 + f_1
    assert CovariancePenalty((0, 2))(logits) < 0.05
    fit = CovLasso(lam=0.01, relative=True).fit(logits)
    assert fit.coef_[2, 0] > 0.9
    assert CoefficientPenalty((0, 2), model=CovLasso(lam=0.01, relative=True))(logits) > 0.5
    alone = torch.randn(4000, 4, generator=rng, dtype=torch.float64)
    assert CoefficientPenalty((0, 2))(alone) < 0.1
    two = CoefficientPenalty((0, 1))(alone[:, :2])  # nobody else: the covariance itself, both ways
    torch.testing.assert_close(two, 2 * CovariancePenalty((0, 1))(alone[:, :2] / alone[:, :2].square().mean(0).sqrt()))


def test_a_gradient_flows_and_the_fits_are_kept():
    logits = torch.randn(80, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
    cut = CoefficientPenalty([(0, 1), (2, 3)], every=2)
    cut(torch.zeros(1), logits, torch.zeros(80)).backward()
    assert logits.grad.abs().sum() > 0 and torch.isfinite(logits.grad).all()
    first = cut._weights
    cut(logits.detach() * 2)
    assert cut._weights is first
    cut(logits.detach())
    assert cut._weights is not first


def test_train_verb(run, tmp_path):
    common = ("train", "lenet", "digits:0-3@8", "--size", 16, "--epochs", 1, "--device", "cpu")
    code, out, err = run(
        *common,
        "--cut",
        "0:3",
        "--cut",
        "1:2",
        "--cut-strength",
        2,
        "--cut-by",
        "coefficient",
        "--out",
        tmp_path / "m",
        "--json",
    )
    assert code == 0, err
    assert json.loads(out)["cut"] == {"pairs": ["0:3", "1:2"], "by": "coefficient", "strength": 2.0}
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["provenance"]["cut"]["pairs"] == ["0:3", "1:2"]
    for wrong, said in (
        (["--cut", "0"], "--cut takes two classes"),
        (["--cut", "0:7"], "unknown class '7'"),
        (["--cut", "0:0"], "cannot be cut from itself"),
        (["--cut-strength", 1], "--cut-strength needs --cut"),
        (["--cut", "0:1", "--cut-strength", -1], "strength is '-1'"),
    ):
        code, out, err = run(*common, *wrong, "--out", tmp_path / "n")
        assert code == 2 and said in err and not (tmp_path / "n").exists(), err


def test_bad_input():
    names = ["cat", "dog", "car"]
    with pytest.raises(UnknownName, match="did you mean 'cat'"):
        CovariancePenalty([("catt", "dog")], classes=names)
    with pytest.raises(RequestError, match="'cat' is a name; give classes="):
        CovariancePenalty(("cat", "dog"))
    with pytest.raises(RequestError, match="class 3 is out of range; classes are numbered 0 to 2"):
        CovariancePenalty((0, 3), classes=names)
    with pytest.raises(RequestError, match="class -1 is out of range"):
        CovariancePenalty((0, -1))
    with pytest.raises(RequestError, match="from itself; pair dog:dog"):
        CovariancePenalty((1, "dog"), classes=names)
    with pytest.raises(RequestError, match="no pair of classes"):
        CovariancePenalty([])
    for wrong in (-0.1, float("nan"), float("inf")):
        with pytest.raises(RequestError, match="it must be 0 or more"):
            CovariancePenalty((0, 1), strength=wrong)
    with pytest.raises(BadModel, match=r"class 5 is to be cut, but the logits are \(4, 3\)"):
        CovariancePenalty((0, 5))(torch.zeros(4, 3))
    with pytest.raises(RequestError, match="t is 0; it must be above 0"):
        pairs_above(small_map(), 0)
    with pytest.raises(RequestError, match="no group is given for 'd'"):
        pairs_above(small_map(), 0.2, {"a": "x", "b": "x", "c": "y"})
    with pytest.raises(RequestError, match="2 groups for 4 classes"):
        pairs_above(small_map(), 0.2, "xy")
    for options, said in (({"every": 0}, "every is 0"), ({"decay": 1}, "decay is 1")):
        with pytest.raises(RequestError, match=said):
            CoefficientPenalty((0, 1), **options)
    with pytest.raises(RequestError, match="loss is 'balanced'"):
        CoefficientPenalty((0, 1), model=CovLasso(lam=0.1, loss="balanced"))
    between = DependencyMap(tuple("abcd"), tuple("wxyz"), small_map().coef, {}, {})
    with pytest.raises(RequestError, match="links are cut within one"):
        pairs_above(between, 0.2)
    for wrong in ("a", "a:", ":b", "a:b:c"):
        with pytest.raises(RequestError, match="takes two classes"):
            parse_pair(wrong)
