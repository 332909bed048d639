"""The decision-aware loss: its gradient and gap are right, its solution is the minimum, and decisions survive."""

import numpy as np
import pytest
from scipy.optimize import minimize

from brickwork import CovLasso
from brickwork.dependencies.decision import DecisionProblem
from brickwork.dependencies.gram import logit_gram
from brickwork.dependencies.problem import Problem

from .conftest import make_logits


def build(logits, labels, strength=30.0, weight=5.0, share=0.3):
    rows = len(logits)
    base = Problem.plain(logit_gram(logits), np.arange(logits.shape[1]))
    picks = [np.flatnonzero(labels == t) for t in range(logits.shape[1])]
    base = base.weighted(logits, logits, picks, [np.full(len(p), (weight - 1) / rows) for p in picks])
    return DecisionProblem.build(
        base, logits, logits, labels, positive_weight=weight, strength=strength, label_share=share
    )


def value(logits, labels, t, theta, strength=30.0, weight=5.0, share=0.3):
    """The objective without λ, written down once more from its definition."""
    x = logits.astype(np.float64)
    others = np.delete(x, t, 1)
    offset = np.log(np.exp(others).sum(1))
    own = labels == t
    p = share * own + (1 - share) * np.exp(x[:, t]) / np.exp(x).sum(1)
    s = x @ theta
    v = np.where(own, weight, 1.0)
    q = 1 / (1 + np.exp(-(s - offset)))
    return (v * ((s - x[:, t]) ** 2 - strength * (p * np.log(q) + (1 - p) * np.log(1 - q)))).mean()


def test_gradient_and_loss_are_those_of_the_definition(logits, labels):
    problem = build(logits, labels)
    rng = np.random.default_rng(1)
    coef = 0.1 * rng.normal(size=(12, 12))
    np.fill_diagonal(coef, 0)
    ids = np.arange(12)
    tables = problem._tables(ids)
    loss = problem._loss(problem._scores(coef), tables)
    gradient = problem._gradient(coef, ids, tables)
    for t in (0, 7):
        assert loss[t] == pytest.approx(value(logits, labels, t, coef[t]), rel=1e-10)
        for j in (1, 5):
            step = np.zeros(12)
            step[j] = 1e-5
            slope = (value(logits, labels, t, coef[t] + step) - value(logits, labels, t, coef[t] - step)) / 2e-5
            assert -2 * gradient[t, j] == pytest.approx(slope, rel=1e-5)


def test_the_solution_is_the_minimum(logits, labels):
    found = CovLasso(lam=0.1, relative=True, loss="decision", positive_weight=5.0, decision_weight=30.0).fit(
        logits, labels
    )
    assert found.kkt_.max() <= 1e-6 and found.gap_.max() <= 1e-5
    for t in (0, 4):
        here = value(logits, labels, t, found.coef_[t]) + found.lam_[t] * np.abs(found.coef_[t]).sum()
        others = np.delete(np.arange(12), t)

        def split(z, t=t, others=others):
            theta = np.zeros(12)
            theta[others] = z[:11] - z[11:]
            return value(logits, labels, t, theta) + found.lam_[t] * z.sum()

        best = minimize(split, np.full(22, 0.01), bounds=[(0, None)] * 22, method="L-BFGS-B")
        assert here <= best.fun * (1 + 1e-6)


def test_no_decision_weight_is_the_balanced_fit(logits, labels):
    one = CovLasso(lam=0.2, relative=True, loss="decision", decision_weight=0.0, positive_weight=20.0)
    two = CovLasso(lam=0.2, relative=True, loss="balanced", positive_weight=20.0)
    np.testing.assert_allclose(one.fit(logits, labels).coef_, two.fit(logits, labels).coef_, atol=1e-6)


def test_blocks_do_not_matter(logits, labels, monkeypatch):
    model = CovLasso(lam=0.2, relative=True, loss="decision")
    whole = model.fit(logits, labels).coef_
    monkeypatch.setattr("brickwork.dependencies.decision._BLOCK", 5 * len(logits))
    np.testing.assert_allclose(model.fit(logits, labels).coef_, whole, atol=1e-6)


def test_decisions_are_kept_better_than_by_the_plain_fit():
    logits, labels = make_logits(rows=1500, classes=30, seed=2)
    new, true = make_logits(rows=1500, classes=30, seed=2)
    kept = {}
    for loss in ("plain", "decision"):
        found = CovLasso(max_dependencies=6, selection="greedy", loss=loss).fit(logits, labels)
        scores = found.predict(new)
        rights = []
        for i in range(30):
            replaced = new.astype(np.float64)
            replaced[:, i] = scores[:, i]
            rights.append((replaced.argmax(1) == true)[true == i].mean())
        kept[loss] = np.mean(rights)
    assert kept["decision"] > kept["plain"]


def test_a_very_sure_network():
    """Logits whose softmax is 0 or 1 in float64: nothing overflows."""
    logits, labels = make_logits(rows=200, classes=6, seed=4)
    found = CovLasso(lam=0.1, relative=True, loss="decision").fit(100 * logits, labels)
    assert np.isfinite(found.coef_).all() and np.isfinite(found.gap_).all() and found.kkt_.max() <= 1e-6
