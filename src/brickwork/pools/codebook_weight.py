"""A weight that is trained freely and used as the pool's kernels: the straight-through step and its commitment."""

from typing import Any

import torch
from torch import Tensor, nn

from brickwork.pools.nearest import Sorted, nearest


class StraightThrough(torch.autograd.Function):
    """The kernels forward; backward the gradient as it comes, plus that of pull/2 · ‖weight − kernels‖².

    The commitment is part of this gradient instead of the loss: it costs one pass over the weight, and a recorded step
    stays one graph.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, kernels: Tensor, pull: float) -> Tensor:
        ctx.pull = pull
        if pull:
            ctx.save_for_backward(weight, kernels)
        return kernels.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        if ctx.pull:
            weight, kernels = ctx.saved_tensors
            gradient = torch.add(gradient, weight - kernels, alpha=ctx.pull)
        return gradient, None, None


class CodebookWeight(nn.Module):
    """The parametrization of one layer's weight: temporary kernels (the weight itself) and the pool's nearest to them.

    book (K, d): the layer's codebook. old: indices to stay with. While `free` is 1 the temporary kernels are used as they
    are; may_be_free: whether it ever is.
    """

    book: Tensor
    reach: Tensor
    index: Tensor
    old: Tensor | None
    kernels: Tensor
    free: Tensor

    def __init__(
        self,
        weight: Tensor,
        book: Tensor,
        *,
        commitment: float = 0.5,
        old: Tensor | None = None,
        may_be_free: bool = False,
    ) -> None:
        super().__init__()
        self.may_be_free = may_be_free
        self.pull = 2 * commitment / weight.numel()  # of β · mean((kernels − weight)²)
        book = book.to(weight)
        self.unit, reach = spread(book)
        count = weight.numel() // book.shape[1]
        buffers = {
            "book": book,
            "reach": reach,
            "old": None if old is None else old.to(weight.device).long(),
            "index": torch.zeros(count, dtype=torch.int64) if old is None else old.clone().long(),
            "kernels": weight.detach().clone(),
            "free": torch.ones((), dtype=weight.dtype),
        }
        for name, value in buffers.items():
            self.register_buffer(name, value, persistent=False)
        self.fresh = False  # whether the codebook is the one of the last choice
        self.sorted: Sorted | None = None

    def use_book(self, book: Tensor) -> None:
        """Choose from this codebook from now on."""
        self.book = book.to(self.book)
        self.unit, self.reach = spread(self.book)
        self.fresh = False

    def forward(self, weight: Tensor) -> Tensor:
        used = StraightThrough.apply(weight, self.kernels, self.pull)
        return used + self.free * (weight - self.kernels).detach() if self.may_be_free else used

    def vectors(self, weight: Tensor) -> Tensor:
        """The temporary kernels (N, d)."""
        return weight.detach().reshape(-1, self.book.shape[1])

    def nearest_to(self, weight: Tensor) -> Tensor:
        """The index of the kernel nearest to each temporary one, (N,)."""
        vectors = self.vectors(weight)
        if self.book.shape[1] == 1:
            if self.sorted is None or not self.fresh:
                self.sorted = Sorted(self.book)
            self.fresh = True
            return self.sorted.find(vectors)
        if vectors.device.type != "cpu" or not self.fresh:
            self.fresh = True
            return nearest(vectors, self.book)
        # Closer to its kernel than half the way to that one's neighbour: no other can be nearer.
        unsure = ((vectors - self.book[self.index]).square().sum(1) >= self.reach[self.index]).nonzero()[:, 0]
        index = self.index.clone()
        index[unsure] = nearest(vectors[unsure], self.book) if len(unsure) else unsure
        return index

    def staying(self, weight: Tensor, stay: float) -> tuple[Tensor, Tensor | None]:
        """The nearest kernels, but old ones where they gain too little; and what they gain, if there are old ones."""
        index = self.nearest_to(weight)
        if self.old is None:
            return index, None
        vectors = self.vectors(weight)
        gain = (vectors - self.book[self.old]).square().sum(1) - (vectors - self.book[index]).square().sum(1)
        return torch.where(gain > stay * self.unit, index, self.old), gain

    def use(self, index: Tensor) -> None:
        """Use the kernels of these indices from now on."""
        self.index.copy_(index)
        self.kernels.copy_(self.book[index].reshape(self.kernels.shape))


def spread(book: Tensor) -> tuple[float, Tensor]:
    """Mean squared distance of an entry to its neighbour; and for each the squared distance within which it is nearest."""
    if len(book) == 1:
        return 1.0, torch.full((1,), torch.inf, dtype=book.dtype, device=book.device)
    if book.shape[1] == 1:
        values = torch.unique(book[:, 0])
        gaps = (values[1:] - values[:-1]).square() if len(values) > 1 else values.new_ones(1)
        return float(gaps.mean()), torch.zeros(len(book), dtype=book.dtype, device=book.device)
    closest = torch.cat(
        [
            torch.cdist(part, book, compute_mode="donot_use_mm_for_euclid_dist").topk(2, largest=False).values[:, 1]
            for part in book.split(256)
        ]
    ).square()
    return max(float(closest.mean()), 1e-30), closest / 4 * (1 - 1e-5)  # less a hair, for the rounding of distances
