"""CovLasso: every class's logit as a sparse combination of the others' (paper 5, Sec. 2.1), all targets at once."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brickwork.dependencies.decision import DecisionProblem
from brickwork.dependencies.gram import LogitGram, Logits, check_labels, logit_gram, take_in
from brickwork.dependencies.greedy import choose_greedily
from brickwork.dependencies.path import DependencyPath, covlasso_path, solve_at_most
from brickwork.dependencies.problem import Floats, Problem, Solution, check_gram
from brickwork.dependencies.threads import threads
from brickwork.errors import BadData, RequestError, UnknownName

LOSSES = {"plain": 1.0, "balanced": 100.0, "decision": 10.0}  # and how much a class's own rows weigh by default
SELECTIONS = ("lasso", "greedy")


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

    def __init__(
        self,
        lam: float | Sequence[float] | None = None,
        *,
        relative: bool = False,
        max_dependencies: int | None = None,
        loss: str = "plain",
        selection: str = "lasso",
        refit: bool = False,
        positive_weight: float | None = None,
        decision_weight: float = 400.0,
        label_share: float = 0.3,
        own: bool = False,
        tol: float = 1e-6,
        solver: str = "auto",
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        self.lam, self.relative, self.max_dependencies = lam, relative, max_dependencies
        self.loss, self.selection, self.refit = loss, selection, refit
        self.positive_weight, self.decision_weight = positive_weight, decision_weight
        self.label_share, self.own, self.tol = label_share, own, tol
        self.solver, self.device, self.threads = solver, device, threads

    coef_: Floats
    lam_: Floats
    lam_max_: Floats
    kkt_: Floats
    gap_: Floats
    n_rows_: int | None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def __repr__(self) -> str:
        default = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        said = (f"{k}={v!r}" for k, v in self.get_params().items() if v != default[k])
        return f"CovLasso({', '.join(said)})"

    # -- fitting ----------------------------------------------------------------------------------------------

    def fit(self, logits: Logits, labels: Any = None, *, targets: Logits | None = None) -> CovLasso:
        """From logits (rows, classes): an array, a tensor, a .npy file, chunks, a DataLoader. Returns itself.

        targets: another network's logits on the same rows; its classes are then the targets.
        labels: needed by every loss but "plain"; chunks may bring their own.
        """
        self.check()
        problem, self.n_rows_ = self._problem(logits, labels, targets)
        return self._solve(problem)

    def fit_gram(
        self, gram: np.ndarray, *, cross: np.ndarray | None = None, squares: np.ndarray | None = None
    ) -> CovLasso:
        """From the mean of f fᵀ (n, n); for other targets y also the means of y fᵀ (targets, n) and of y²."""
        self.check()
        if self.loss != "plain":
            raise RequestError(f"loss={self.loss!r} needs the logits and labels; a Gram matrix alone serves 'plain'.")
        shared = check_gram(gram)
        if cross is None:
            moments = LogitGram(shared, shared, shared.diagonal().copy(), 0, True)
        else:
            moments = LogitGram(shared, *_check_cross(cross, squares, len(shared)), 0, False)
        self.n_rows_ = None
        return self._solve(Problem.plain(moments, self._own(moments), solver=self._solver, device=self.device))

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
        with threads(self.threads):
            return covlasso_path(problem, np.asarray(ratios, np.float64), tol=self.tol)

    def predict(self, logits: np.ndarray) -> Floats:
        """The combinations in place of the targets' logits, (rows, targets)."""
        rows, _ = take_in(logits)
        if rows.shape[1] != self.coef_.shape[1]:
            raise BadData(f"logits of {rows.shape[1]} classes; this was fitted on {self.coef_.shape[1]}.")
        return rows.astype(np.float64) @ self.coef_.T

    # -- requests ---------------------------------------------------------------------------------------------

    def check(self, *, path: bool = False) -> None:
        """Refuse options that cannot be right, before a logit is read."""
        if self.loss not in LOSSES:
            raise UnknownName("loss", self.loss, LOSSES)
        if self.selection not in SELECTIONS:
            raise UnknownName("selection", self.selection, SELECTIONS)
        if self.solver not in ("auto", "numba", "torch"):
            raise UnknownName("solver", self.solver, ("auto", "numba", "torch"))
        if self.lam is not None:
            given = np.atleast_1d(np.asarray(self.lam, np.float64))
            if not (np.isfinite(given).all() and (given > 0).all()):
                raise RequestError(f"lam is {self.lam}; λ must be above 0, for example lam=0.3, relative=True.")
        elif self.max_dependencies is None and not path:
            raise RequestError("give lam (a λ, or with relative=True a share of λ_max) or max_dependencies.")
        k = self.max_dependencies
        if k is not None and (isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1):
            raise RequestError(f"max_dependencies is {k!r}; it must be a whole number, 1 or more.")
        if self.selection == "greedy" and (k is None or self.lam is not None or self.refit or path):
            raise RequestError("selection='greedy' takes max_dependencies alone: no lam, no refit, no path.")
        if self.loss == "plain" and self.positive_weight is not None:
            raise RequestError("loss='plain' weighs all rows alike; positive_weight belongs to 'balanced', 'decision'.")
        for name, low in (("positive_weight", 1), ("decision_weight", 0), ("label_share", 0), ("tol", 0)):
            value = getattr(self, name)
            wrong = value is not None and not (math.isfinite(value) and value >= low)
            if wrong or (name == "label_share" and value > 1) or (name == "tol" and not 0 < value <= 1e-2):
                allowed = {"label_share": "0 to 1", "tol": "above 0, at most 0.01"}.get(name, f"{low} or more")
                raise RequestError(f"{name} is {value}; it must be {allowed}.")
        if self._solver == "torch":
            from brickwork.devices import pick

            pick(self.device)

    @property
    def _solver(self) -> str:
        if self.solver == "auto":
            return "numba" if self.device == "cpu" else "torch"
        return self.solver

    def _own(self, moments: LogitGram) -> NDArray[np.int64]:
        """The feature each target may not use: its own class, unless it is another network's and `own` allows it."""
        count, width = moments.cross.shape
        if moments.within or (not self.own and count == width):
            return np.arange(count)
        return np.full(count, -1, np.int64)

    def _problem(self, logits: Logits, labels: Any, targets: Logits | None) -> tuple[Problem | DecisionProblem, int]:
        if self.loss == "plain":
            moments = logit_gram(logits, targets)
            own = self._own(moments)
            return Problem.plain(moments, own, solver=self._solver, device=self.device), moments.rows
        rows, brought = take_in(logits)
        values = rows if targets is None else take_in(targets, what="the targets")[0]
        labels = brought if labels is None else labels
        if labels is None:
            raise RequestError(f"loss={self.loss!r} needs labels: which class each row of logits is of.")
        known = check_labels(labels, len(rows), values.shape[1])
        moments = logit_gram(rows, None if targets is None else values)
        base = Problem.plain(moments, self._own(moments), solver=self._solver, device=self.device)
        weight = LOSSES[self.loss] if self.positive_weight is None else float(self.positive_weight)
        picks = [np.flatnonzero(known == t) for t in range(values.shape[1])]
        weights = [np.full(len(pick), (weight - 1) / len(rows)) for pick in picks]
        base = base.weighted(rows, values, picks, weights)
        if self.loss == "balanced":
            return base, len(rows)
        return DecisionProblem.build(
            base,
            rows,
            values,
            known,
            positive_weight=weight,
            strength=self.decision_weight,
            label_share=self.label_share,
        ), len(rows)

    def _solve(self, problem: Problem | DecisionProblem) -> CovLasso:
        with threads(self.threads):
            self.lam_max_ = problem.lam_max
            if self.selection == "greedy":
                assert self.max_dependencies is not None
                base = problem.base if isinstance(problem, DecisionProblem) else problem
                coef = choose_greedily(base, self.max_dependencies)
                nothing = np.full(len(coef), np.nan)  # there is no λ, and no certificate for the best k
                found = Solution(coef, nothing, nothing.copy(), nothing.copy())
                if isinstance(problem, DecisionProblem):
                    coef = problem.refit(coef)
            else:
                found = self._by_lasso(problem)
                coef = problem.refit(found.coef) if self.refit else found.coef
        self.coef_, self.lam_, self.kkt_, self.gap_ = coef, found.lam, found.kkt, found.gap
        return self

    def _by_lasso(self, problem: Problem | DecisionProblem) -> Solution:
        lam = np.zeros(len(self.lam_max_))
        if self.lam is not None:
            given = np.asarray(self.lam, np.float64)
            if given.ndim and given.shape != lam.shape:
                raise RequestError(f"lam has shape {given.shape}; it must be one number, or {len(lam)}, one a class.")
            lam = np.broadcast_to(given, lam.shape) * (self.lam_max_ if self.relative else 1.0)
            lam = np.where(lam > 0, lam, 1.0)  # a column of zeros has λ_max 0, and any λ does
        if self.max_dependencies is None:
            return problem.solve(lam, tol=self.tol)
        return solve_at_most(problem, self.max_dependencies, lowest=lam, tol=self.tol)


def _check_cross(cross: np.ndarray, squares: np.ndarray | None, width: int) -> tuple[Floats, Floats]:
    found = np.array(cross, np.float64)
    if found.ndim != 2 or found.shape[1] != width:
        raise BadData(f"cross has shape {found.shape}; it must be (targets, {width}), the means of y fᵀ.")
    answer = np.zeros(0) if squares is None else np.array(squares, np.float64)
    if answer.shape != (len(found),):
        raise BadData(f"cross needs squares of shape ({len(found)},), the means of y², not {answer.shape}.")
    return found, answer
