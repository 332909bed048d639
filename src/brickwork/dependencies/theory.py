"""What the covariance alone says (paper 5, Secs. 2.2 and 2.3): redundancy, bounds of the error, screening rules.

Every number comes from one eigendecomposition of Cov = mean of f fᵀ. The paper found its det/det unusable (NaN);
it is 1/(Cov⁻¹)_ii.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from brickwork.dependencies.gram import LogitGram
from brickwork.dependencies.problem import Floats

_NEAR = 1e-2  # eigenvalues below this share of their mean span what is called the near-null space


def redundancies(moments: LogitGram, own: NDArray[np.int64]) -> dict[str, Floats]:
    """For each target: the error that all features together leave (the lower bound of Eq. 5), and its two readings.

    redundancy: err(θ*(0)). size: mean of y², the upper bound. unexplained: redundancy / size, 0 to 1.
    information (volume): −½ log unexplained, in nats; for Gaussian logits the information the others hold on it.
    near_null (geometry): the share of the class's axis that lies in the near-null space of Cov; within one network.

    >>> found = redundancies(LogitGram(np.eye(2), np.eye(2), np.ones(2), 5, True), np.arange(2))
    >>> found["redundancy"].tolist(), found["information"].tolist()
    ([1.0, 1.0], [0.0, 0.0])
    """
    gram, size = moments.gram, moments.squares
    values, vectors = _eigen(gram)
    floor = max(len(gram) * np.finfo(np.float64).eps * values[-1], np.finfo(np.float64).tiny)
    if moments.within:
        # an axis with a part in the null space is an exact combination of the others
        np.square(vectors, out=vectors)
        lost = vectors[:, values <= 10 * floor].sum(1) > 1e-8
        left = np.where(lost, 0.0, 1 / (vectors @ (1 / np.maximum(values, floor))))
    else:
        inverse = (vectors / np.maximum(values, floor)) @ vectors.T
        left = size - _explained(moments.cross, inverse, own)
        left = np.where(left > 1e-11 * size, left, 0.0)  # a difference: below this it is rounding
    left = np.minimum(left, size)
    unexplained = np.where(size > 0, left / np.where(size > 0, size, 1.0), 0.0)
    with np.errstate(divide="ignore"):
        information = np.where(unexplained < 1, -0.5 * np.log(unexplained), 0.0)
    result = {"redundancy": left, "size": size, "unexplained": unexplained, "information": information}
    if moments.within:
        near = values <= _NEAR * values.mean()
        result["near_null"] = vectors[:, near].sum(1)
    return result


def _eigen(gram: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues and eigenvectors in the memory of the vectors alone: LAPACK works in one triangle, made good afterwards."""
    if not (gram.flags.c_contiguous and gram.flags.writeable):
        return linalg.eigh(gram, driver="evr", check_finite=False)
    diagonal = gram.diagonal().copy()
    try:
        result = linalg.eigh(gram.T, driver="evr", lower=True, overwrite_a=True, check_finite=False)
    finally:  # the lower triangle of the transpose is this one's upper
        for start in range(0, len(gram), _BLOCK):
            some, rest = slice(start, start + _BLOCK), slice(start + _BLOCK, None)
            gram[some, rest] = gram[rest, some].T
            corner = gram[some, some]
            corner[...] = np.tril(corner, -1) + np.tril(corner, -1).T
        np.fill_diagonal(gram, diagonal)
    return result


def _explained(cross: Floats, inverse: Floats, own: NDArray[np.int64]) -> Floats:
    """cᵀ Ĉov⁻¹ c of each target, its own feature left out (the inverse of a block, by Schur's complement)."""
    aim = cross.copy()
    has = np.flatnonzero(own >= 0)
    aim[has, own[has]] = 0
    solved = aim @ inverse
    result = (solved * aim).sum(1)
    result[has] -= solved[has, own[has]] ** 2 / inverse[own[has], own[has]]
    return result


def slope_bounds(moments: LogitGram, redundancy: Floats, lam: Floats, other: Floats) -> Floats:
    """Theorem 2, (targets, features): how far (Cov_j θ*(λ) − b_j)/λ can be from the same at another λ (above 0).

    ‖A_j‖₂ ‖A⁻ᵀb‖₂ |1/λ − 1/λ'| with ‖A_j‖₂² = Cov_jj and ‖A⁻ᵀb‖₂² = Cov_ii − err(θ*(0)). The residual over λ is the
    projection of A⁻ᵀb/λ onto a polytope, which brings no two points further apart, so it also holds above λ_max; there it
    is met where the target is a multiple of feature j.

    >>> moments = LogitGram(np.eye(2), np.array([[0.0, 0.6]]), np.ones(1), 5, False)
    >>> slope_bounds(moments, np.array([0.64]), np.array([1.2]), np.array([2.4])).tolist()
    [[0.25, 0.25]]
    """
    reach = np.sqrt(np.maximum(moments.squares - redundancy, 0))
    return np.sqrt(moments.gram.diagonal())[None, :] * (reach * np.abs(1 / lam - 1 / other))[:, None]


