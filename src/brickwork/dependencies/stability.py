"""What is signal and what is noise: dependencies that survive resampling, and fits of shuffled targets."""

import copy

import numpy as np
from numpy.typing import NDArray

from brickwork.dependencies.covlasso import CovLasso
from brickwork.dependencies.problem import Floats
from brickwork.errors import RequestError
from brickwork.progress import bar

Rows = tuple[
    np.ndarray, NDArray[np.int64] | None, np.ndarray | None
]  # logits, labels, and targets if other than logits


def selection_frequencies(model: CovLasso, rows: Rows, *, rounds: int, seed: int, progress: bool = False) -> Floats:
    """How often each dependency is chosen, (targets, features), when rows are drawn again with replacement.

    Rows are drawn within each class where there are labels, so that no class runs out of its own.
    """
    if rounds < 1:
        raise RequestError(f"bootstrap is {rounds}; it takes 1 round or more.")
    chosen: Floats | None = None
    with bar("bootstrap", rounds, show=progress) as advance:
        for turn in range(rounds):
            drawn = _draw(len(rows[0]), rows[1], np.random.default_rng([seed, 11, turn]))
            labels, targets = (None if part is None else part[drawn] for part in rows[1:])
            fit = copy.copy(model).fit(rows[0][drawn], labels, targets=targets)
            chosen = (fit.coef_ != 0) + (0.0 if chosen is None else chosen)
            advance()
    assert chosen is not None
    return chosen / rounds


def shuffled_fits(model: CovLasso, rows: Rows, *, rounds: int, seed: int, progress: bool = False) -> Floats:
    """The explained share of every target when features and targets come from different rows, (rounds, targets).

    Each target keeps its own values and labels; only the pairing with the other classes' logits is broken.
    """
    if rounds < 19:
        raise RequestError(f"null is {rounds}; 19 rounds are the fewest that can tell a class from noise (p ≤ 0.05).")
    logits, labels, targets = rows
    values = logits if targets is None else targets
    result = []
    with bar("permutation null", rounds, show=progress) as advance:
        for turn in range(rounds):
            features = logits[np.random.default_rng([seed, 12, turn]).permutation(len(logits))]
            fit = copy.copy(model).fit(features, labels, targets=values)
            result.append(explained(values, fit.predict(features)))
            advance()
    return np.stack(result)


def explained(values: np.ndarray, scores: Floats) -> Floats:
    """1 − Σ(f − s)² / Σf² of each target; 0 for a column of zeros."""
    size = (values.astype(np.float64) ** 2).sum(0)
    left = ((values - scores) ** 2).sum(0)
    return np.where(size > 0, 1 - left / np.where(size > 0, size, 1.0), 0.0)


def p_values(seen: Floats, null: Floats) -> Floats:
    """How often a shuffled target was explained as well, itself counted: never 0.

    >>> p_values(np.array([0.9, 0.1]), np.array([[0.2, 0.3], [0.1, 0.2], [0.3, 0.0]])).tolist()
    [0.25, 0.75]
    """
    return (1 + (null >= seen).sum(0)) / (1 + len(null))


def _draw(rows: int, labels: NDArray[np.int64] | None, rng: np.random.Generator) -> NDArray[np.int64]:
    if labels is None:
        return rng.integers(rows, size=rows)
    order = np.argsort(labels, kind="stable")
    _, first, count = np.unique(labels[order], return_index=True, return_counts=True)
    within = (rng.random(rows) * np.repeat(count, count)).astype(np.int64)
    return order[np.repeat(first, count) + within]
