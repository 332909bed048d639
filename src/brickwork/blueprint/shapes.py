"""What the commonest operations return on the meta device, without torch's rules for it.

Those rules are Python for these operations, and take 0.5 to 3 ms where a convolution's take 0.1: without this file,
half of a trace. Whatever is out of the ordinary is left to them, and so is every error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def quick(func: Any, args: tuple[Any, ...]) -> Any:
    """The result of an operation on meta tensors, or None: then torch has to say.

    >>> quick(torch.ops.aten.relu.default, (torch.empty(2, 3, device="meta"),)).shape
    torch.Size([2, 3])
    """
    rule = _RULES.get(func)
    return None if rule is None else rule(*args)


def _like(x: Tensor, *_: Any) -> Tensor | None:
    return _empty(x) if x.is_floating_point() else None


def _empty(x: Tensor) -> Tensor:
    """`torch.empty_like`, which is Python on the meta device, without asking it where the order is the usual one."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device) if x.is_contiguous() else torch.empty_like(x)


def _itself(x: Tensor, *_: Any) -> Tensor | None:
    return x if x.is_floating_point() else None


def _batch_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *_: Any
) -> tuple[Tensor, Tensor, Tensor] | None:
    whole = x.dtype in (torch.float32, torch.float64)  # statistics of smaller types are of another type
    if training or not whole or x.dim() < 2 or not _vectors(x, x.shape[1], weight, bias, mean, variance):
        return None
    return _empty(x), x.new_empty(x.shape[1]), x.new_empty(x.shape[1])


def _addmm(bias: Tensor, rows: Tensor, columns: Tensor) -> Tensor | None:
    if rows.dtype != columns.dtype or rows.dim() != 2 or columns.dim() != 2:
        return None
    if rows.shape[1] != columns.shape[0] or not _vectors(rows, columns.shape[1], bias):
        return None
    return rows.new_empty(rows.shape[0], columns.shape[1])


def _sum(x: Any, y: Any, *_: Any) -> Tensor | None:
    return _like(x) if _same_form(x, y) else None


def _sum_in_place(x: Any, y: Any, *_: Any) -> Tensor | None:
    return _itself(x) if _same_form(x, y) else None


def _same_form(x: Any, y: Any) -> bool:
    """Whether both are tensors of one shape and type, in one order of memory."""
    tensors = isinstance(x, Tensor) and isinstance(y, Tensor)
    return tensors and (x.shape, x.dtype, x.stride()) == (y.shape, y.dtype, y.stride())


def _convolution(x: Tensor, weight: Tensor, *rest: Any) -> Tensor | None:
    """Over two dimensions, of a batch, in torch's own order of memory."""
    if len(rest) != 7:
        return None
    bias, stride, padding, dilation, transposed, _, groups = rest
    plain = not transposed and x.dim() == weight.dim() == 4 and len(stride) == len(padding) == len(dilation) == 2
    if not plain or x.dtype != weight.dtype or not x.is_floating_point():
        return None
    fits = x.shape[1] == weight.shape[1] * groups and weight.shape[0] % groups == 0 and 0 not in x.shape
    if not fits or not x.is_contiguous() or not weight.is_contiguous() or not _vectors(x, weight.shape[0], bias):
        return None
    kernel, image = weight.shape[2:], x.shape[2:]
    size = [(image[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1 for d in (0, 1)]
    return x.new_empty(x.shape[0], weight.shape[0], *size) if min(size) > 0 else None


def _vectors(x: Tensor, size: int, *given: Tensor | None) -> bool:
    """Whether each is a vector of this size and of x's type; None may stand for any."""
    return all(v is None or (v.shape == (size,) and v.dtype == x.dtype) for v in given)


_RULES: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm.default: _batch_norm,
    aten.addmm.default: _addmm,
    aten.convolution.default: _convolution,
    aten.add.Tensor: _sum,
    aten.add_.Tensor: _sum_in_place,
    **dict.fromkeys(
        (
            aten.relu.default,
            aten.gelu.default,
            aten.elu.default,
            aten.leaky_relu.default,
            aten.hardtanh.default,
            aten.hardswish.default,
        ),
        _like,
    ),
    **dict.fromkeys(
        (aten.hardtanh_.default, aten.hardswish_.default, aten.leaky_relu_.default, aten.elu_.default), _itself
    ),
}