def error_bounds(moments: LogitGram, own: NDArray[np.int64], redundancy: Floats, lam: Floats) -> tuple[Floats, Floats]:
    """Finer bounds of err(θ*(λ)) than Eq. 5 (Remark 3; the paper's are in an appendix we do not have, these are ours).

    With y = A⁻ᵀb: err(0) + ‖y‖² min(1, λ/λ_max)² ≤ err(λ) ≤ err(0) + min(‖y‖², λ/2 · ‖θ*(0)‖₁). Below: 2y/λ_max lies in the
    polytope of Theorem 2, so the projection of 2y/λ is no further from it than that. Above: no feature's product with
    the residual is more than λ/2. Both are met where the target is a multiple of one feature, the lower one at every λ
    and the upper one at λ_max. Where Cov is singular the upper bound is Eq. 5's.

    >>> moments = LogitGram(np.eye(2), np.array([[0.0, 0.6]]), np.ones(1), 5, False)
    >>> low, high = error_bounds(moments, np.array([-1]), np.array([0.64]), np.array([0.6]))
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.73], [0.82])
    """
    aim = moments.cross.copy()
    has = np.flatnonzero(own >= 0)
    aim[has, own[has]] = 0
    largest = 2 * np.abs(aim).max(1)
    share = np.where(largest > 0, lam / np.where(largest > 0, largest, 1.0), 1.0)
    reach = np.maximum(moments.squares - redundancy, 0)
    values, vectors = _eigen(moments.gram)
    upper = reach
    if values[0] > len(values) * np.finfo(np.float64).eps * values[-1]:
        inverse = (vectors / values) @ vectors.T
        free = aim @ inverse  # θ*(0), its own feature left out by Schur's complement
        free[has] -= (free[has, own[has]] / inverse[own[has], own[has]])[:, None] * inverse[own[has]]
        upper = np.minimum(reach, lam / 2 * np.abs(free).sum(1))
    return redundancy + reach * np.minimum(share, 1) ** 2, redundancy + upper


def check_theory(
    moments: LogitGram, own: NDArray[np.int64], coef: Floats, lam: Floats, redundancy: Floats
) -> dict[str, Any]:
    """How the paper's statements fare on a plain CovLasso solution at λ: pairs they rule out, and violations.

    Eq. 5: redundancy ≤ err(λ) ≤ Cov_ii. Theorem 3 and Conjecture 1 (|Cov_ij| < λ/2) say which coefficients are zero;
    the conjecture is a rule of thumb, so it is counted, never used.
    """
    scales = np.sqrt(moments.gram.diagonal())
    counts = dict.fromkeys(_COUNTED, 0)
    for start in range(0, len(coef), _BLOCK):
        some = slice(start, start + _BLOCK)
        part = _check_some(moments, own[some], coef[some], lam[some], redundancy[some], scales, some)
        counts = {name: total + part[name] for name, total in counts.items()}
    return {
        **{name: counts[name] for name in _COUNTED[:4]},
        "theorem_3": {"ruled_out": counts["theorem"], "violated": counts["theorem_violated"]},
        "conjecture_1": {"ruled_out": counts["conjecture"], "violated": counts["conjecture_violated"]},
    }


_COUNTED = (
    *("targets", "pairs", "dependencies", "bounds_violated"),
    *("theorem", "theorem_violated", "conjecture", "conjecture_violated"),
)
_BLOCK = 256  # targets looked at together


def _check_some(
    moments: LogitGram,
    own: NDArray[np.int64],
    coef: Floats,
    lam: Floats,
    redundancy: Floats,
    scales: Floats,
    some: slice,
) -> dict[str, int]:
    """The same for some targets."""
    size, cross = moments.squares[some], np.abs(moments.cross[some])
    has = np.flatnonzero(own >= 0)
    open_ = np.ones(cross.shape, bool)
    open_[has, own[has]] = False
    cross = np.where(open_, cross, 0.0)
    largest = cross.max(1)
    left = size - 2 * (coef * moments.cross[some]).sum(1) + ((sparse.csr_array(coef) @ moments.gram) * coef).sum(1)
    slack = 1e-9 * size
    inside = (left >= redundancy - slack) & (left <= size + slack)
    on = (lam > 0) & (lam < 2 * largest)
    safe = np.where(on, lam, 1.0)
    reach = np.sqrt(np.maximum(size - redundancy, 0))  # ‖A⁻ᵀb‖₂
    lean = np.abs(1 / safe - 1 / np.where(largest > 0, 2 * largest, 1.0))
    bound = 1 - 2 * scales[None, :] * (reach * lean)[:, None]
    share = cross / np.where(largest > 0, largest, 1.0)[:, None]
    theorem = open_ & on[:, None] & (share < bound)
    conjecture = open_ & on[:, None] & (cross < lam[:, None] / 2)
    used = coef != 0
    found = (
        on,
        open_ & on[:, None],
        used & on[:, None],
        ~inside,
        theorem,
        theorem & used,
        conjecture,
        conjecture & used,
    )
    return {name: int(mask.sum()) for name, mask in zip(_COUNTED, found, strict=True)}
