"""What replacing each logit costs, over rows that need not fit into memory: chunk after chunk, the same numbers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from brickwork.dependencies.gram import row_chunks
from brickwork.dependencies.problem import Floats
from brickwork.dependencies.replacing import accuracies, chebyshev

_SPARSE = 0.02  # share of coefficients that are not 0 below which a sparse product is faster


def measure(
    features: np.ndarray, values: np.ndarray, labels: NDArray[np.int64] | None, coef: Floats, *, delta: float
) -> dict[str, Floats]:
    """Errors of the scores features · coefᵀ in place of values and, with labels, `accuracies`, in one pass.

    Mean |f − s|, against mean |f|, over all rows and over each class's own; mean squares; ε for 1 − δ of the rows.

    >>> found = measure(np.eye(2), np.eye(2), None, np.eye(2) / 2, delta=0.5)
    >>> found["abs_error"].tolist(), found["rel_error"].tolist()
    ([0.25, 0.25], [0.5, 0.5])
    """
    rows, count = values.shape
    errors, sizes, squares, own_errors, own_sizes = np.zeros((5, count))
    counts: dict[str, Floats] = {}
    own = None if labels is None else np.bincount(labels, minlength=count)
    position = (rows - 1) * (1 - delta)
    largest = _Largest(count, rows - math.floor(position))  # of each class the errors from the quantile on
    few = sparse.csr_array(coef) if np.count_nonzero(coef) < _SPARSE * coef.size else None
    for (x, at), (y, _) in zip(row_chunks(features), row_chunks(values, like=features), strict=True):
        wide = y.astype(np.float64)
        scores = x.astype(np.float64) @ coef.T if few is None else (few @ x.T.astype(np.float64)).T
        left = np.abs(wide - scores)
        errors += left.sum(0)
        sizes += np.abs(wide).sum(0)
        squares += (left * left).sum(0)
        if labels is not None:
            mine = labels[at : at + len(x)]
            here = np.arange(len(x))
            np.add.at(own_errors, mine, left[here, mine])
            np.add.at(own_sizes, mine, np.abs(wide[here, mine]))
            for name, part in _counts(wide, scores, mine).items():
                counts[name] = counts.get(name, 0) + part
        largest.add(left)
    result = {
        "abs_error": errors / rows,
        "rel_error": _share(errors, sizes),
        "square_error": squares / rows,
        "epsilon": chebyshev(squares / rows, delta),
        "epsilon_seen": largest.quantile(position - math.floor(position)),
    }
    if own is None:
        return result
    seen = np.where(own > 0, own, np.nan)
    return result | {
        "positive_abs_error": own_errors / seen,
        "positive_rel_error": _share(own_errors / seen, own_sizes / seen),
        "accuracy_before": counts["before"] / rows,
        "accuracy_after": counts["after"] / rows,
        "positive_before": counts["own_before"] / seen,
        "positive_after": counts["own_after"] / seen,
        "positives": own.astype(float),
    }


def _counts(values: Floats, scores: Floats, labels: NDArray[np.int64]) -> dict[str, Floats]:
    """The rows of a chunk that are right, which add up over chunks as shares do not."""
    shares, rows = accuracies(values, scores, labels), len(values)
    own = shares["positives"]
    result = {
        "before": shares["accuracy_before"] * rows,
        "after": shares["accuracy_after"] * rows,
        "own_before": np.nan_to_num(shares["positive_before"]) * own,
        "own_after": np.nan_to_num(shares["positive_after"]) * own,
    }
    return {name: np.rint(part) for name, part in result.items()}


class _Largest:
    """The `count` largest numbers of every class; new ones go where the smallest are, and all are put in place again."""

    def __init__(self, classes: int, count: int) -> None:
        self.count, self.kept = count, np.full((classes, count), -np.inf)

    def add(self, errors: Floats) -> None:
        """Numbers (rows, classes)."""
        free = self.kept.shape[1] - self.count
        if free < len(errors):
            self.kept = np.concatenate([np.empty((len(self.kept), len(errors) - free)), self.kept], 1)
            free = len(errors)
        self.kept[:, : len(errors)] = errors.T
        self.kept[:, len(errors) : free] = -np.inf
        for row in self.kept:  # in place, one class at a time
            row.partition(free)

    def quantile(self, between: float) -> Floats:
        """The smallest that is kept and the next above it, as far between as asked: numpy's linear quantile."""
        ends = np.stack([np.partition(row[-self.count :], min(1, self.count - 1))[:2] for row in self.kept])
        return ends[:, 0] + (ends[:, -1] - ends[:, 0]) * between


def _share(part: Floats, whole: Floats) -> Floats:
    return part / np.where(whole > 0, whole, np.nan)
