"""What a replaced logit costs (Table 1): errors of the logit, accuracy before and after, ε and δ of Definition 1."""

import numpy as np
from numpy.typing import NDArray

from brickwork.dependencies.problem import Floats
from brickwork.errors import RequestError


def accuracies(values: np.ndarray, scores: Floats, labels: NDArray[np.int64]) -> dict[str, Floats]:
    """Accuracy of all rows, and of each class's own, before and after one class's logit is replaced by its score.

    values (rows, classes) are the network's logits, scores (rows, classes) what stands in for each, one at a time.
    A class without rows has NaN for its own.

    >>> logits = np.array([[3.0, 1.0], [0.0, 2.0], [1.0, 2.0]])
    >>> found = accuracies(logits, logits - 2.5, np.array([0, 1, 1]))
    >>> found["positive_after"].tolist(), found["accuracy_after"].round(3).tolist()
    ([0.0, 0.0], [0.667, 0.333])
    """
    rows, count = values.shape
    order = np.arange(rows)
    rest = values.astype(np.float64)
    first = rest.argmax(1)
    top = rest[order, first]
    rest[order, first] = -np.inf
    second, runner_up = rest.max(1), rest.argmax(1)
    right = first == labels
    total, own = int(right.sum()), np.bincount(labels, minlength=count)
    own_right = np.bincount(labels, right, minlength=count)
    after, own_after = np.empty(count), np.empty(count)
    for i in range(count):
        leads = first == i
        other, bar = np.where(leads, runner_up, first), np.where(leads, second, top)
        score = scores[:, i]
        wins = (score > bar) | ((score == bar) & (i < other))  # as argmax does: the first of equals
        now = np.where(wins, i, other) == labels
        after[i], own_after[i] = now.sum(), now[labels == i].sum()
    seen = np.where(own > 0, own, np.nan)
    return {
        "accuracy_before": np.full(count, total / rows),
        "accuracy_after": after / rows,
        "positive_before": own_right / seen,
        "positive_after": own_after / seen,
        "positives": own.astype(float),
    }


def chebyshev(square: Floats, delta: float) -> Floats:
    """The ε with Pr(|f − s| ≥ ε) ≤ δ, from E(f − s)² alone: ε² = E(f − s)² / δ. (Eq. 3 has ε where ε² belongs.)

    >>> chebyshev(np.array([0.05]), 0.05).tolist()
    [1.0]
    """
    if not 0 < delta < 1:
        raise RequestError(f"delta is {delta}; it must lie between 0 and 1.")
    return np.sqrt(square / delta)
