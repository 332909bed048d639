"""CovLasso: every class's logit as a sparse combination of the others' (paper 5, Sec. 2.1), all targets at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brickwork.dependencies.decision import DecisionProblem
from brickwork.dependencies.gram import LogitGram, Logits, check_labels, load_rows, logit_gram
from brickwork.dependencies.greedy import choose_greedily
from brickwork.dependencies.options import LOSSES, CovLassoOptions
from brickwork.dependencies.path import DependencyPath, covlasso_path, in_blocks, solve_at_most
from brickwork.dependencies.problem import Floats, Lasso, Problem, Solution, check_gram
from brickwork.dependencies.threads import threads
from brickwork.errors import BadData, RequestError
from brickwork.options import fields_of, takes


class CovLasso:
    """Minimise mean((f_i − θᵀf)²) + λ‖θ‖₁ with θ_i = 0 for every class i: uncentred, no bias, one shared Gram matrix.

    >>> rng = np.random.default_rng(0)
    >>> f = rng.normal(size=(200, 4)); f[:, 3] = 2 * f[:, 0] - f[:, 1]
    >>> found = CovLasso(lam=0.01, relative=True).fit(f)
    >>> found.coef_[3].round(1).tolist(), bool(found.kkt_.max() <= 1e-6)
    ([2.0, -1.0, 0.0, 0.0], True)

    lam: absolute, or with `relative` a share of each target's λ_max. max_dependencies: the smallest λ with at most
    so many (not below `lam`, if both are given). loss: "plain" is the paper's; "balanced" weighs each class's own
    rows `positive_weight` times in its own covariance; "decision" adds `decision_weight` times the cross-entropy
    of the class's probability (see decision.py). selection: "lasso", or "greedy" (needs max_dependencies).
    refit: least squares (or the decision loss) on the support, without λ. own: for targets of another network,
    whether class i of this one may be used for class i of that one. solver: "numba", "torch" (on `device`), "auto".

    Learned: coef_ (targets, classes), lam_, lam_max_, kkt_ (largest violation of the KKT conditions, against λ/2)
    and gap_ (duality gap, against the objective at θ = 0), each (targets,); both prove the solution before a refit.
    """

    @takes(CovLassoOptions)
    def __init__(
        self, lam: float | Sequence[float] | None = None, *, device: str = "cpu", options: CovLassoOptions
    ) -> None:
        self.options = options if lam is None else replace(options, lam=lam)
        self.device = device

    coef_: Floats
    lam_: Floats
    lam_max_: Floats
    kkt_: Floats
    gap_: Floats
    n_rows_: int | None

    def __getattr__(self, name: str) -> Any:
        if name in fields_of(CovLassoOptions):  # an option by its own name, as estimators have them
            return getattr(self.options, name)
        raise AttributeError(f"a CovLasso has no {name!r}; what ends in _ is there after fit.")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {**self.options.to_dict(), "device": self.device}

    def __repr__(self) -> str:
        changed = self.options.changed() | ({} if self.device == "cpu" else {"device": self.device})
        return f"CovLasso({', '.join(f'{k}={v!r}' for k, v in changed.items())})"

    # -- fitting ----------------------------------------------------------------------------------------------

    def fit(self, logits: Logits, labels: Any = None, *, targets: Logits | None = None) -> CovLasso:
        """From logits (rows, classes): an array, a tensor, a .npy file, chunks, a DataLoader. Returns itself.

        targets: another network's logits on the same rows; its classes are then the targets.
        labels: needed by every loss but "plain"; chunks may bring their own.
        """
        return self.fit_moments(None, logits, labels, targets=targets)

    def fit_moments(
        self, moments: LogitGram | None, logits: Logits, labels: Any = None, *, targets: Logits | None = None
    ) -> CovLasso:
        """`fit` where the Gram matrix of these logits is known already."""
        self.check()
        problem, self.n_rows_ = self._problem(logits, labels, targets, moments)
        return self._solve(problem)

    def fit_gram(
        self, gram: np.ndarray, *, cross: np.ndarray | None = None, squares: np.ndarray | None = None
    ) -> CovLasso:
        """From the mean of f fᵀ (n, n); for other targets y also the means of y fᵀ (targets, n) and of y²."""
        self.check()
        if self.options.loss != "plain":
            raise RequestError(
                f"loss={self.options.loss!r} needs the logits and labels; a Gram matrix alone serves 'plain'."
            )
        shared = check_gram(gram)
        if cross is None:
            moments = LogitGram(shared, shared, shared.diagonal().copy(), 0, True)
        else:
            moments = LogitGram(shared, *_check_cross(cross, squares, len(shared)), 0, False)
        self.n_rows_ = None
        return self._solve(Problem.plain(moments, self.own_features(moments), solver=self._solver, device=self.device))

    def path(
        self,
        logits: Logits,
        labels: Any = None,
        *,
        targets: Logits | None = None,
        ratios: Sequence[float] | None = None,
        count: int = 20,
        smallest: float = 0.1,
    ) -> DependencyPath:
        """Solutions at `ratios` of each target's λ_max (or `count` of them down to `smallest`), with warm starts."""
        self.check(path=True)
        if ratios is None:
            if count < 2 or not 0 < smallest < 1:
                raise RequestError(f"a path needs count ≥ 2 and 0 < smallest < 1, not {count} and {smallest}.")
            ratios = np.geomspace(1.0, smallest, count + 1)[1:].tolist()
        problem, _ = self._problem(logits, labels, targets)
        with threads(self.options.threads):
            return covlasso_path(problem, np.asarray(ratios, np.float64), tol=self.options.tol)

    def predict(self, logits: np.ndarray) -> Floats:
        """The combinations in place of the targets' logits, (rows, targets)."""
        rows, _ = load_rows(logits)
        if rows.shape[1] != self.coef_.shape[1]:
            raise BadData(f"logits of {rows.shape[1]} classes; this was fitted on {self.coef_.shape[1]}.")
        return rows.astype(np.float64) @ self.coef_.T

    # -- requests ---------------------------------------------------------------------------------------------

    def check(self, *, path: bool = False) -> None:
        """Refuse a request that says too little, before a logit is read."""
        if path and self.options.selection == "greedy":
            raise RequestError("`selection` greedy has no path; use lasso.")
        if self.options.lam is None and self.options.max_dependencies is None and not path:
            raise RequestError("give `lam` (a λ, or with `relative` a share of λ_max) or `max_dependencies`.")
        if self.device != "cpu":
            from brickwork.devices import pick

            pick(self.device)
            if self._solver != "torch" and self.device != "auto":
                raise RequestError(
                    f"`device` is {self.device!r}, and `solver` {self.options.solver} computes on the CPU; give `solver` "
                    "torch, or leave `device` out."
                )

    @property
    def _solver(self) -> str:
        # also where a network runs on a GPU: 1000 classes take 0.07 to 0.23 s on 16 cores, and 1.1 to 6.9 on an H200
        return "numba" if self.options.solver == "auto" else self.options.solver

    def own_features(self, moments: LogitGram) -> NDArray[np.int64]:
        """The feature each target may not use: its own class, unless it is another network's and `own` allows it."""
        count, width = moments.cross.shape
        if moments.within or (not self.options.own and count == width):
            return np.arange(count)
        return np.full(count, -1, np.int64)

    def _problem(
        self, logits: Logits, labels: Any, targets: Logits | None, moments: LogitGram | None = None
    ) -> tuple[Problem | DecisionProblem, int]:
        if self.options.loss == "plain":
            moments = moments or logit_gram(logits, targets)
            own = self.own_features(moments)
            return Problem.plain(moments, own, solver=self._solver, device=self.device), moments.rows
        rows, brought = load_rows(logits)
        values = rows if targets is None else load_rows(targets, what="the targets")[0]
        labels = brought if labels is None else labels
        if labels is None:
            raise RequestError(f"loss={self.options.loss!r} needs labels: which class each row of logits is of.")
        known = check_labels(labels, len(rows), values.shape[1])
        moments = moments or logit_gram(rows, None if targets is None else values)
        base = Problem.plain(moments, self.own_features(moments), solver=self._solver, device=self.device)
        weight = (
            LOSSES[self.options.loss] if self.options.positive_weight is None else float(self.options.positive_weight)
        )
        picks = [np.flatnonzero(known == t) for t in range(values.shape[1])]
        weights = [np.full(len(pick), (weight - 1) / len(rows)) for pick in picks]
        base = base.weighted(rows, values, picks, weights)
        if self.options.loss == "balanced":
            return base, len(rows)
        return DecisionProblem.build(
            base,
            rows,
            values,
            known,
            positive_weight=weight,
            strength=self.options.decision_weight,
            label_share=self.options.label_share,
        ), len(rows)

    def _solve(self, problem: Problem | DecisionProblem) -> CovLasso:
        with threads(self.options.threads):
            self.lam_max_ = problem.lam_max
            if self.options.selection == "greedy":
                assert self.options.max_dependencies is not None
                base = problem.base if isinstance(problem, DecisionProblem) else problem
                coef = choose_greedily(base, self.options.max_dependencies)
                nothing = np.full(len(coef), np.nan)  # there is no λ, and no certificate for the best k
                result = Solution(coef, nothing, nothing.copy(), nothing.copy())
                if isinstance(problem, DecisionProblem):
                    coef = problem.refit(coef)
            else:
                result = self._by_lasso(problem)
                coef = problem.refit(result.coef) if self.options.refit else result.coef
        self.coef_, self.lam_, self.kkt_, self.gap_ = coef, result.lam, result.kkt, result.gap
        return self

    def _by_lasso(self, problem: Problem | DecisionProblem) -> Solution:
        lam = np.zeros(len(self.lam_max_))
        if self.options.lam is not None:
            given = np.asarray(self.options.lam, np.float64)
            if given.ndim and given.shape != lam.shape:
                raise RequestError(f"lam has shape {given.shape}; it must be one number, or {len(lam)}, one a class.")
            lam = np.broadcast_to(given, lam.shape) * (self.lam_max_ if self.options.relative else 1.0)
            lam = np.where(lam > 0, lam, 1.0)  # a column of zeros has λ_max 0, and any λ does
        return in_blocks(problem, lam, self._solve_some)

    def _solve_some(self, problem: Lasso, lam: Floats) -> Solution:
        if self.options.max_dependencies is None:
            return problem.solve(lam, tol=self.options.tol)
        return solve_at_most(problem, self.options.max_dependencies, lowest=lam, tol=self.options.tol)


def _check_cross(cross: np.ndarray, squares: np.ndarray | None, width: int) -> tuple[Floats, Floats]:
    result = np.array(cross, np.float64)
    if result.ndim != 2 or result.shape[1] != width:
        raise BadData(f"cross has shape {result.shape}; it must be (targets, {width}), the means of y fᵀ.")
    answer = np.zeros(0) if squares is None else np.array(squares, np.float64)
    if answer.shape != (len(result),):
        raise BadData(f"cross needs squares of shape ({len(result)},), the means of y², not {answer.shape}.")
    return result, answer
