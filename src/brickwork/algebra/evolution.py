"""CMA-ES in the unit cube (Hansen 2016, arXiv 1604.00772): few numbers, a goal that can only be compared, no gradient.

Written here because it is short: the library `cmaes` would be a dependency for the dozen numbers of a merge.
"""

from collections.abc import Sequence

import numpy as np

AGAIN = 20  # draws of a point before it is put on the edge of the cube


class Evolution:
    """Ask for points, tell their order from best to worst, and again.

    >>> search = Evolution(np.array([0.9, 0.9]), seed=0)
    >>> for _ in range(60):
    ...     points = search.ask()
    ...     search.tell(points, np.argsort(((points - [0.2, 0.5]) ** 2).sum(1)))
    >>> search.mean.round(3).tolist()
    [0.2, 0.5]
    """

    def __init__(self, start: np.ndarray, *, spread: float = 0.3, seed: int = 0) -> None:
        size = len(start)
        self.mean, self.spread = start.astype(float), spread
        self.covariance = np.eye(size)
        self.path, self.path_spread = np.zeros(size), np.zeros(size)
        self.random = np.random.default_rng([seed, 11])
        self.count = 4 + int(3 * np.log(size))
        ranks = np.log((self.count + 1) / 2) - np.log(np.arange(1, self.count // 2 + 1))
        self.weights = ranks / ranks.sum()
        self.effective = 1 / (self.weights**2).sum()
        self.told = 0

    def ask(self) -> np.ndarray:
        """Points to try, one a row, all within the cube."""
        values, vectors = np.linalg.eigh(self.covariance)
        scale = vectors * np.sqrt(values.clip(1e-20))
        return np.stack([self._inside(scale) for _ in range(self.count)])

    def _inside(self, scale: np.ndarray) -> np.ndarray:
        for _ in range(AGAIN):
            point = self.mean + self.spread * scale @ self.random.normal(size=len(self.mean))
            if point.min() >= 0 and point.max() <= 1:
                break
        return point.clip(0, 1)

    def tell(self, points: np.ndarray, order: Sequence[int] | np.ndarray) -> None:
        """The points of one `ask`, and their numbers from best to worst."""
        size, many, self.told = len(self.mean), self.effective, self.told + 1
        rate = (many + 2) / (size + many + 5)
        damping = 1 + 2 * max(0.0, np.sqrt((many - 1) / (size + 1)) - 1) + rate
        rate_path = (4 + many / size) / (size + 4 + 2 * many / size)
        one = 2 / ((size + 1.3) ** 2 + many)
        several = min(1 - one, 2 * (many - 2 + 1 / many) / ((size + 2) ** 2 + many))
        usual = np.sqrt(size) * (1 - 1 / (4 * size) + 1 / (21 * size**2))
        steps = (points[np.asarray(order)[: len(self.weights)]] - self.mean) / self.spread
        step = self.weights @ steps
        values, vectors = np.linalg.eigh(self.covariance)
        round_step = vectors @ ((vectors.T @ step) / np.sqrt(values.clip(1e-20)))
        self.path_spread = (1 - rate) * self.path_spread + np.sqrt(rate * (2 - rate) * many) * round_step
        long = np.linalg.norm(self.path_spread) / np.sqrt(1 - (1 - rate) ** (2 * self.told))
        moving = float(long < (1.4 + 2 / (size + 1)) * usual)
        self.path = (1 - rate_path) * self.path + moving * np.sqrt(rate_path * (2 - rate_path) * many) * step
        lost = one * (1 - moving) * rate_path * (2 - rate_path)
        self.covariance = (
            (1 - one - several + lost) * self.covariance
            + one * np.outer(self.path, self.path)
            + several * (steps.T * self.weights) @ steps
        )
        self.mean = self.mean + self.spread * step
        change = (rate / damping) * (np.linalg.norm(self.path_spread) / usual - 1)
        self.spread = float(np.clip(self.spread * np.exp(min(1.0, change)), 1e-8, 1.0))
