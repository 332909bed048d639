"""Moments of all patches that a convolution reads, without laying them out.

A patch of a k × k kernel is k lines of k columns. Only the lines are laid out, k times the input instead of k · k times. The
Gram matrix of two lines of the kernel is a product of what was laid out with itself, so many lines lower; with a stride of
one, lines of the kernel that are as far apart share all of that product but what lies at the border.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise

import torch
from torch import Tensor, nn

from brickwork.moments.gram import Moments, column_sums, product
from brickwork.moments.layers import Layer, full_size

LAID_OUT = 2**28  # bytes at once


def has_windows(layer: Layer) -> bool:
    """Whether a layer is a convolution over two axes, not grouped, with a kernel of more than one place."""
    if layer.op is None or int(layer.op.args[8]) != 1:
        return False
    kernel = layer.op.args[1].shape[2:]
    return len(kernel) == 2 and max(kernel) > 1


def add_windows(moments: Moments, layer: Layer, x: Tensor, y: Tensor, *, gram: bool = True) -> None:
    """Take in all places of images x (n, c, h, w) and responses y (n, m, h', w'): the sums that their patches have.

    gram: False where the inputs have been taken in and the responses are to be compared with others.
    """
    assert layer.op is not None
    kernel = tuple(layer.op.args[1].shape[2:])
    stride, padding, dilation = (full_size(layer.op.args[k], 2) for k in (3, 4, 5))
    channels, (high, wide) = x.shape[1], y.shape[2:]
    bytes_each = (x.shape[2] + 2 * padding[0]) * wide * channels * kernel[1] * x.element_size()
    cross = moments.cross[0].view(channels, *kernel, -1)
    for images, answers in zip(*(t.split(max(1, LAID_OUT // bytes_each)) for t in (x, y)), strict=True):
        padded = nn.functional.pad(images, (padding[1], padding[1], padding[0], padding[0])).permute(2, 0, 3, 1)
        columns = padded.unfold(2, (kernel[1] - 1) * dilation[1] + 1, stride[1])[..., :: dilation[1]]
        lines = columns.contiguous().flatten(3)  # (lines, images, places in a line, channels × columns of the kernel)
        starts = [a * dilation[0] for a in range(kernel[0])]
        read = [slice(a, a + (high - 1) * stride[0] + 1, stride[0]) for a in starts]  # by each line of the kernel
        if gram:
            table = moments.gram[0].view(channels, *kernel, channels, *kernel)
            sum_x = moments.sum_x[0].view(channels, *kernel)
            for a, b, block in _products(lines, read, starts, high, stride[0]):
                block = block.view(channels, kernel[1], channels, kernel[1])
                table[:, a, :, :, b, :] += block
                if a != b:
                    table[:, b, :, :, a, :] += block.permute(2, 3, 0, 1)
            sums = column_sums(lines.flatten(1, 2))
            for a, which in enumerate(read):
                sum_x[:, a] += sums[which].sum(0).view(channels, kernel[1])
            moments.rows += len(images) * high * wide
        flat = answers.permute(2, 0, 3, 1).flatten(0, 2)
        for a, which in enumerate(read):
            cross[:, a] += product(lines[which].flatten(0, 2), flat).view(channels, kernel[1], -1)
        moments.add_sums(flat)


def _products(
    lines: Tensor, read: list[slice], starts: list[int], high: int, stride: int
) -> Iterator[tuple[int, int, Tensor]]:
    """(a, b, XᵀX of what the lines a and b of the kernel read), for a up to b."""
    if stride > 1:
        for a, b in combinations_with_replacement(range(len(read)), 2):
            yield a, b, product(lines[read[a]].flatten(0, 2), lines[read[b]].flatten(0, 2))
        return
    for apart, distance in enumerate(starts):
        first = starts[: len(starts) - apart]
        edges = sorted({edge for start in first for edge in (start, start + high)})
        pieces = {
            (low, up): product(lines[low:up].flatten(0, 2), lines[low + distance : up + distance].flatten(0, 2))
            for low, up in pairwise(edges)
        }
        for a, start in enumerate(first):
            inside = [piece for (low, up), piece in pieces.items() if start <= low and up <= start + high]
            yield a, a + apart, torch.stack(inside).sum(0) if len(inside) > 1 else inside[0]
