"""Memory for the many tensors of a proof, asked of the system in one piece."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_LINE = 64  # bytes of a line of cache: where tensors of torch begin, too


class Room:
    """Empty tensors side by side in one array.

    numpy asks the system for large pages. First writes to 100 MB of small pages, which torch gets, take 25 ms; to large
    ones 3 ms. What is never taken costs nothing.

    >>> room = Room(torch.float32, [6])
    >>> room.take((2, 3)).shape, room.take((4,)).shape
    (torch.Size([2, 3]), torch.Size([4]))
    """

    def __init__(self, dtype: torch.dtype, sizes: Sequence[int]) -> None:
        self.dtype = dtype
        kind = np.float64 if dtype == torch.float64 else np.float32
        self.left = torch.from_numpy(np.empty(sum(sizes) + _LINE * len(sizes), kind)).to(dtype)

    def take(self, shape: Sequence[int]) -> Tensor:
        """An empty tensor; one of torch's own where the room is used up."""
        size = torch.Size(shape).numel()
        start = -self.left.data_ptr() % _LINE // self.dtype.itemsize
        if start + size > len(self.left):
            return torch.empty(tuple(shape), dtype=self.dtype)
        result, self.left = self.left[start : start + size], self.left[start + size :]
        return result.view(tuple(shape))


class Between:
    """Selects along several axes one after the other; what lies between is written to the same place for all tensors."""

    def __init__(self) -> None:
        self.place = torch.empty(0)

    def select(self, tensor: Tensor, changes: Sequence[tuple[int, Tensor]]) -> Tensor:
        """The tensor with these places of each of these axes.

        >>> Between().select(torch.arange(6).view(2, 3), [(0, torch.tensor([1])), (1, torch.tensor([0, 2]))])
        tensor([[3, 5]])
        """
        for step, (dim, places) in enumerate(changes):
            if step == 0 and len(changes) > 1 and tensor.device.type == "cpu":
                shape = [*tensor.shape[:dim], len(places), *tensor.shape[dim + 1 :]]
                tensor = torch.index_select(tensor, dim, places, out=self._there(shape, tensor.dtype))
            else:  # the last is what is asked for; of three axes, the place is taken by what is read
                tensor = tensor.index_select(dim, places)
        return tensor

    def _there(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        size = torch.Size(shape).numel()
        if self.place.dtype != dtype or len(self.place) < size:
            self.place = torch.empty(size, dtype=dtype)
        return self.place[:size].view(tuple(shape))
