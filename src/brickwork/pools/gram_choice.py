"""Kernels chosen for what they do to a layer's responses, not for how near they look.

For a layer with inputs X the error of kernels Q in place of weights W is ‖X(W − Q)‖², a distance in the metric of the Gram
matrix XᵀX. Channel after channel takes its best kernel in the metric that is left once all later channels may still make
up for it, and hands them its error to make up for (the block form of optimal brain compression, as in GPTQ).
"""

import torch
from torch import Tensor

from brickwork.errors import BadData
from brickwork.pools.codebook_weight import spread
from brickwork.pools.nearest import nearest

DAMPING = 0.01  # of the mean diagonal: directions that the images hardly show


def choose_in_gram(
    weight: Tensor, gram: Tensor, book: Tensor, *, old: Tensor | None = None, stay: float = 0.0
) -> Tensor:
    """Indices (N,) into `book` (K, d) for a weight (outputs, …) with the Gram matrix (groups, D, D) of its inputs.

    old, stay: indices to keep unless another lowers the error by `stay` × the usual squared distance of neighbours.
    """
    groups, size, _ = gram.shape
    length = book.shape[1]
    rows = weight.detach().double().reshape(groups, -1, size).clone()
    blocks = size // length
    indices = torch.zeros(groups, rows.shape[1], blocks, dtype=torch.int64, device=weight.device)
    kept = None if old is None else old.to(weight.device).long().reshape(indices.shape)
    book = book.to(rows)
    unit = spread(book)[0] * stay
    order = gram.diagonal(dim1=-2, dim2=-1).mean(0).reshape(blocks, length).sum(1).argsort(descending=True, stable=True)
    places = (order[:, None] * length + torch.arange(length, device=order.device)).reshape(-1)
    unity = torch.eye(length, dtype=rows.dtype, device=rows.device)
    for g in range(groups):
        factor = _factor(gram[g][places][:, places])
        work = rows[g][:, places]
        for k in range(blocks):
            now, later = slice(k * length, (k + 1) * length), slice((k + 1) * length, size)
            whiten = torch.linalg.solve_triangular(factor[now, now], unity, upper=True)
            seen, kernels = work[:, now] @ whiten, book @ whiten
            index = nearest(seen, kernels)
            if kept is not None:
                before = kept[g, :, order[k]]
                gain = (seen - kernels[before]).square().sum(1) - (seen - kernels[index]).square().sum(1)
                index = torch.where(gain > unit * whiten.square().mean() * length, index, before)
            indices[g, :, order[k]] = index
            # the later channels take up what this one leaves
            work[:, later] -= (seen - kernels[index]) @ factor[now, later]
    return indices.reshape(-1)


def strengths(gram: Tensor, outputs: int, length: int) -> Tensor:
    """For each of a weight's vectors (N,) how strong the inputs are that it meets: what an error in it costs.

    gram (groups, D, D) of the layer's inputs; the vectors come in the order of the weight's outputs.
    """
    power = gram.diagonal(dim1=-2, dim2=-1).reshape(len(gram), 1, -1, length).mean(3)  # groups, 1, blocks
    return power.expand(-1, outputs // len(gram), -1).reshape(-1).clamp(min=0)


def _factor(gram: Tensor) -> Tensor:
    """The upper Cholesky factor of the inverse of a damped Gram matrix; damped more where rounding is all there is of it."""
    gram = gram.double()
    unity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    damping = DAMPING * gram.diagonal().mean().clamp(min=1e-30)
    while True:
        root, failed = torch.linalg.cholesky_ex(gram + damping * unity)
        if not failed:
            factor, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(root), upper=True)
            if not failed:
                return factor
        if not torch.isfinite(damping):
            raise BadData("the Gram matrix of a layer's inputs holds NaN or infinite values.")
        damping = damping * 10
