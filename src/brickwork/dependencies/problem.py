"""Many lasso problems that share one Gram matrix: what is to be solved, and what a solution carries.

Target t is approximated by the features with coefficients θ (the target's own feature is left out):

    mean over rows of (y_t − θᵀf)²  +  Σ_r w_r (y_r − θᵀf_r)²  +  λ‖θ‖₁

The first sum is in the shared Gram matrix; the second, over a few rows of the target's own (its positives), is
kept as rows. λ_max = 2‖c‖∞ is the smallest λ at which θ = 0 (the paper's Eq. 5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from brickwork.dependencies.gram import LogitGram
from brickwork.dependencies.threads import start_threads
from brickwork.errors import BadData

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Solution:
    """Coefficients (targets, features) and the proof of how good they are, for each target."""

    coef: Floats
    lam: Floats
    kkt: Floats  # largest violation of the KKT conditions (Eq. 7) against λ/2
    gap: Floats  # duality gap against the objective at θ = 0: an upper bound of what could still be gained
    gradient: Floats | None = None  # c − Qθ over all features, to start the next λ from


class Lasso(Protocol):
    """What the path, the limit on the number of dependencies and the refit need of a problem."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def lam_max(self) -> Floats: ...

    def solve(self, lam: Floats, *, tol: float, start: Solution | None = None) -> Solution: ...

    def refit(self, coef: Floats) -> Floats: ...

    def subset(self, ids: NDArray[np.int64]) -> Lasso: ...


