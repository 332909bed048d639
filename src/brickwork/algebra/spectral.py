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
    parts = [np.linalg.svd(matrix, full_matrices=False) for matrix in _matrices(tensors, base)]
    rank = max(1, len(parts[0][1]) // len(parts))
    left = _orthogonal(np.concatenate([u[:, :rank] for u, _, _ in parts], 1))
    right = _orthogonal(np.concatenate([v[:rank].T for _, _, v in parts], 1))
    values = np.concatenate([s[:rank] for _, s, _ in parts])
    return base + (scale * (left * values) @ right.T).reshape(base.shape).astype(base.dtype)


@method("iso_c", paper="https://arxiv.org/abs/2502.04959", base=True)
def iso_c(tensors: Sequence[np.ndarray], base: np.ndarray, context: TensorContext, *, scale: float = 1.0) -> np.ndarray:
    """Isotropic: the sum of the task vectors with all its singular values replaced by their mean."""
    if base.ndim < 2:
        return base + sum(x - base for x in tensors) * base.dtype.type(scale / len(tensors))
    left, values, right = np.linalg.svd(sum(_matrices(tensors, base)), full_matrices=False)
    return base + (scale * values.mean() * left @ right).reshape(base.shape).astype(base.dtype)


def _orthogonal(columns: np.ndarray) -> np.ndarray:
    """The nearest matrix with orthonormal columns."""
    left, _, right = np.linalg.svd(columns, full_matrices=False)
    return left @ right
