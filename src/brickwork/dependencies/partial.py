"""Cut a dependency where it is measured: what CovLasso's own optimality condition says of the coefficient.

The covariance of two logits may be zero while one still helps to explain the other beside the rest. CovLasso gives j no
part in i if and only if |E[f_j r]| ≤ λ/2, where r is what the others, without j, leave of i. That is penalised here.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from brickwork.dependencies.covlasso import CovLasso
from brickwork.dependencies.cutting import CovariancePenalty, Pair
from brickwork.errors import RequestError


class CoefficientPenalty(CovariancePenalty):
    """strength · Σ |mean of f_j r_i| / √(E f_i² E f_j²), both ways, r_i = f_i less CovLasso's fit without j.

    Called like a CovariancePenalty, batch after batch. The Gram matrix is a running mean over batches (`decay`); the fits
    (`model`, a plain CovLasso) are made anew `every` so many batches.

    >>> cut = CoefficientPenalty((0, 1), strength=2)
    >>> f = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    >>> linked = torch.cat([f[:, :1], f[:, :1] + 0.1 * f[:, 1:2], f[:, 2:]], 1)
    >>> round(CoefficientPenalty((0, 1))(linked).item(), 1), round(cut(f).item() / 2, 1)
    (2.0, 0.2)
    """

    def __init__(
        self,
        pairs: Pair | Sequence[Pair],
        *,
        classes: Sequence[str] | None = None,
        strength: float = 1.0,
        model: CovLasso | None = None,
        every: int = 5,
        decay: float = 0.9,
    ) -> None:
        super().__init__(pairs, classes=classes, strength=strength)
        if every < 1:
            raise RequestError(f"every is {every}; it must be 1 or more.")
        if not 0 <= decay < 1:
            raise RequestError(f"decay is {decay}; it must be 0 or more and below 1.")
        self.model = CovLasso(lam=0.05, relative=True) if model is None else copy.copy(model)
        # what may not be used is left out of the Gram matrix here; one target at a time: more threads only wait
        self.model.options = replace(self.model.options, own=True, threads=self.model.threads or 1)
        self.model.check()
        if self.model.loss != "plain":
            raise RequestError(f"the model's loss is {self.model.loss!r}; a running Gram serves 'plain' alone.")
        self.every, self.decay = every, decay
        self._ways = [way for a, b in self.pairs for way in ((a, b), (b, a))]
        self._gram: Tensor | None = None
        self._weights: Tensor | None = None  # (ways, classes): 1 at i, minus the fit at the others, 0 at j
        self._step = 0

    def __call__(self, *given: Tensor) -> Tensor:
        logits = self._logits(given)
        rows = logits.movedim(1, -1).reshape(-1, logits.shape[1])
        self._watch(rows.detach())
        assert self._gram is not None and self._weights is not None
        targets, features = (torch.tensor([way[k] for way in self._ways]) for k in (0, 1))
        size = self._gram.diagonal().to(rows.dtype).clamp(min=1e-12).sqrt()
        left = rows @ self._weights.to(rows).T
        result = (left * rows[:, features]).mean(0) / (size[targets] * size[features])
        return self.strength * result.abs().sum()

    def _watch(self, rows: Tensor) -> None:
        wide = rows.double()
        gram = wide.T @ wide / len(wide)
        self._gram = gram if self._gram is None else self.decay * self._gram + (1 - self.decay) * gram
        if self._step % self.every == 0:
            self._weights = self._fits(self._gram.cpu().numpy())
        self._step += 1

    def _fits(self, gram: np.ndarray) -> Tensor:
        weights = np.zeros((len(self._ways), len(gram)))
        for row, (i, j) in zip(weights, self._ways, strict=True):
            row[i] = 1.0
            others = np.delete(np.arange(len(gram)), [i, j])
            if len(others) and gram[i, i] > 0:
                inner = np.ascontiguousarray(gram[np.ix_(others, others)])
                cross = np.ascontiguousarray(gram[i, others])[None]
                fit = self.model.fit_gram(inner, cross=cross, squares=gram[i, i].reshape(1))
                row[others] = -fit.coef_[0]
        return torch.from_numpy(weights)


PENALTIES = {"covariance": CovariancePenalty, "coefficient": CoefficientPenalty}
