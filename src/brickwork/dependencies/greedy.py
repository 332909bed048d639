"""Greedy choice of dependencies: one after the other, the feature that explains most of what is left.

Orthogonal matching pursuit on each target's own Gram matrix. Unlike the lasso it does not shrink, so that with a
limit of k it chooses by what k features can do together, not by who enters first while all are held small.
There is no certificate: choosing the best k is not a convex problem.
"""

import numpy as np
from numpy.typing import NDArray

from brickwork.dependencies.problem import Floats, Problem


def choose_greedily(problem: Problem, k: int) -> Floats:
    """Least-squares coefficients (targets, features) on at most k features of each target.

    A feature that the chosen ones already span (a duplicate, a column of zeros) is not taken.
    """
    result = np.zeros_like(problem.cross)
    for t in range(len(result)):
        chosen, theta = _pursue(problem, t, k)
        result[t, chosen] = theta
    return result


def _pursue(problem: Problem, t: int, k: int) -> tuple[NDArray[np.int64], Floats]:
    width = len(problem.gram)
    span = slice(problem.first[t], problem.first[t + 1])
    rows, weight = problem.rows[problem.index[span]].astype(np.float64), problem.weight[span]
    diagonal = problem.gram.diagonal() + weight @ (rows * rows)
    open_ = diagonal > 1e-12 * diagonal.max()
    if problem.own[t] >= 0:
        open_[problem.own[t]] = False
    left, target = problem.cross[t].copy(), problem.cross[t]
    chosen: list[int] = []
    columns = np.empty((min(k, width), width))
    factor = np.zeros((min(k, width), min(k, width)))  # Cholesky factor of the chosen features' matrix
    theta: Floats = np.zeros(0)
    while len(chosen) < k and open_.any():
        score = np.where(open_, left * left / np.where(open_, diagonal, 1.0), -1.0)
        j = int(score.argmax())
        if score[j] <= 1e-24 * max(problem.squares[t], 1e-300):
            break
        open_[j] = False
        m = len(chosen)
        column = problem.gram[j] + (weight * rows[:, j]) @ rows
        across = np.linalg.solve(factor[:m, :m], column[chosen]) if m else np.zeros(0)
        pivot = column[j] - across @ across
        if pivot <= 1e-9 * diagonal[j]:
            continue
        factor[m, :m], factor[m, m] = across, np.sqrt(pivot)
        columns[m] = column
        chosen.append(j)
        lower = factor[: m + 1, : m + 1]
        theta = np.linalg.solve(lower.T, np.linalg.solve(lower, target[chosen])).astype(np.float64)
        left = target - theta @ columns[: m + 1]
    return np.array(chosen, np.int64), theta
