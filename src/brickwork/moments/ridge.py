"""Ridge regression from moments, safe where the Gram matrix is singular, with a certificate of its error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from brickwork.errors import BadData, RequestError
from brickwork.moments.gram import Moments

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)  # among which held-out rows choose


@dataclass(frozen=True)
class Ridge:
    """weight (d, m) and bias (m,) with y ≈ x·weight + bias, and how well the normal equations hold."""

    weight: Tensor
    bias: Tensor | None
    error: float  # ‖(G + λI)W − C − λ·prior‖ / ‖C + λ·prior‖ of the solved system
    unexplained: float  # share of the responses' variance (or square, without bias) that is left

    def squared_error(self, moments: Moments) -> float:
        """Σ‖x·weight + bias − y‖² over the rows of these moments, which it need not have been fitted to."""
        weight, error = self.weight, moments.sum_yy.sum()
        error = error - 2 * (weight * moments.cross).sum() + (weight * (moments.gram @ weight)).sum()
        if self.bias is not None:
            shift = (
                2 * (moments.sum_x.unsqueeze(-2) @ weight).squeeze(-2) - 2 * moments.sum_y + moments.rows * self.bias
            )
            error = error + (self.bias * shift).sum()
        return max(0.0, float(error))


def solve_ridge(moments: Moments, *, ridge: float = 1e-4, bias: bool = True, prior: Tensor | None = None) -> Ridge:
    """Minimise Σ‖x·W + b − y‖² + ridge · mean diagonal · ‖W − prior‖².

    The bias is not shrunk: inputs and responses are centred first. `prior` (d, m) is what the weights go to where
    the data say nothing; zero if not given.

    >>> x = torch.randn(50, 3); y = x @ torch.tensor([[1.0], [2.0], [3.0]]) + 4
    >>> fit = solve_ridge(Moments.empty(3, 1).add(x, y), ridge=0.0)
    >>> [round(v, 3) for v in (*fit.weight.flatten().tolist(), fit.bias.item())]
    [1.0, 2.0, 3.0, 4.0]
    """
    _check(moments, ridge, prior)
    return _centred(moments, bias).solve(ridge, prior)


def _check(moments: Moments, ridge: float, prior: Tensor | None) -> None:
    if ridge < 0:
        raise RequestError(f"ridge must not be negative, not {ridge}")
    if moments.rows <= 0:
        raise BadData("no rows were collected: there is nothing to fit")
    if not moments.finite:
        raise BadData("the collected moments hold NaN or infinite values")
    if prior is not None and not bool(torch.isfinite(prior).all()):
        raise BadData("the weights to start from hold NaN or infinite values")


@dataclass(frozen=True)
class _Centred:
    """The normal equations of some moments, per row, inputs and responses around their means: every ridge is solved from them."""

    gram: Tensor
    cross: Tensor
    total: Tensor  # of each response, its mean square
    mean_x: Tensor
    mean_y: Tensor | None  # None: there is no bias, and the means are part of what is fitted
    floor: Tensor  # centring leaves rounding errors of this size: below them there is nothing to learn from
    tiny: float
    square: float  # of all responses, around 0

    def solve(self, ridge: float, prior: Tensor | None) -> Ridge:
        gram, cross = self.gram, self.cross
        strength = ridge * gram.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True).clamp(min=0)
        system = gram.clone()
        system.diagonal(dim1=-2, dim2=-1).add_(strength)
        start = torch.zeros_like(cross) if prior is None else prior.to(cross).expand_as(cross)
        right = cross + strength.unsqueeze(-1) * start
        # solved for the change: a direction in which the data say nothing keeps the prior, also without a ridge
        size = max(float(right.norm()), self.tiny)
        weight = start + _solve(system, cross - gram @ start, self.floor, size)
        error = float((system @ weight - right).norm()) / size if size else 0.0
        left = self.total - 2 * (weight * cross).sum(-2) + (weight * (gram @ weight)).sum(-2)
        scale = float(self.total.clamp(min=0).sum())
        if scale <= 1e-12 * self.square:  # a response that never changes is explained by the bias
            unexplained = 0.0
        else:
            unexplained = float(left.clamp(min=0).sum()) / scale
        shift = None if self.mean_y is None else self.mean_y - (self.mean_x.unsqueeze(-2) @ weight).squeeze(-2)
        return Ridge(weight, shift, error, unexplained)


def _centred(moments: Moments, bias: bool) -> _Centred:
    n = moments.rows
    gram, cross = moments.gram / n, moments.cross / n
    mean_x, mean_y = moments.sum_x / n, moments.sum_y / n
    total = moments.sum_yy / n
    largest = gram.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)
    floor = gram.shape[-1] * torch.finfo(gram.dtype).eps * largest
    tiny, square = 1e-9 * float(cross.norm()), float(total.sum())
    if bias:
        gram -= mean_x.unsqueeze(-1) * mean_x.unsqueeze(-2)
        cross -= mean_x.unsqueeze(-1) * mean_y.unsqueeze(-2)
        total = total - mean_y.square()
    return _Centred(gram, cross, total, mean_x, mean_y if bias else None, floor, tiny, square)


def best_ridge(
    seen: Moments, held: Moments, *, bias: bool = True, prior: Tensor | None = None, ridges: Sequence[float] = RIDGES
) -> float:
    """Of some ridges the one that, fitted to the rows seen, errs least on those held out; of equals the smallest.

    >>> x = torch.randn(40, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64); y = x[:, :1]
    >>> noise = torch.randn(40, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    >>> exact, noisy = ([Moments.empty(30, 1).add(x[k], (y + e)[k]) for k in (slice(32), slice(32, 40))] for e in (0, 3 * noise))
    >>> best_ridge(*exact), best_ridge(*noisy)
    (0.0001, 0.1)
    """
    _check(seen, min(ridges), prior)
    equations = _centred(seen, bias)
    errors = [equations.solve(ridge, prior).squared_error(held) for ridge in ridges]
    return ridges[errors.index(min(errors))]


def _solve(system: Tensor, right: Tensor, floor: Tensor, size: float) -> Tensor:
    """Cholesky with one refinement; where the system is nearly singular, the minimum-norm solution.

    floor: eigenvalues up to it are rounding errors; size: what a residual is small against.
    """
    factor, failed = torch.linalg.cholesky_ex(system)
    if not bool(failed.any()):
        pivots = factor.diagonal(dim1=-2, dim2=-1).square()
        if bool((pivots > floor).all()):
            weight = torch.cholesky_solve(right, factor)
            weight = weight + torch.cholesky_solve(right - system @ weight, factor)
            if float((system @ weight - right).norm()) <= 1e-8 * size:
                return weight
    values, vectors = torch.linalg.eigh(system)
    usable = values > floor
    inverse = torch.where(usable, 1 / torch.where(usable, values, 1.0), 0.0)
    return vectors @ (inverse.unsqueeze(-1) * (vectors.mT @ right))
