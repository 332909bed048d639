"""3×3 convolutions with a quarter of the multiplications (Winograd's F(4×4, 3×3); Lavin & Gray, arXiv 1509.09308).

Wide layers on a CPU gain from it what the transforms cost several times over: 64 images on one core (torch 2.13), 512 to
512 channels on 4×4 places 60 → 17 ms, 128 to 256 on 16×16 99 → 42. Rounding errors are about five times the direct way's.
"""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

WIDE = 256  # outputs from which on it is faster
PIECE = 2**21  # numbers in a piece of the transformed images: what stays near the core

_INPUT = [
    [4, 0, -5, 0, 1, 0],
    [0, -4, -4, 1, 1, 0],
    [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0],
    [0, 2, -1, -2, 1, 0],
    [0, 4, 0, -5, 0, 1],
]
_WEIGHT = [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]  # in 24ths
_OUTPUT = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]


def suits(weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int) -> bool:
    """Whether a convolution can go this way, and is faster for it."""
    plain = weight.dim() == 4 and weight.shape[2:] == (3, 3) and groups == 1
    once = all(n == 1 for n in (*stride, *dilation))
    kind = weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64)
    return plain and once and kind and weight.shape[0] >= WIDE and weight.shape[1] >= 64


def transformed(weight: Tensor) -> Tensor:
    """A weight (outputs, inputs, 3, 3) as `convolve` takes it, (36, inputs, outputs)."""
    outputs, inputs = weight.shape[:2]
    flat = weight.permute(2, 3, 1, 0).reshape(9, -1)
    return (_square("weight", weight.dtype) @ flat).reshape(36, inputs, outputs)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Sequence[int]) -> Tensor:
    """x (N, inputs, H, W) convolved with a `transformed` weight; the result is channels last.

    >>> x, w = torch.randn(2, 3, 7, 9).double(), torch.randn(4, 3, 3, 3).double()
    >>> bool((convolve(x, transformed(w), None, (1, 0)) - F.conv2d(x, w, padding=(1, 0))).abs().max() < 1e-12)
    True
    """
    inputs, outputs = weight.shape[1:]
    (up, left), (high, wide) = padding, x.shape[2:]
    height, width = high + 2 * up - 2, wide + 2 * left - 2
    down, across = -(-height // 4), -(-width // 4)  # tiles of 4×4 outputs
    border = (0, 0, left, 4 * across + 2 - wide - left, up, 4 * down + 2 - high - up)
    forth, back = _square("input", x.dtype), _square("output", x.dtype)
    result = x.new_empty(len(x), 4 * down, 4 * across, outputs)
    count = max(1, PIECE // (36 * down * across * max(inputs, outputs)))
    for piece, out in zip(x.permute(0, 2, 3, 1).split(count), result.split(count), strict=True):
        tiles = F.pad(piece, border).unfold(1, 6, 4).unfold(2, 6, 4)  # (n, down, across, inputs, 6, 6)
        tiles = (forth @ tiles.permute(4, 5, 0, 1, 2, 3).reshape(36, -1)).reshape(36, -1, inputs)
        made = (back @ (tiles @ weight).reshape(36, -1)).reshape(4, 4, len(piece), down, across, outputs)
        out.reshape(len(piece), down, 4, across, 4, outputs).copy_(made.permute(2, 3, 0, 4, 1, 5))
    if bias is not None:
        result += bias
    return result[:, :height, :width].permute(0, 3, 1, 2)


@functools.lru_cache(maxsize=16)
def _square(which: str, dtype: torch.dtype) -> Tensor:
    """One of the transforms for rows and columns together."""
    with torch.inference_mode(False):  # kept beyond the block that happens to ask first
        rows = {"input": _INPUT, "weight": _WEIGHT, "output": _OUTPUT}[which]
        matrix = torch.tensor(rows, dtype=torch.float64) / (24 if which == "weight" else 1)
        return torch.kron(matrix, matrix).to(dtype)