@dataclass(frozen=True, eq=False)
class Problem:
    """The quadratic problem of every target. Rows index[first[t]:first[t+1]] of `rows` weigh `weight` more for t."""

    gram: Floats
    cross: Floats  # (targets, features), the extra rows' part included
    squares: Floats  # (targets,), likewise
    own: NDArray[np.int64]  # (targets,) the feature that is the target itself, −1 where there is none
    rows: np.ndarray  # (rows, features)
    first: NDArray[np.int64]
    index: NDArray[np.int64]
    weight: Floats  # of a row's square beside the mean: (w − 1) / rows
    solver: str = "numba"
    device: str = "cpu"

    @classmethod
    def plain(cls, moments: LogitGram, own: NDArray[np.int64], **where: str) -> Problem:
        """The paper's own: every row weighs the same."""
        none = np.zeros((0, moments.gram.shape[0]), np.float32)
        first = np.zeros(len(own) + 1, np.int64)
        shared = np.ascontiguousarray(moments.gram)
        cross = np.ascontiguousarray(moments.cross)
        return cls(shared, cross, moments.squares, own, none, first, np.zeros(0, np.int64), np.zeros(0), **where)

    def weighted(
        self, rows: np.ndarray, targets: np.ndarray, picks: list[NDArray[np.int64]], weights: list[Floats]
    ) -> Problem:
        """The same with, for each target, some rows weighing more; targets (rows, targets) are their responses."""
        first = np.concatenate([[0], np.cumsum([len(p) for p in picks])]).astype(np.int64)
        cross, squares = self.cross.copy(), self.squares.copy()
        for t, (pick, weight) in enumerate(zip(picks, weights, strict=True)):
            answer = targets[pick, t].astype(np.float64)
            cross[t] += (weight * answer) @ rows[pick].astype(np.float64)
            squares[t] += float((weight * answer * answer).sum())
        index = np.concatenate([*picks, np.zeros(0, np.int64)]).astype(np.int64)
        heavy = np.concatenate([*weights, np.zeros(0)])
        return replace(self, cross=cross, squares=squares, rows=rows, first=first, index=index, weight=heavy)

    @property
    def shape(self) -> tuple[int, int]:
        """Targets and features."""
        return self.cross.shape[0], self.cross.shape[1]

    @cached_property
    def lam_max(self) -> Floats:
        result = np.empty(len(self.cross))
        for t, own in enumerate(self.own):
            size = np.abs(self.cross[t])
            if own >= 0:
                size[own] = 0
            result[t] = 2 * size.max()
        return result

    def solve(self, lam: Floats, *, tol: float, start: Solution | None = None) -> Solution:
        """Every target at its own λ, from the start if one is given. λ of a target that is all zero does not matter."""
        half = np.where(self.lam_max > 0, np.asarray(lam, np.float64) / 2, 1.0)
        coef = np.zeros_like(self.cross) if start is None else start.coef.copy()
        known = start is not None and start.gradient is not None
        if start is not None and start.gradient is not None:
            gradient = start.gradient.copy()
        else:
            gradient = np.empty_like(coef)
        if self.solver == "torch":
            from brickwork.dependencies.batched import solve_batched

            kkt, gap = solve_batched(self, half, tol, coef, gradient, self.device)
            hard = np.flatnonzero(kkt > tol)
            if len(hard):
                again = coef[hard], gradient[hard]
                kkt[hard], gap[hard] = self.subset(hard)._descend(half[hard], tol, *again, False)
                coef[hard], gradient[hard] = again
        else:
            kkt, gap = self._descend(half, tol, coef, gradient, known)
        scale = np.where(self.squares > 0, self.squares / 2, 1.0)
        return Solution(coef, np.array(lam, np.float64), kkt, gap / scale, gradient)

    def _descend(self, half: Floats, tol: float, coef: Floats, gradient: Floats, known: bool) -> tuple[Floats, Floats]:
        """Solve in threads; coef and gradient are overwritten."""
        from brickwork.dependencies.descent import ExtraRows, solve_all

        start_threads()
        kkt, gap, _ = solve_all(
            self.gram,
            self.gram.diagonal().copy(),
            self.cross,
            self.squares,
            self.own,
            ExtraRows(self.rows, self.first, self.index, self.weight),
            half,
            tol,
            coef,
            gradient,
            known,
        )
        return kkt, gap

    def objective(self, coef: Floats, lam: Floats) -> Floats:
        """The paper's Eq. 2 (times nothing, λ‖θ‖₁ without the fixed −1) for each target."""
        return self.errors(coef) + np.asarray(lam) * np.abs(coef).sum(1)

    def errors(self, coef: Floats) -> Floats:
        """The weighted mean square that is left of each target."""
        left = self.squares - 2 * (coef * self.cross).sum(1) + ((coef @ self.gram) * coef).sum(1)
        for t in np.flatnonzero(np.diff(self.first)):
            span = slice(self.first[t], self.first[t + 1])
            left[t] += float(
                (self.weight[span] * (self.rows[self.index[span]].astype(np.float64) @ coef[t]) ** 2).sum()
            )
        return np.maximum(left, 0)

    def matrix(self, t: int, chosen: NDArray[np.int64]) -> Floats:
        """Target t's own Gram matrix of the chosen features."""
        span = slice(self.first[t], self.first[t + 1])
        own = self.rows[self.index[span]][:, chosen].astype(np.float64)
        return self.gram[np.ix_(chosen, chosen)] + own.T @ (self.weight[span, None] * own)

    def refit(self, coef: Floats) -> Floats:
        """Least squares on each target's support: no shrinking, hardly any ridge (1e-9 of the mean diagonal)."""
        result = np.zeros_like(coef)
        for t in range(len(coef)):
            chosen = np.flatnonzero(coef[t])
            if len(chosen):
                system = self.matrix(t, chosen)
                system[np.diag_indices(len(chosen))] += 1e-9 * np.trace(system) / len(chosen)
                result[t, chosen] = np.linalg.solve(system, self.cross[t, chosen])
        return result

    def subset(self, ids: NDArray[np.int64]) -> Problem:
        """Only these targets."""
        spans = [np.arange(self.first[t], self.first[t + 1]) for t in ids]
        first = np.concatenate([[0], np.cumsum([len(s) for s in spans])]).astype(np.int64)
        take = np.concatenate([*spans, np.zeros(0, np.int64)]).astype(np.int64)
        return replace(
            self,
            cross=self.cross[ids],
            squares=self.squares[ids],
            own=self.own[ids],
            first=first,
            index=self.index[take],
            weight=self.weight[take],
        )


def check_gram(gram: np.ndarray) -> Floats:
    """A Gram matrix as given by a user: square, finite, symmetric and positive semi-definite up to rounding."""
    result = np.array(gram, np.float64)
    if result.ndim != 2 or result.shape[0] != result.shape[1] or len(result) < 2:
        raise BadData(f"the Gram matrix has shape {result.shape}; it must be (n, n) with two classes or more.")
    if not np.isfinite(result).all():
        row, column = np.argwhere(~np.isfinite(result))[0]
        raise BadData(f"the Gram matrix holds {result[row, column]} at row {row}, column {column}.")
    size = float(np.abs(result).max()) or 1.0
    off = np.abs(result - result.T)
    if off.max() > 1e-6 * size:
        row, column = np.unravel_index(int(off.argmax()), off.shape)
        raise BadData(
            f"the Gram matrix is not symmetric: entries ({row}, {column}) and ({column}, {row}) are "
            f"{result[row, column]:.6g} and {result[column, row]:.6g}; give the mean of f fᵀ over the rows."
        )
    result = (result + result.T) / 2
    values = np.linalg.eigvalsh(result)
    smallest = float(values[0])
    if smallest < -1e-6 * float(values[-1]):
        raise BadData(
            f"the Gram matrix is not positive semi-definite: its smallest eigenvalue is {smallest:.3g}; give the "
            "mean of f fᵀ over the rows, not a difference of such."
        )
    return result
