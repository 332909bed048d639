"""A weight that is trained freely and used as the pool's kernels: the straight-through step and its commitment."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from brickwork.pools.nearest import Sorted, nearest


class Straight(torch.autograd.Function):
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


class Chosen(nn.Module):
    """The parametrization of one layer's weight: temporary kernels (the weight itself) and the pool's nearest to them.

    book (K, d): the layer's codebook. second: a codebook for what the first leaves. old: indices to stay with.
    """

    book: Tensor
    reach: Tensor
    index: Tensor
    second: Tensor | None
    more: Tensor | None
    old: Tensor | None
    kernels: Tensor
    scale: Tensor
    softness: Tensor

    def __init__(
        self,
        weight: Tensor,
        book: Tensor,
        *,
        beta: float = 0.5,
        second: Tensor | None = None,
        old: Tensor | None = None,
        scaled: bool = False,
        soft: bool = False,
    ) -> None:
        super().__init__()
        self.scaled, self.soft = scaled, soft
        self.pull = 2 * beta / weight.numel()  # of β · mean((kernels − weight)²)
        book = book.to(weight)
        self.unit, reach = spread(book)
        count = weight.numel() // book.shape[1]
        held = {
            "book": book,
            "reach": reach,
            "second": None if second is None else second.to(weight),
            "old": None if old is None else old.to(weight.device).long(),
            "index": torch.zeros(count, dtype=torch.int64) if old is None else old.clone().long(),
            "more": None if second is None else torch.zeros(count, dtype=torch.int64),
            "kernels": weight.detach().clone(),
            "scale": torch.ones((), dtype=weight.dtype),
            "softness": torch.ones((), dtype=weight.dtype),
        }
        for name, value in held.items():
            self.register_buffer(name, value, persistent=False)
        self.fresh = False  # whether the codebook is the one of the last choice
        self.sorted: Sorted | None = None

    def use_book(self, book: Tensor) -> None:
        """Choose from this codebook from now on."""
        self.book = book.to(self.book)
        self.unit, self.reach = spread(self.book)
        self.fresh = False

    def forward(self, weight: Tensor) -> Tensor:
        used = Straight.apply(weight, self.kernels, self.pull)
        return used + self.softness * (weight - self.kernels).detach() if self.soft else used

    def vectors(self, weight: Tensor) -> Tensor:
        """The temporary kernels (N, d), in units of the layer's scale."""
        vectors = weight.detach().reshape(-1, self.book.shape[1])
        return vectors / self.scale if self.scaled else vectors

    def assign(self, weight: Tensor) -> Tensor:
        """The nearest kernel of each, (N,)."""
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

    def gain(self, weight: Tensor, index: Tensor) -> Tensor:
        """How much closer (squared) these kernels are than the old ones, (N,)."""
        assert self.old is not None
        vectors = self.vectors(weight)
        return (vectors - self.book[self.old]).square().sum(1) - (vectors - self.book[index]).square().sum(1)

    def take(self, weight: Tensor, index: Tensor) -> None:
        """Use these kernels from now on; with two codebooks, what they leave is chosen from the second."""
        self.index.copy_(index)
        found = self.book[index]
        vectors = self.vectors(weight)
        if self.second is not None and self.more is not None:
            self.more.copy_(nearest(vectors - found, self.second))
            found = found + self.second[self.more]
        if self.scaled:
            flat = weight.detach().reshape(found.shape)
            self.scale.copy_((flat * found).sum() / found.square().sum().clamp(min=1e-20))
            found = found * self.scale
        self.kernels.copy_(found.reshape(self.kernels.shape))


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
