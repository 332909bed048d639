"""Many images as batches that are made when they are wanted, and how large a batch may be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor, nn

from brickwork.blueprint.record import record
from brickwork.devices import number_of

WIDEST = 2**26  # bytes that one value of a forward pass may take in a batch; twice that on a GPU


class SlicedImages(Protocol):
    """A tensor of images, or whatever makes a slice of them when asked."""

    @property
    def shape(self) -> torch.Size: ...
    def __len__(self) -> int: ...
    def __getitem__(self, which: slice) -> Tensor: ...


class ImageBatches:
    """Slices of images, on a device and of a type when they are asked for.

    >>> batches = ImageBatches(torch.arange(5), 2, torch.zeros(1, dtype=torch.float64))
    >>> len(batches), batches[1].tolist()
    (3, [2.0, 3.0])
    """

    def __init__(
        self, images: SlicedImages, size: int, like: Tensor, bounds: list[tuple[int, int]] | None = None
    ) -> None:
        """bounds: which slices; else as many as `size` asks for, as even as can be, the longer ones first."""
        pieces = -(-len(images) // size)
        short, more = divmod(len(images), pieces)
        ends = [short * k + min(k, more) for k in range(pieces + 1)]
        self.images, self.like, self.bounds = images, like, list(pairwise(ends)) if bounds is None else bounds

    @property
    def sizes(self) -> list[int]:
        """The different lengths, at most two, the longer first."""
        return sorted({b - a for a, b in self.bounds}, reverse=True)

    def of_size(self, size: int) -> ImageBatches:
        """The batches of one length."""
        return ImageBatches(self.images, size, self.like, [(a, b) for a, b in self.bounds if b - a == size])

    def __len__(self) -> int:
        return len(self.bounds)

    def __getitem__(self, k: int) -> Tensor:
        a, b = self.bounds[k]
        return self.images[a:b].to(self.like)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[k] for k in range(len(self)))


def fitting(model: nn.Module, images: SlicedImages, at_most: int = 250, output: str | int | None = None) -> int:
    """How many images may go through the model at once."""
    like = number_of(model)
    two = images[0:2].to(like)
    graph = record(model, two, output=output)
    largest = max(
        (math.prod(v.shape) * v.dtype.itemsize for op in graph.live() for v in op.outputs if v is not None), default=1
    )
    room = WIDEST * (2 if like.is_cuda else 1)
    return max(4, min(at_most, room * len(two) // max(1, largest)))
