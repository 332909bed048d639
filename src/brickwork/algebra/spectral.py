"""Merge methods on the singular vectors of matrices; convolutions as (outputs, rest), vectors by their mean."""

from collections.abc import Sequence

import numpy as np

from brickwork.algebra.methods import LIMITS, TensorContext, method, share


def _matrices(tensors: Sequence[np.ndarray], base: np.ndarray, dtype: type = np.float64) -> list[np.ndarray]:
    return [(x - base).reshape(x.shape[0], -1).astype(dtype, copy=False) for x in tensors]


@method("tsv", paper="https://arxiv.org/abs/2412.00081", base=True)
def tsv(tensors: Sequence[np.ndarray], base: np.ndarray, context: TensorContext, *, scale: float = 1.0) -> np.ndarray:
    """Task singular vectors: of each task its top directions, made orthogonal to the other tasks', and added up."""
    if base.ndim < 2:
        return base + sum(x - base for x in tensors) * base.dtype.type(scale / len(tensors))
    rows, columns = base.shape[0], base.size // base.shape[0]
    short, long = sorted((rows, columns))
    # right vectors are far from dependent where a matrix is long: float32 is then exact to its last bits
    dtype = np.float32 if base.dtype == np.float32 and long >= 2 * short else np.float64
    matrices = [matrix if rows <= columns else matrix.T for matrix in _matrices(tensors, base, dtype)]
    rank, noise = max(1, short // len(tensors)), long * float(np.finfo(base.dtype).eps)
    parts = [_top(matrix, rank, noise) for matrix in matrices]
    values = np.concatenate([s for _, s, _ in parts])
    if not len(values):
        return base.copy()
    left, right = [u.T for u, _, _ in parts], [v for _, _, v in parts]
    turns = [_inverse_root(vectors) for vectors in (left, right)]
    if turns[0] is None or turns[1] is None:  # directions that tasks share
        merged = (_orthogonal(np.concatenate(left).T) * values) @ _orthogonal(np.concatenate(right).T).T
    else:
        factors = np.concatenate(left).T @ ((turns[0] * values) @ turns[1])
        merged = factors.astype(dtype) @ np.concatenate(right)
    return base + (scale * (merged if rows <= columns else merged.T)).reshape(base.shape).astype(base.dtype)


@method("iso_c", paper="https://arxiv.org/abs/2502.04959", base=True)
def iso_c(tensors: Sequence[np.ndarray], base: np.ndarray, context: TensorContext, *, scale: float = 1.0) -> np.ndarray:
    """Isotropic: the sum of the task vectors with all its singular values replaced by their mean."""
    if base.ndim < 2:
        return base + sum(x - base for x in tensors) * base.dtype.type(scale / len(tensors))
    left, values, right = np.linalg.svd(sum(_matrices(tensors, base)), full_matrices=False)
    return base + (scale * values.mean() * left @ right).reshape(base.shape).astype(base.dtype)


@method("iso_cts", paper="https://arxiv.org/abs/2502.04959", base=True)
def iso_cts(
    tensors: Sequence[np.ndarray], base: np.ndarray, context: TensorContext, *, common: float = 0.8, scale: float = 1.0
) -> np.ndarray:
    """Isotropic, with room for each task: the sum's last directions give way to the tasks' own, all values the mean.

    common: share of the directions that stay the sum's; the tasks have the rest, as many each.
    """
    if base.ndim < 2:
        return base + sum(x - base for x in tensors) * base.dtype.type(scale / len(tensors))
    matrices = _matrices(tensors, base)
    left, values, right = np.linalg.svd(sum(matrices), full_matrices=False)
    own = int(round((1 - common) * len(values), 9)) // len(tensors)
    shared = len(values) - own * len(tensors)
    lefts, kept, rights = [left[:, :shared]], [values[:shared]], [right[:shared]]
    for matrix in matrices:
        u, s, v = np.linalg.svd(matrix - lefts[0] @ (lefts[0].T @ matrix), full_matrices=False)
        lefts.append(u[:, :own])
        kept.append(s[:own])
        rights.append(v[:own])
    turned = _orthogonal(np.concatenate(lefts, 1)) @ _orthogonal(np.concatenate(rights).T).T
    return base + (scale * np.concatenate(kept).mean() * turned).reshape(base.shape).astype(base.dtype)


LIMITS["iso_cts"] = lambda common, **_: share("common", common)


@method("wudi", paper="https://arxiv.org/abs/2503.08099", base=True)
def wudi(
    tensors: Sequence[np.ndarray], base: np.ndarray, context: TensorContext, *, ridge: float = 1.0, scale: float = 1.0
) -> np.ndarray:
    """The change that differs least from each task's on the inputs of that task, which its own rows stand for.

    min over τ of Σ ‖(τ − τ_i) τ_iᵀ‖² / ‖τ_i‖², which the paper descends in 300 steps of Adam from the sum: it is quadratic, and
    solved here. ridge: of the mean diagonal, towards the sum, in place of stopping early. LeNets on halves of the digits,
    training images, three starts: 73 and 64 % right at 1e-2, 89 and 71 at 1, 86 and 72 at 10; the sum has 78 and 64.
    """
    if base.ndim < 2:
        return base + sum(x - base for x in tensors) * base.dtype.type(scale / len(tensors))
    matrices = [m for m in _matrices(tensors, base) if m.any()]
    if not matrices:
        return base.copy()
    total = sum(matrices[1:], matrices[0])
    sizes = [float(np.linalg.norm(m)) for m in matrices]
    rows = np.concatenate([m / size for m, size in zip(matrices, sizes, strict=True)])
    # what the sum answers wrong on the rows of each task
    wrong = np.concatenate([(m - total) @ (m / size).T for m, size in zip(matrices, sizes, strict=True)], 1)
    # B (AAᵀ + λ)⁻¹ A = B A (AᵀA + λ)⁻¹: the smaller system is solved
    if len(rows) <= rows.shape[1]:
        change = _damped_solve(rows @ rows.T, wrong.T, ridge).T @ rows
    else:
        change = _damped_solve(rows.T @ rows, (wrong @ rows).T, ridge).T
    return base + (scale * (total + change)).reshape(base.shape).astype(base.dtype)


LIMITS["wudi"] = lambda ridge, **_: [] if ridge > 0 else [f"ridge is {ridge}; it must be above 0"]


def _damped_solve(system: np.ndarray, right: np.ndarray, ridge: float) -> np.ndarray:
    strength = ridge * float(np.trace(system)) / len(system)
    return np.linalg.solve(system + strength * np.eye(len(system)), right)


#: below these shares of the largest a square, or the root of a product, is not exact to the last bits
_SMALL, _TINY = 1e-5, 1e-10


def _products(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Inner products of rows in float64, a few thousand columns at a time."""
    result = np.zeros((len(one), len(other)))
    for k in range(0, one.shape[1], 4096):
        a = one[:, k : k + 4096].astype(np.float64, copy=False)
        result += a @ (a if other is one else other[:, k : k + 4096].astype(np.float64, copy=False)).T
    return result


def _top(wide: np.ndarray, rank: int, noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The `rank` largest singular values of a matrix with their left vectors, as columns, and right ones, as rows.

    Fewer where values are `noise` of the largest or less: their vectors could be any, and would turn those of other tasks.
    By the eigenvectors of the smaller product, in a third of the time of an SVD; by the SVD itself where values are so small
    that their square is lost.
    """
    squares, left = np.linalg.eigh(_products(wide, wide))
    squares, left = squares[::-1][:rank], left[:, ::-1][:, :rank]
    if squares[-1] > _SMALL**2 * squares[0]:
        right = left.T.astype(wide.dtype) @ wide
        values = np.sqrt(squares)
        return left, values, np.divide(right, values[:, None], out=right, casting="same_kind")
    left, values, right = np.linalg.svd(wide.astype(np.float64, copy=False), full_matrices=False)
    rank = min(rank, int((values > noise * values[0]).sum()))
    return left[:, :rank], values[:rank], right[:rank]


def _inverse_root(parts: Sequence[np.ndarray]) -> np.ndarray | None:
    """N^(-1/2) of the inner products N of rows, which are orthonormal within each part; None if N is nearly singular.

    Of two parts with inner products M, N = [[1, M], [Mᵀ, 1]], whose root follows from the eigenvalues s² of 1 − MMᵀ, a
    matrix of half the size.
    """
    if len(parts) != 2:
        rows = np.concatenate(parts)
        values, vectors = np.linalg.eigh(_products(rows, rows))
        return None if values.min() <= _TINY * values.max() else (vectors / np.sqrt(values)) @ vectors.T
    inner = _products(*parts)
    squares, vectors = np.linalg.eigh(np.eye(len(inner)) - inner @ inner.T)
    if squares.min(initial=1) <= 2 * _TINY:
        return None
    s = np.sqrt(np.minimum(squares, 1))
    same, turned = np.sqrt((1 + s) / 2) / s, vectors.T @ inner
    cross = -(vectors / (s * np.sqrt(2 * (1 + s)))) @ turned
    other = np.eye(inner.shape[1]) + (turned.T * ((1 + 2 * s) / (2 * s * s * (1 + s) * (same + 1)))) @ turned
    return np.block([[(vectors * same) @ vectors.T, cross], [cross.T, other]])


def _orthogonal(columns: np.ndarray) -> np.ndarray:
    """The nearest matrix with orthonormal columns."""
    left, _, right = np.linalg.svd(columns.astype(np.float64), full_matrices=False)
    return left @ right
