"""Along λ: the whole path with warm starts, and the smallest λ that leaves at most k dependencies."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from brickwork.dependencies.problem import Floats, Lasso, Solution
from brickwork.errors import RequestError

_STEP, _BISECTIONS = 0.85, 5  # from one λ to the next while k is searched, and how closely it is met then
_AT_ONCE, _FEWEST = 2**22, 64  # coefficients of all targets at hand (32 MB), but no fewer targets than threads like
_FLOOR = 1e-3  # the share of λ_max below which the search for k ends: what has not entered by then is noise


@dataclass(frozen=True, eq=False)
class DependencyPath:
    """Solutions at falling λ; coefs[l] is a sparse (targets, features) matrix at lams[l]."""

    lams: Floats  # (length, targets)
    coefs: list[Any]  # scipy.sparse CSR
    kkt: Floats  # (length, targets)
    gap: Floats

    def counts(self) -> np.ndarray:
        """Dependencies of each target at each λ, (length, targets)."""
        return np.stack([np.diff(coef.indptr) for coef in self.coefs])


def covlasso_path(problem: Lasso, ratios: Floats, *, tol: float = 1e-6) -> DependencyPath:
    """Solve at ratios · λ_max of each target, each λ from the solution of the one before."""
    ratios = np.asarray(ratios, np.float64)
    if ratios.ndim != 1 or not len(ratios) or not (ratios > 0).all() or (np.diff(ratios) > 0).any():
        raise RequestError(f"a path is a falling list of shares of λ_max above 0, not {ratios.tolist()}.")
    top, result = problem.lam_max, []
    now: Solution | None = None
    coefs = []
    for ratio in ratios:
        now = problem.solve(ratio * top, tol=tol, start=now)
        coefs.append(sparse.csr_array(now.coef))
        result.append((now.lam, now.kkt, now.gap))
    lams, kkt, gap = (np.stack(part) for part in zip(*result, strict=True))
    return DependencyPath(lams, coefs, kkt, gap)


def solve_at_most(problem: Lasso, k: int, *, lowest: Floats, tol: float) -> Solution:
    """The solution at the smallest λ (not below `lowest`) before more than k coefficients appear.

    λ falls in steps until a target has too many, and is then met more closely by bisection. The number need not
    grow evenly with λ: the first λ that is too small ends the search.
    """
    top = problem.lam_max
    count = len(top)
    best = problem.solve(np.maximum(top, lowest), tol=tol)
    good, bad = np.maximum(top, lowest), np.zeros(count)
    active = np.flatnonzero((top > 0) & (good > lowest))
    part, now = problem.subset(active), None
    while len(active):
        lam = np.maximum(good[active] * _STEP, lowest[active])
        now = part.solve(lam, tol=tol, start=now)
        fits = (now.coef != 0).sum(1) <= k
        _keep(best, now, active, fits)
        good[active[fits]] = lam[fits]
        bad[active[~fits]] = lam[~fits]
        on = fits & (lam > np.maximum(lowest[active], _FLOOR * top[active]))
        now, part, active = _rows(now, on), part.subset(np.flatnonzero(on)), active[on]
    for _ in range(_BISECTIONS):
        active = np.flatnonzero((bad > 0) & ((best.coef != 0).sum(1) < k))
        if not len(active):
            break
        lam = np.sqrt(good[active] * bad[active])
        start = Solution(best.coef[active], lam, lam, lam)
        now = problem.subset(active).solve(lam, tol=tol, start=start)
        fits = (now.coef != 0).sum(1) <= k
        _keep(best, now, active, fits)
        good[active[fits]], bad[active[~fits]] = lam[fits], lam[~fits]
    return best


def in_blocks(problem: Lasso, lam: Floats, solve: Callable[[Lasso, Floats], Solution]) -> Solution:
    """All targets, some at a time: what a solver keeps beside the coefficients is then memory for those alone."""
    count, width = problem.shape
    some = max(_FEWEST, _AT_ONCE // width)
    if count <= some:
        return solve(problem, lam)
    coef = np.zeros((count, width))
    facts = np.zeros((3, count))
    for start in range(0, count, some):
        ids = np.arange(start, min(start + some, count))
        result = solve(problem.subset(ids), lam[ids])
        coef[ids], facts[:, ids] = result.coef, (result.lam, result.kkt, result.gap)
    return Solution(coef, *facts)


def _keep(best: Solution, now: Solution, ids: np.ndarray, fits: np.ndarray) -> None:
    for name in ("coef", "lam", "kkt", "gap"):
        getattr(best, name)[ids[fits]] = getattr(now, name)[fits]


def _rows(found: Solution, mask: np.ndarray) -> Solution:
    gradient = None if found.gradient is None else found.gradient[mask]
    return Solution(found.coef[mask], found.lam[mask], found.kkt[mask], found.gap[mask], gradient)
