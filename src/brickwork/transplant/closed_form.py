"""Adapters without training: least squares on pseudo-gradients, or on features.

With one convolution the pseudo-gradient of the student is linear in its weights, so the paper's distillation loss without
labels has a closed-form minimum, and no image is needed at all.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.copying import copy_module
from brickwork.errors import RequestError
from brickwork.moments.gram import Moments
from brickwork.moments.ridge import solve_ridge
from brickwork.transplant.adapter import Adapter
from brickwork.transplant.chain import Chain, Dummy


def solve_pseudo_gradients(
    adapter: Adapter,
    task: Chain,
    teacher: Chain,
    *,
    draws: int = 64,
    batch: int = 32,
    size: int | None = None,
    dummy: Dummy | None = None,
    ridge: float = 1e-6,
    seed: int = 0,
    order: Sequence[int] | None = None,
) -> Adapter:
    """A copy whose first convolution minimises ‖D'_S − D'_T‖² over random gradients; the others are the identity.

    The transposed first convolution sends what arrives at its output, U, down to its input: V = Σ_k w_kᵀ · shifted U. Rows
    of the least squares are places of the maps, unknowns its weights. Biases stay zero: no pseudo-gradient sees them.
    order: for each output of the task the teacher's of the same class, where they stand otherwise.
    """
    solved = copy_module(adapter)
    _identity_above(solved)
    first: nn.Conv2d = solved.convs[0]  # type: ignore[assignment]
    kernel = first.kernel_size[0]
    weight = first.weight
    moments = Moments.empty(weight.shape[0] * kernel * kernel, weight.shape[1], weight.device)
    start = dummy or Dummy("second", 0.5)
    for k in range(draws):
        how = Dummy(start.kind, start.share, seed=seed * draws + k)
        gradient = task.random(batch, size=size, seed=seed * draws + k, like=weight)
        with torch.no_grad():
            arrived, wanted = task(gradient, how), teacher(as_teachers(gradient, order), how)
        if arrived.shape[2:] != wanted.shape[2:]:
            raise RequestError(
                f"student and teacher send back maps of {tuple(arrived.shape[2:])} and {tuple(wanted.shape[2:])}; "
                "their task modules must shrink features alike."
            )
        wanted = wanted.index_select(1, solved.order) / solved.scale.to(wanted.dtype)
        columns = F.unfold(arrived, kernel, padding=kernel // 2)  # (B, out·k·k, places)
        moments.add(columns.transpose(1, 2).flatten(0, 1), wanted.flatten(2).transpose(1, 2).flatten(0, 1))
    fit = solve_ridge(moments, ridge=ridge, bias=False)
    flipped = fit.weight.T.reshape(weight.shape[1], weight.shape[0], kernel, kernel).transpose(0, 1).flip(2, 3)
    with torch.no_grad():
        first.weight.copy_(flipped)
        if first.bias is not None:
            first.bias.zero_()
    return solved


def as_teachers(gradient: Tensor, order: Sequence[int] | Tensor | None) -> Tensor:
    """A gradient at the task's outputs as the teacher's stand."""
    if order is None:
        return gradient
    placed = torch.empty_like(gradient)
    return placed.index_copy_(1, torch.as_tensor(order, device=gradient.device), gradient)


def solve_features(adapter: Adapter, given: Tensor, wanted: Tensor, *, ridge: float = 1e-4) -> Adapter:
    """A copy whose first convolution maps features onto paired ones, image by image: closed-form stitching."""
    solved = copy_module(adapter)
    _identity_above(solved)
    first: nn.Conv2d = solved.convs[0]  # type: ignore[assignment]
    kernel = first.kernel_size[0]
    if len(given) != len(wanted) or given.shape[2:] != wanted.shape[2:]:
        raise RequestError(
            f"features {tuple(given.shape)} and {tuple(wanted.shape)} are not paired; give both for the same images."
        )
    moments = Moments.empty(first.weight[0].numel(), first.weight.shape[0], first.weight.device)
    with torch.no_grad():
        for x, y in zip(given.split(64), wanted.split(64), strict=True):
            columns = F.unfold(solved.prepared(x), kernel, padding=kernel // 2)
            moments.add(columns.transpose(1, 2).flatten(0, 1), y.flatten(2).transpose(1, 2).flatten(0, 1))
    prior = first.weight.detach().flatten(1).T.double()
    fit = solve_ridge(moments, ridge=ridge, bias=True, prior=prior)
    assert fit.bias is not None
    with torch.no_grad():
        first.weight.copy_(fit.weight.T.reshape(first.weight.shape))
        if first.bias is not None:
            first.bias.copy_(fit.bias)
    return solved


def _identity_above(adapter: Adapter) -> None:
    for conv in list(adapter.convs)[1:]:
        nn.init.dirac_(conv.weight)  # type: ignore[arg-type]
        nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
