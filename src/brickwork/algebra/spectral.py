"""Merge methods on the singular vectors of matrices; convolutions as (outputs, rest), vectors by their mean."""

from collections.abc import Sequence

import numpy as np

from brickwork.algebra.methods import TensorContext, method


def _matrices(tensors: Sequence[np.ndarray], base: np.ndarray) -> list[np.ndarray]:
    return [(x - base).reshape(x.shape[0], -1).astype(np.float64) for x in tensors]


@method("tsv", paper="https://arxiv.org/abs/2412.00081", base=True)
def tsv(tensors: Sequence[np.ndarray], base: np.ndarray, context: TensorContext, *, scale: float = 1.0) -> np.ndarray:
    """Task singular vectors: of each task its top directions, made orthogonal to the other tasks', and added up."""
    if base.ndim < 2:
        return base + sum(x - base for x in tensors) * base.dtype.type(scale / len(tensors))
    exact = base.dtype == np.float64
    rank = max(1, min(base.reshape(base.shape[0], -1).shape) // len(tensors))
    parts = [_top(matrix, rank, exact) for matrix in _matrices(tensors, base)]
    left = _orthogonal(np.concatenate([u for u, _, _ in parts], 1), exact)
    right = _orthogonal(np.concatenate([v for _, _, v in parts], 1), exact)
    values = np.concatenate([s for _, s, _ in parts])
    return base + (scale * (left * values) @ right.T).reshape(base.shape).astype(base.dtype)


@method("iso_c", paper="https://arxiv.org/abs/2502.04959", base=True)
def iso_c(tensors: Sequence[np.ndarray], base: np.ndarray, context: TensorContext, *, scale: float = 1.0) -> np.ndarray:
    """Isotropic: the sum of the task vectors with all its singular values replaced by their mean."""
    if base.ndim < 2:
        return base + sum(x - base for x in tensors) * base.dtype.type(scale / len(tensors))
    left, values, right = np.linalg.svd(sum(_matrices(tensors, base)), full_matrices=False)
    return base + (scale * values.mean() * left @ right).reshape(base.shape).astype(base.dtype)


#: below these shares of the largest a square root of a product is not exact to the last bits of float32
_SMALL, _TINY = 1e-5, 1e-10


def _top(matrix: np.ndarray, rank: int, exact: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The `rank` largest singular values with their vectors on both sides, as columns.

    By the eigenvectors of the smaller product, in a third of the time of an SVD; in float64, and where values are so small
    that their square is lost, by the SVD itself.
    """
    if not exact:
        wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
        squares, one = np.linalg.eigh(wide @ wide.T)
        values, one = np.sqrt(np.maximum(squares[::-1][:rank], 0)), one[:, ::-1][:, :rank]
        if values[-1] > _SMALL * values[0]:
            other = wide.T @ one / values
            return (one, values, other) if wide is matrix else (other, values, one)
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return left[:, :rank], values[:rank], right[:rank].T


def _orthogonal(columns: np.ndarray, exact: bool) -> np.ndarray:
    """The nearest matrix with orthonormal columns."""
    if not exact and columns.shape[0] >= columns.shape[1]:
        squares, vectors = np.linalg.eigh(columns.T @ columns)
        if squares[0] > _TINY * squares[-1]:
            return columns @ (vectors / np.sqrt(squares)) @ vectors.T
    left, _, right = np.linalg.svd(columns, full_matrices=False)
    return left @ right
