"""What an accuracy matrix says. R[i][j]: accuracy on task j after task i was learned, NaN where not measured."""

import numpy as np


def average_accuracy(matrix: np.ndarray) -> float:
    """The mean over all tasks after the last one was learned.

    >>> average_accuracy(np.array([[0.9, np.nan], [0.7, 0.8]]))
    0.75
    """
    return float(np.mean(matrix[-1]))


def incremental_accuracy(matrix: np.ndarray) -> float:
    """The mean over all steps of the accuracy on the tasks learned by then: what class-incremental tables call average.

    >>> round(incremental_accuracy(np.array([[0.9, np.nan], [0.7, 0.8]])), 3)
    0.825
    """
    return float(np.mean([np.mean(row[: i + 1]) for i, row in enumerate(matrix)]))


def forgetting(matrix: np.ndarray) -> float:
    """How far tasks fell from their best to the end: mean over j < T of max_{i<T} R[i][j] − R[T][j].

    The last task had no time to be forgotten and does not count (Chaudhry et al. 2018). NaN: nothing to compare.

    >>> round(forgetting(np.array([[0.9, np.nan], [0.7, 0.8]])), 3)
    0.2
    """
    if len(matrix) < 2 or np.isnan(np.diag(matrix)[:-1]).any():
        return float("nan")
    return float(np.mean([np.nanmax(matrix[j:-1, j]) - matrix[-1, j] for j in range(len(matrix) - 1)]))


def backward_transfer(matrix: np.ndarray) -> float:
    """What later tasks did to earlier ones: mean over j < T of R[T][j] − R[j][j] (Lopez-Paz and Ranzato 2017).

    >>> round(backward_transfer(np.array([[0.9, np.nan], [0.7, 0.8]])), 3)
    -0.2
    """
    if len(matrix) < 2:
        return float("nan")
    own = np.diag(matrix)[:-1]
    return float(np.mean(matrix[-1, :-1] - own))


def forward_transfer(matrix: np.ndarray, untouched: np.ndarray) -> float:
    """What earlier tasks did for later ones before these were trained: mean over j > 1 of R[j−1][j] − b[j].

    b[j], `untouched`, is measured the same way on the network that everything started from.

    >>> round(forward_transfer(np.array([[0.9, 0.5], [0.7, 0.8]]), np.array([0.4, 0.4])), 3)
    0.1
    """
    if len(matrix) < 2:
        return float("nan")
    return float(np.mean(np.diag(matrix, 1) - untouched[1:]))
