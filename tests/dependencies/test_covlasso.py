"""CovLasso against scikit-learn, its certificates, its identities, and requests that are wrong."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Lasso

import brickwork
from brickwork import CovLasso
from brickwork.dependencies.gram import logit_gram
from brickwork.errors import BadData, RequestError

SOLVERS = ["numba", "torch"]


def reference(x, i, lam, weight=None):
    """scikit-learn on the logits themselves: minimises ‖y − xθ‖²/(2·rows) + alpha‖θ‖₁, alpha = λ/2."""
    others = np.delete(np.arange(x.shape[1]), i)
    w = np.ones(len(x)) if weight is None else weight
    root = np.sqrt(w)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = Lasso(alpha=lam / 2, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(
            root * x[:, others], root[:, 0] * x[:, i]
        )
    return np.insert(found.coef_, i, 0.0)


def objective(x, i, theta, lam, weight=None):
    w = np.ones(len(x)) if weight is None else weight
    return (w * (x[:, i] - x @ theta) ** 2).mean() + lam * np.abs(theta).sum()


PROBLEMS = {
    "rows": st.integers(2, 60),
    "classes": st.integers(2, 12),
    "ratio": st.floats(0.01, 0.99),
    "seed": st.integers(0, 10**6),
    "shift": st.floats(-3, 3),
}


@settings(max_examples=30, deadline=None)
@given(**PROBLEMS)
def test_same_objective_as_scikit_learn(rows, classes, ratio, seed, shift):
    compare("numba", rows, classes, ratio, seed, shift)


@settings(max_examples=8, deadline=None)
@given(**PROBLEMS)
def test_same_objective_as_scikit_learn_batched(rows, classes, ratio, seed, shift):
    compare("torch", rows, classes, ratio, seed, shift)


def compare(solver, rows, classes, ratio, seed, shift):
    x = np.random.default_rng(seed).normal(shift, 1.0, size=(rows, classes))
    found = CovLasso(lam=ratio, relative=True, solver=solver).fit(x)
    assert found.kkt_.max() <= 1e-6 and found.gap_.max() <= 1e-5
    for i in range(classes):
        ours = objective(x, i, found.coef_[i], found.lam_[i])
        theirs = objective(x, i, reference(x, i, found.lam_[i]), found.lam_[i])
        assert ours <= theirs + 1e-6 * (x[:, i] ** 2).mean()


@pytest.mark.parametrize("solver", SOLVERS)
def test_positives_weigh_more(logits, labels, solver):
    x = logits.astype(np.float64)
    found = CovLasso(lam=0.2, relative=True, loss="balanced", positive_weight=30.0, solver=solver).fit(logits, labels)
    assert found.kkt_.max() <= 1e-6
    for i in (0, 5, 11):
        weight = np.where(labels == i, 30.0, 1.0)
        theirs = reference(x, i, found.lam_[i], weight)
        np.testing.assert_allclose(found.coef_[i], theirs, atol=1e-6)


def test_kkt_by_hand(logits):
    """Eq. 7: |Cov θ − b| ≤ λ/2, with equality and the right sign on the support."""
    found = CovLasso(lam=0.1, relative=True).fit(logits)
    x = logits.astype(np.float64)
    for i in range(x.shape[1]):
        slope = x.T @ (x[:, i] - x @ found.coef_[i]) / len(x)
        slope[i] = 0
        half, on = found.lam_[i] / 2, found.coef_[i] != 0
        assert np.abs(slope[~on]).max() <= half * (1 + 1e-6)
        np.testing.assert_allclose(slope[on], half * np.sign(found.coef_[i][on]), rtol=1e-6)


def test_solvers_agree(logits, labels):
    for options in ({}, {"loss": "balanced"}, {"loss": "decision", "decision_weight": 20.0}):
        one, two = (
            CovLasso(lam=0.2, relative=True, solver=solver, **options).fit(logits, labels) for solver in SOLVERS
        )
        np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-5)


def test_lambda_max_is_where_everything_is_zero(logits):
    top = CovLasso(lam=1.0, relative=True).fit(logits)
    assert not top.coef_.any()
    gram = logit_gram(logits).gram
    np.fill_diagonal(gram, 0)
    np.testing.assert_allclose(top.lam_max_, 2 * np.abs(gram).max(1))
    assert CovLasso(lam=0.999, relative=True).fit(logits).coef_.any(1).all()
    assert not CovLasso(lam=float(top.lam_max_.max())).fit(logits).coef_.any()


def test_gram_chunks_and_logits_are_the_same_fit(logits):
    whole = CovLasso(lam=0.1, relative=True).fit(logits)
    assert not whole.coef_.diagonal().any()
    for other in (
        CovLasso(lam=0.1, relative=True).fit(iter(np.array_split(logits, 5))),
        CovLasso(lam=0.1, relative=True).fit_gram(logit_gram(logits).gram),
        CovLasso(lam=whole.lam_).fit(logits),
    ):
        np.testing.assert_allclose(other.coef_, whole.coef_, atol=1e-9)


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(6)))
def test_the_order_of_classes_does_not_matter(order):
    x = np.random.default_rng(3).normal(0.5, 1.0, size=(50, 6))
    plain = CovLasso(lam=0.2, relative=True).fit(x).coef_
    moved = CovLasso(lam=0.2, relative=True).fit(x[:, order]).coef_
    np.testing.assert_allclose(moved, plain[np.ix_(order, order)], atol=1e-8)


def test_scaling_a_class_scales_its_row(logits):
    gram = logit_gram(logits)
    one = CovLasso(lam=0.1, relative=True).fit(logits, targets=logits)
    ten = CovLasso(lam=0.1, relative=True).fit(logits, targets=10 * logits)
    np.testing.assert_allclose(ten.coef_, 10 * one.coef_, atol=1e-7)
    np.testing.assert_allclose(one.coef_, CovLasso(lam=0.1, relative=True).fit_gram(gram.gram).coef_, atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_duplicate_column_is_found(logits, solver):
    twin = np.concatenate([logits, logits[:, :1]], 1)
    found = CovLasso(lam=1e-3, relative=True, solver=solver).fit(twin)
    assert found.kkt_.max() <= 1e-6
    assert found.coef_[0, 12] == pytest.approx(1, abs=2e-3)
    assert found.coef_[12, 0] == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_zero_and_constant_columns(logits, solver):
    flat = logits.copy()
    flat[:, 3], flat[:, 7] = 0, 5
    found = CovLasso(lam=0.05, relative=True, solver=solver).fit(flat)
    assert np.isfinite(found.coef_).all() and found.kkt_.max() <= 1e-6
    assert not found.coef_[3].any() and not found.coef_[:, 3].any()


def test_fewer_rows_than_classes(logits):
    found = CovLasso(lam=0.01, relative=True).fit(logits[:5])
    assert found.kkt_.max() <= 1e-6 and found.gap_.max() < 1e-5


@pytest.mark.parametrize("solver", SOLVERS)
def test_dependent_features_and_small_lambda(solver):
    """Fewer rows than classes, copies, one direction only: plain coordinate descent gets stuck here."""
    rng = np.random.default_rng(5)
    for k in range(60 if solver == "numba" else 6):
        rows, classes = int(rng.integers(1, 16)), int(rng.integers(20, 40))
        x = rng.normal(3 * rng.normal(), 1.0, size=(rows, classes)) * 10 ** rng.uniform(-3, 3)
        if k % 3 == 0:
            x[:, 1], x[:, 2] = x[:, 0], 0
        if k % 5 == 0:
            x = x[:, :1] @ np.ones((1, classes))
        found = CovLasso(lam=float(10 ** rng.uniform(-3, -1)), relative=True, solver=solver).fit(x)
        assert found.kkt_.max() <= 1e-6


def test_path_is_the_single_fits(logits):
    path = CovLasso().path(logits, count=6, smallest=0.05)
    assert path.lams.shape == path.kkt.shape == (6, 12) and path.kkt.max() <= 1e-6
    assert (np.diff(path.lams, axis=0) < 0).all()
    last = CovLasso(lam=0.05, relative=True).fit(logits)
    np.testing.assert_allclose(path.coefs[-1].toarray(), last.coef_, atol=1e-8)
    assert path.counts()[-1].tolist() == (last.coef_ != 0).sum(1).tolist()
    with pytest.raises(RequestError, match="falling list"):
        CovLasso().path(logits, ratios=[0.1, 0.2])


@pytest.mark.parametrize("options", [{}, {"loss": "balanced"}, {"loss": "decision", "decision_weight": 5.0}])
@pytest.mark.parametrize("selection", ["lasso", "greedy"])
def test_at_most_k(logits, labels, options, selection):
    for k in (1, 3) if options.get("loss") == "decision" else (1, 3, 20):
        found = CovLasso(max_dependencies=k, selection=selection, **options).fit(logits, labels)
        counts = (found.coef_ != 0).sum(1)
        assert counts.max() <= k and counts.min() >= min(k, 1)
        if selection == "greedy":
            assert (counts == min(k, 11)).all()
        else:
            assert found.kkt_.max() <= 1e-6


def test_at_most_k_and_no_lower_than_lam(logits):
    found = CovLasso(lam=0.5, relative=True, max_dependencies=11).fit(logits)
    np.testing.assert_allclose(found.coef_, CovLasso(lam=0.5, relative=True).fit(logits).coef_, atol=1e-8)


def test_refit_is_least_squares_on_the_support(logits):
    shrunk = CovLasso(lam=0.3, relative=True).fit(logits)
    full = CovLasso(lam=0.3, relative=True, refit=True).fit(logits)
    x = logits.astype(np.float64)
    for i in range(12):
        on = np.flatnonzero(shrunk.coef_[i])
        wanted = np.linalg.lstsq(x[:, on], x[:, i], rcond=None)[0]
        np.testing.assert_allclose(full.coef_[i, on], wanted, rtol=1e-5)


def test_greedy_leaves_less_than_the_lasso_at_the_same_k(logits):
    x = logits.astype(np.float64)
    left = [
        ((x - CovLasso(max_dependencies=3, selection=s, refit=s == "lasso").fit(x).predict(x)) ** 2).mean()
        for s in ("greedy", "lasso")
    ]
    assert left[0] <= left[1] * 1.02


def test_between_networks(logits):
    f, g = logits, logits[:, :4] @ np.eye(4, dtype=np.float32) + 0.01
    found = CovLasso(lam=0.01, relative=True).fit(f, targets=g)  # other classes: nothing is left out
    assert found.coef_.shape == (4, 12) and found.coef_[0, 0] == pytest.approx(1, abs=0.05)
    within = CovLasso(lam=0.01, relative=True).fit(f, targets=f)  # the same classes: their own is left out
    assert not within.coef_.diagonal().any()
    own = CovLasso(lam=0.01, relative=True, own=True).fit(f, targets=f)
    assert own.coef_.diagonal().min() > 0.9
    for options in ({"loss": "balanced"}, {"loss": "decision"}):
        assert CovLasso(max_dependencies=2, selection="greedy", **options).fit(
            f, np.arange(400) % 4, targets=g
        ).coef_.shape == (4, 12)


def test_pure_and_deterministic(logits, labels):
    before = logits.copy(), labels.copy()
    model = CovLasso(lam=0.2, relative=True, loss="balanced")
    params = dict(model.get_params())
    one = model.fit(logits, labels).coef_.copy()
    two = CovLasso(lam=0.2, relative=True, loss="balanced", threads=1).fit(logits, labels).coef_
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(logits, before[0])
    np.testing.assert_array_equal(labels, before[1])
    assert model.get_params() == params and model.fit(logits, labels) is model
    assert repr(model) == "CovLasso(lam=0.2, relative=True, loss='balanced')"


def test_predict_replaces(logits):
    found = CovLasso(lam=0.1, relative=True).fit(logits)
    np.testing.assert_allclose(found.predict(logits), logits.astype(np.float64) @ found.coef_.T)
    with pytest.raises(BadData, match="logits of 5 classes; this was fitted on 12"):
        found.predict(logits[:, :5])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, RequestError, "give lam"),
        ({"lam": 0.0}, RequestError, "lam is 0.0; λ must be above 0"),
        ({"lam": -1.0}, RequestError, "λ must be above 0"),
        ({"lam": float("nan")}, RequestError, "λ must be above 0"),
        ({"lam": [0.1, 0.2]}, RequestError, r"lam has shape \(2,\)"),
        ({"max_dependencies": 0}, RequestError, "it must be 1 or more"),
        ({"max_dependencies": 2.5}, RequestError, "whole number"),
        ({"lam": 0.1, "loss": "plane"}, RequestError, "did you mean 'plain'"),
        ({"lam": 0.1, "selection": "gready"}, RequestError, "did you mean 'greedy'"),
        ({"lam": 0.1, "selection": "greedy"}, RequestError, "max_dependencies alone"),
        ({"lam": 0.1, "solver": "cvx"}, RequestError, "solver is .cvx."),
        ({"lam": 0.1, "positive_weight": 5.0}, RequestError, "loss plain weighs all rows alike"),
        ({"lam": 0.1, "loss": "balanced", "positive_weight": 0.5}, RequestError, "1 or more"),
        ({"lam": 0.1, "loss": "decision", "label_share": 1.5}, RequestError, "0 to 1"),
        ({"lam": 0.1, "tol": 0.0}, RequestError, "tol is 0.0"),
        ({"lam": 0.1, "device": "gpu"}, RequestError, "device is .gpu.; it must be auto"),
        ({"lam": 0.1, "threads": 0}, RequestError, "threads is 0"),
    ],
)
def test_wrong_requests(logits, options, error, message):
    with pytest.raises(error, match=message):
        CovLasso(**options).fit(logits, np.arange(400) % 12)


def test_wrong_grams(logits):
    gram = logit_gram(logits).gram
    fit = CovLasso(lam=0.1, relative=True).fit_gram
    skew = gram.copy()
    skew[2, 5] += 1
    bad = gram.copy()
    bad[1, 2] = np.nan
    for wrong, message in [
        (skew, r"not symmetric: entries \(2, 5\)"),
        (gram - np.eye(12) * 40, "not positive semi-definite: its smallest eigenvalue is -"),
        (bad, "row 1, column 2"),
        (gram[:3], r"shape \(3, 12\)"),
        (np.ones((1, 1)), "two classes or more"),
    ]:
        with pytest.raises(BadData, match=message):
            fit(wrong)
    fit(gram.astype(np.float32))  # rounding is no reason to refuse
    with pytest.raises(RequestError, match="needs the logits and labels"):
        CovLasso(lam=0.1, loss="balanced").fit_gram(gram)
    with pytest.raises(BadData, match="cross needs squares"):
        fit(gram, cross=gram[:3])
    with pytest.raises(BadData, match="cross has shape"):
        fit(gram, cross=gram[:, :3], squares=np.ones(12))
    three = fit(gram, cross=gram[:3], squares=gram.diagonal()[:3])
    assert three.coef_.shape == (3, 12)


def test_labels_are_needed(logits):
    for loss in ("balanced", "decision"):
        with pytest.raises(RequestError, match="needs labels"):
            CovLasso(lam=0.1, loss=loss).fit(logits)


def test_it_is_public():
    assert brickwork.CovLasso is CovLasso
