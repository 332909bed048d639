"""The decision-aware estimator: the replaced logit must keep the class's probability, not only the logit's value.

With every other logit left as it is, class i's softmax probability is σ(s − L), where s is its logit and L the
log-sum-exp of the others. A replaced logit s = θᵀf therefore changes decisions only through σ(s − L), and for a
row with label y the objective of target i is (v: positive_weight on rows of class i, else 1)

    mean of v·(s − f_i)²  +  β · mean of v·CE(p, σ(s − L))  +  λ‖θ‖₁ ,   p = share·[y = i] + (1 − share)·σ(f_i − L)

It is convex. A proximal Newton method solves it: each step is a quadratic problem on the shared Gram matrix with a
few rows of the target's own (where σ is neither 0 nor 1), and steps are shortened until the objective falls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from brickwork.dependencies.problem import Floats, Problem, Solution

_NEWTON, _HALVINGS = 60, 30  # steps of one λ, and how often one is shortened
_BLOCK = 2**24  # numbers in a (rows, targets) table at once
_LIGHT = 0.3  # a row whose curvature is below this share of its square's is left out of the Newton matrix


class Tables(NamedTuple):
    """(rows, targets) each."""

    values: Floats  # the logit to be replaced
    offset: Floats  # the log-sum-exp of the others
    wanted: Floats  # the probability wanted
    weight: Floats  # of the row

    def of(self, ids: NDArray[Any]) -> Tables:
        return Tables(*(table[:, ids] for table in self))


@dataclass(frozen=True, eq=False)
class DecisionProblem:
    """The decision problem of some targets; `base` is their quadratic part, positives weighted."""

    base: Problem
    logits: np.ndarray  # (rows, features)
    values: np.ndarray  # (rows, targets of the whole) the logits to be replaced
    labels: NDArray[np.int64]
    log_sum: Floats  # (rows,) log-sum-exp of all values
    top: NDArray[np.int64]  # (rows,) the largest value's column, and
    log_rest: Floats  # the log-sum-exp without it: exact where one class has all the probability
    targets: NDArray[np.int64]  # columns of `values`
    positive_weight: float
    strength: float  # β
    label_share: float

    @classmethod
    def build(
        cls,
        base: Problem,
        logits: np.ndarray,
        values: np.ndarray,
        labels: NDArray[np.int64],
        *,
        positive_weight: float,
        strength: float,
        label_share: float,
    ) -> DecisionProblem:
        log_sum, log_rest = np.empty(len(values)), np.empty(len(values))
        top = np.empty(len(values), np.int64)
        for start in range(0, len(values), 4096):
            part = values[start : start + 4096].astype(np.float64)
            span = slice(start, start + len(part))
            top[span] = part.argmax(1)
            largest = part.max(1, keepdims=True)
            shares = np.exp(part - largest)
            log_sum[span] = np.log(shares.sum(1)) + largest[:, 0]
            part[np.arange(len(part)), top[span]] = -np.inf
            second = part.max(1, keepdims=True)
            log_rest[span] = np.log(np.exp(part - second).sum(1)) + second[:, 0]
        targets = np.arange(values.shape[1])
        return cls(
            base, logits, values, labels, log_sum, top, log_rest, targets, positive_weight, strength, label_share
        )

    @property
    def shape(self) -> tuple[int, int]:
        return self.base.shape

    @cached_property
    def lam_max(self) -> Floats:
        zero = np.zeros_like(self.base.cross)
        gradient = np.concatenate([self._gradient(zero[ids], ids, self._tables(ids)) for ids in self._blocks()])
        return 2 * np.abs(gradient).max(1)

    def subset(self, ids: NDArray[np.int64]) -> DecisionProblem:
        return replace(self, base=self.base.subset(ids), targets=self.targets[ids])

    def solve(self, lam: Floats, *, tol: float, start: Solution | None = None) -> Solution:
        count, width = self.base.cross.shape
        coef = np.zeros((count, width)) if start is None else start.coef.copy()
        lam = np.array(lam, np.float64)
        kkt, gap = np.zeros(count), np.zeros(count)
        for ids in self._blocks():
            coef[ids], kkt[ids], gap[ids] = self._solve_block(ids, lam[ids], coef[ids], tol)
        return Solution(coef, lam, kkt, gap)

    def _solve_block(
        self, ids: NDArray[np.int64], lam: Floats, coef: Floats, tol: float
    ) -> tuple[Floats, Floats, Floats]:
        tables = self._tables(ids)
        scores = self._scores(coef)
        loss = self._loss(scores, tables) + lam * np.abs(coef).sum(1)
        todo = np.arange(len(ids))
        inner = tol
        for step in range(_NEWTON):
            some = tables.of(todo)
            gradient = self._gradient(coef[todo], ids[todo], some, scores[:, todo])
            wrong = _violation(gradient, coef[todo], lam[todo] / 2)
            on = wrong > tol
            todo, some, gradient = todo[on], some.of(on), gradient[on]
            if not len(todo) or step == _NEWTON - 1:
                break
            inner = min(inner, 0.1 * tol)
            model = self._model(coef[todo], ids[todo], some, scores[:, todo], gradient)
            start = Solution(coef[todo], lam[todo], lam[todo], lam[todo], gradient)
            there = model.solve(lam[todo], tol=inner, start=start).coef
            there, reached, value = self._shorten(coef[todo], there, scores[:, todo], some, lam[todo], loss[todo])
            coef[todo], scores[:, todo], loss[todo] = there, reached, value
        gradient = self._gradient(coef, ids, tables, scores)
        kkt = _violation(gradient, coef, lam / 2)
        at_zero = self._loss(np.zeros_like(scores), tables)
        gap = (loss - self._dual(scores, tables, gradient, lam)) / np.where(at_zero > 0, at_zero, 1.0)
        return coef, kkt, np.maximum(gap, 0.0)

    def refit(self, coef: Floats) -> Floats:
        """The same objective without λ on each target's support, by Newton's method from the start in coef."""
        result = coef.copy()
        for t in range(len(coef)):
            chosen = np.flatnonzero(coef[t])
            if len(chosen):
                result[t, chosen] = self._refit_one(t, chosen, coef[t, chosen])
        return result

    def _refit_one(self, t: int, chosen: NDArray[np.int64], theta: Floats) -> Floats:
        rows = len(self.logits)
        x = self.logits[:, chosen].astype(np.float64)
        tables = Tables(*(table[:, 0] for table in self._tables(np.array([t]))))
        value, offset, wanted, weight = tables
        quadratic = self.base.matrix(t, chosen)
        quadratic[np.diag_indices(len(chosen))] += 1e-9 * np.trace(quadratic) / len(chosen)
        scores = x @ theta
        loss = _row_loss(scores, tables, self.strength).mean()
        for _ in range(_NEWTON):
            share = _sigmoid(scores - offset)
            slope = weight * ((scores - value) + self.strength / 2 * (share - wanted)) @ x / rows
            curve = self.strength / 2 * weight * share * (1 - share) / rows
            heavy = curve > 1e-12 / rows
            step = np.linalg.solve(quadratic + x[heavy].T @ (curve[heavy, None] * x[heavy]), slope)
            move, factor = x @ step, 1.0
            for _ in range(_HALVINGS):
                new = _row_loss(scores - factor * move, tables, self.strength).mean()
                if new <= loss:
                    break
                factor /= 2
            else:
                break
            theta, scores = theta - factor * step, scores - factor * move
            if loss - new <= 1e-12 * abs(loss):
                break
            loss = new
        return theta

    # -- pieces over (rows, targets) tables ---------------------------------------------------------------------

    def _blocks(self) -> Iterator[NDArray[np.int64]]:
        size = max(1, _BLOCK // max(1, len(self.logits)))
        for start in range(0, len(self.targets), size):
            yield np.arange(start, min(start + size, len(self.targets)))

    def _tables(self, ids: NDArray[np.int64]) -> Tables:
        columns = self.targets[ids]
        values = self.values[:, columns].astype(np.float64)
        with np.errstate(divide="ignore"):
            offset = self.log_sum[:, None] + np.log1p(-np.exp(values - self.log_sum[:, None]).clip(max=1.0))
        leads = self.top[:, None] == columns
        offset = np.where(leads, self.log_rest[:, None], offset)
        positive = self.labels[:, None] == columns
        wanted = self.label_share * positive + (1 - self.label_share) * _sigmoid(values - offset)
        return Tables(values, offset, wanted, np.where(positive, self.positive_weight, 1.0))

    def _scores(self, coef: Floats) -> Floats:
        used = np.flatnonzero((coef != 0).any(0))
        return self.logits[:, used].astype(np.float64) @ coef[:, used].T

    def _loss(self, scores: Floats, tables: Tables) -> Floats:
        return _row_loss(scores, tables, self.strength).mean(0)

    def _gradient(self, coef: Floats, ids: NDArray[np.int64], tables: Tables, scores: Floats | None = None) -> Floats:
        """Half the gradient's negative over all features, (targets, features); zero at each target's own."""
        values, offset, wanted, weight = tables
        scores = self._scores(coef) if scores is None else scores
        slope = weight * ((values - scores) + self.strength / 2 * (wanted - _sigmoid(scores - offset)))
        result = np.zeros_like(coef)
        for start in range(0, len(slope), 8192):
            part = slice(start, start + 8192)
            result += slope[part].T @ self.logits[part].astype(np.float64)
        result /= len(slope)
        own = self.base.own[ids]
        has = own >= 0
        result[np.flatnonzero(has), own[has]] = 0
        return result

    def _model(self, coef: Floats, ids: NDArray[np.int64], tables: Tables, scores: Floats, gradient: Floats) -> Problem:
        """The quadratic problem that has this gradient here, and this curvature up to rows that hardly bend."""
        rows = len(scores)
        _, offset, _, weight = tables
        share = _sigmoid(scores - offset)
        extra = (weight - 1) + self.strength / 2 * weight * share * (1 - share)
        base = self.base.subset(ids)
        picks = [np.flatnonzero(extra[:, t] > _LIGHT) for t in range(len(ids))]
        first = np.concatenate([[0], np.cumsum([len(p) for p in picks])]).astype(np.int64)
        index = np.concatenate([*picks, np.zeros(0, np.int64)]).astype(np.int64)
        heavy = np.concatenate([*(extra[p, t] for t, p in enumerate(picks)), np.zeros(0)]) / rows
        bent = coef @ base.gram
        for t, pick in enumerate(picks):
            seen = self.logits[pick].astype(np.float64)
            bent[t] += (extra[pick, t] / rows * scores[pick, t]) @ seen
        squares = base.squares + np.abs((gradient * coef).sum(1))  # only the model's own gap reads it
        return replace(
            base, cross=gradient + bent, squares=squares, rows=self.logits, first=first, index=index, weight=heavy
        )

    def _shorten(
        self, here: Floats, there: Floats, scores: Floats, tables: Tables, lam: Floats, loss: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Go as far towards `there` as the objective falls: the whole way, or half of it, or a quarter, …"""
        far = self._scores(there)
        factor, open_ = np.ones(len(here)), np.ones(len(here), bool)
        value = loss.copy()
        for _ in range(_HALVINGS):
            ids = np.flatnonzero(open_)
            if not len(ids):
                break
            at = here[ids] + factor[ids, None] * (there[ids] - here[ids])
            seen = scores[:, ids] + factor[ids] * (far[:, ids] - scores[:, ids])
            now = self._loss(seen, tables.of(ids)) + lam[ids] * np.abs(at).sum(1)
            fell = now <= loss[ids] + 1e-14 * np.abs(loss[ids])
            value[ids[fell]] = now[fell]
            open_[ids[fell]] = False
            factor[ids[~fell]] /= 2
        factor[open_] = 0.0
        moved = np.where(factor[:, None] == 1, there, here + factor[:, None] * (there - here))
        return moved, np.where(factor == 1, far, scores + factor * (far - scores)), value

    def _dual(self, scores: Floats, tables: Tables, gradient: Floats, lam: Floats) -> Floats:
        """The dual objective at the scaled gradients of squares and cross-entropies, a feasible point."""
        values, offset, wanted, weight = tables
        largest = 2 * np.abs(gradient).max(1)
        scale = np.where(largest > lam, lam / np.where(largest > 0, largest, 1.0), 1.0)
        slope = 2 * scale * weight * (scores - values)
        squares = slope * values + slope * slope / (4 * weight)
        share = _sigmoid(scores - offset)
        mixed = wanted + scale * (share - wanted)
        bend = self.strength * weight * (scale * (share - wanted) * offset + _negative_entropy(mixed))
        return -(squares + bend).mean(0)


def _row_loss(scores: Floats, tables: Tables, strength: float) -> Floats:
    z = scores - tables.offset
    entropy = np.logaddexp(0, z) - tables.wanted * z
    return tables.weight * ((scores - tables.values) ** 2 + strength * entropy)


def _sigmoid(z: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(z, -700, 700)))


def _negative_entropy(p: Floats) -> Floats:
    safe = np.clip(p, 1e-300, 1)
    other = np.clip(1 - p, 1e-300, 1)
    return p * np.log(safe) + (1 - p) * np.log(other)


def _violation(gradient: Floats, coef: Floats, half: Floats) -> Floats:
    """The largest violation of the KKT conditions of each target, against λ/2."""
    half = half[:, None]
    wrong = np.where(coef != 0, np.abs(gradient - half * np.sign(coef)), np.maximum(np.abs(gradient) - half, 0))
    return (wrong / half).max(1)
