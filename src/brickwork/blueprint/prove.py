"""The last check before surgery hands a module out: both sides computed, on random numbers.

Labels prove that channels meet the right partners. What labels cannot see (a constant that follows the width,
a branch taken by it, an order within one unit) shows here. Parameters are drawn afresh, so that a zero or an
untrained layer hides nothing; the caller's weights and data are not used. Small networks are computed in
float64, large ones in float32, where convolution is many times faster.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from brickwork.blueprint.record import as_call
from brickwork.errors import Unsupported
from brickwork.outputs import logits_of

if TYPE_CHECKING:
    from brickwork.blueprint.plan import Blueprint

#: relative to the largest output; float32 rounding over a hundred layers stays well below its bound
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
_SMALL = 50_000_000  # multiply-adds up to which float64 costs next to nothing


def precision(bp: Blueprint, model: nn.Module) -> torch.dtype:
    """float64 where it is cheap or the model's own; grouped convolution has no fast float64 form on a CPU."""
    if any(p.dtype == torch.float64 for p in model.parameters()):
        return torch.float64
    grouped = any(s.kind == "conv" and s.groups > 1 for s in bp.sites)
    return torch.float64 if bp.count().macs <= _SMALL and not grouped else torch.float32


def scrambled(model: nn.Module, seed: int, dtype: torch.dtype) -> nn.Module:
    """A copy on the CPU with parameters and normalisation statistics drawn afresh, in eval mode."""
    memo: dict[int, Any] = {}
    noise = _Noise(seed, dtype)
    variances = {id(m.running_var) for m in model.modules() if getattr(m, "running_var", None) is not None}
    means = {id(m.running_mean) for m in model.modules() if getattr(m, "running_mean", None) is not None}
    for tensor in [*model.parameters(), *model.buffers()]:
        new: Any = tensor.detach().cpu()
        if tensor.is_floating_point():
            if isinstance(tensor, nn.Parameter) or id(tensor) in means:
                spread = 1.7 * (max(1, tensor[0].numel()) ** -0.5 if tensor.dim() > 1 else 0.3)
                centre = 0.6 if tensor.dim() < 2 and id(tensor) not in means else 0.0
                new = noise(tensor.shape).mul_(spread).add_(centre)
            elif id(tensor) in variances:
                new = noise(tensor.shape).mul_(0.5).add_(1)
            new = new.to(dtype)
        memo[id(tensor)] = nn.Parameter(new, requires_grad=False) if isinstance(tensor, nn.Parameter) else new
    twin = copy.deepcopy(model, memo).eval()
    for module in twin.modules():  # plain tensor attributes follow, or types would mix
        for name, value in list(vars(module).items()):
            if isinstance(value, Tensor) and value.is_floating_point():
                setattr(module, name, value.detach().cpu().to(dtype))
    return twin


class _Noise:
    """Numbers from −1 to 1 out of one table, which is read on and on: drawing millions takes as long as the rest of a proof.

    The table's length is a prime, so that no two channels of a layer are alike.
    """

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.table = torch.empty(1_000_003, dtype=dtype).uniform_(-1, 1, generator=rng)
        self.place = 0

    def __call__(self, shape: torch.Size) -> Tensor:
        size = shape.numel()
        end = self.place + size
        turns = -(-end // len(self.table))
        result = (self.table if turns <= 1 else self.table.repeat(turns))[self.place : end].clone()
        self.place = end % len(self.table)
        return result.reshape(shape)


def random_input(example: Any, seed: int, dtype: torch.dtype) -> Any:
    """Random numbers in the shape of an example (two of a batch); whole numbers stay within what any table has."""
    rng = torch.Generator().manual_seed(seed)

    def draw(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if x.is_floating_point():
            return torch.randn(x.shape, generator=rng, dtype=dtype)
        return torch.randint(0, 2, x.shape, generator=rng).to(x.dtype)

    if isinstance(example, Tensor) and example.dim() > 1:
        example = example[:1] if example.numel() > 50_000 else example[:2]  # one large image is enough
    return tree_map(draw, example)


def run(model: nn.Module, example: Any, output: Any) -> Tensor:
    args, kwargs = as_call(example)
    with torch.no_grad():
        return logits_of(model(*args, **kwargs), output, guess=False)


def prove(bp: Blueprint, new: Callable[[], Tensor], reference: Callable[[], Tensor], what: str) -> None:
    """Refuse unless both functions give the same numbers."""
    try:
        left, right = new(), reference()
    except (RuntimeError, ValueError, TypeError, AssertionError, IndexError) as error:
        raise Unsupported(f"{what} cannot run: {type(error).__name__}: {str(error).splitlines()[0]}") from error
    if left.shape != right.shape:
        raise Unsupported(f"{what} gives shape {tuple(left.shape)}, where {tuple(right.shape)} was due")
    if not bool(torch.isfinite(right).all()):
        return  # random parameters overflow in this model: the labels' proof must do
    scale = max(1e-6, float(right.abs().max()))
    worst = float((left - right).abs().max()) / scale if left.numel() else 0.0
    if not worst < _TOLERANCE[right.dtype]:
        raise Unsupported(
            f"{what} is not exact (it differs by {worst:.1e} of the largest output): the forward depends on the width "
            "in a way that layouts do not show, such as a number or a choice computed from a channel count"
        )


def output_places(bp: Blueprint, gone: set[int]) -> tuple[int, Tensor] | None:
    """Where the output has channels: their axis, and the places that a cut leaves."""
    if bp.output_dim is None:
        return None
    kept = ~np.isin(bp.output_units, np.fromiter(gone, np.int64, len(gone)))
    return bp.output_dim, torch.from_numpy(np.flatnonzero(kept))


def on_meta(model: nn.Module) -> bool:
    return any(t.is_meta for t in [*model.parameters(), *model.buffers()])
