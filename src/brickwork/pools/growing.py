"""Which kernels a pool should grow by for a network: those that stand for what its own leave badly served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from brickwork.pools.clusters import k_means_beside
from brickwork.pools.gram_choice import strengths
from brickwork.pools.growth import Growth
from brickwork.pools.layers import weight_of
from brickwork.pools.nearest import nearest
from brickwork.pools.options import GrowOptions
from brickwork.pools.task import exact_in, in_half, rounded

if TYPE_CHECKING:
    from brickwork.pools.pool import KernelPool


@dataclass(frozen=True)
class GrowthBudget:
    """How far a pool may grow for one task: at most so many `kernels` per layer, in a file of at most `size` bytes."""

    kernels: int
    size: int | None = None

    @classmethod
    def of(cls, options: GrowOptions) -> GrowthBudget | None:
        """From the options of `learn` and `encode`; None: not at all."""
        return None if options.grow is None else cls(options.grow, options.grow_bytes)

    def shares(self, pool: KernelPool, weights: Mapping[str, Tensor], *, seed: int = 0) -> dict[str, int]:
        """How many kernels each layer may get. Within `size` bytes, those that save most for their bytes come first.

        weights: of the network that the pool is to serve, by layer. What is saved is counted as a share of the layer's
        energy, so that small layers get theirs.
        """
        if self.size is None:
            return dict.fromkeys(pool.layers, self.kernels)
        worth: list[tuple[float, str]] = []
        wide = False  # one kernel that 16 bits cannot hold makes the whole file one of 32
        for number, (name, book) in enumerate(pool.layers.items()):
            vectors = weights[name].reshape(-1, book.shape[1])
            new = new_kernels(vectors, book, self.kernels, seed=seed + number)
            wide = wide or not exact_in(new, 16)
            energy = float(vectors.square().sum())
            worth += [(saved / max(energy, 1e-20) / book.shape[1], name) for saved in _savings(vectors, book, new)]
        worth.sort(key=lambda pair: -pair[0])
        low, high = 0, len(worth)  # as many of the best as fit the file
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high) if self._fits(pool, _counted(pool, worth[:middle]), wide=wide) else (low, middle - 1)
            )
        return _counted(pool, worth[:low])

    def narrow(self, pool: KernelPool, counts: Mapping[str, int]) -> bool:
        """Whether so many kernels fit the file only in 16 bits per number, whatever they turn out to be."""
        return self.size is not None and not self._fits(pool, counts, wide=True)

    def _fits(self, pool: KernelPool, counts: Mapping[str, int], *, wide: bool) -> bool:
        from brickwork.pools.growth_file import growth_bytes

        value = 0.1 if wide else 0.0  # one that 16 bits do not hold exactly, or one that they do
        books = {name: pool.layers[name] for name, n in counts.items() if n}
        rows = {name: torch.full((counts[name], b.shape[1]), value, dtype=b.dtype) for name, b in books.items()}
        return not rows or growth_bytes(Growth(pool.hash, rows), pool) <= (self.size or 0)


def new_kernels(
    vectors: Tensor, book: Tensor, count: int, *, weights: Tensor | None = None, narrow: bool = False, seed: int = 0
) -> Tensor:
    """At most `count` kernels to go behind those of `book`, in numbers that 16 bits hold exactly; none that it has.

    Where 16 bits would lose them they stay as they are; narrow: also then, to the nearest that 16 bits hold.
    """
    if count < 1:
        return book[:0]
    centres = k_means_beside(vectors, book.to(vectors), count, weights=weights, seed=seed)
    centres = in_half(centres) if narrow else rounded(centres, 16)
    centres = torch.unique(centres, dim=0).to(book)
    if not len(centres):
        return centres
    return centres[(centres != book[nearest(centres, book)]).any(1)]


def _savings(vectors: Tensor, book: Tensor, new: Tensor) -> list[float]:
    """For each new kernel what it takes off the squared distances of those that would choose it."""
    if not len(new):
        return []
    left = (vectors - book[nearest(vectors, book)]).square().sum(1)
    index = nearest(vectors, new)
    saved = (left - (vectors - new[index]).square().sum(1)).clamp(min=0)
    return torch.zeros(len(new), dtype=torch.float64).index_add_(0, index.cpu(), saved.double().cpu()).tolist()


def _counted(pool: KernelPool, worth: list[tuple[float, str]]) -> dict[str, int]:
    counts = dict.fromkeys(pool.layers, 0)
    for _, name in worth:
        counts[name] += 1
    return counts


def without_unused(
    pool: KernelPool, new: Mapping[str, Tensor], codes: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """New kernels of a pool that some index names, and the indices as they are without the others."""
    kept, moved = {}, {}
    for name, index in codes.items():
        old = len(pool.layers[name])
        more = new.get(name, pool.layers[name][:0])
        used = torch.bincount(index.reshape(-1).long(), minlength=old + len(more)) > 0
        used[:old] = True
        places = used.cumsum(0) - 1
        kept[name], moved[name] = more[used[old:].to(more.device)], places[index.long()]
    return kept, moved


class GrowingCodebooks:
    """The codebooks of a pool, and what they grow by while a network is encoded, layer after layer."""

    def __init__(self, pool: KernelPool, model: nn.Module, budget: GrowthBudget | None, *, seed: int = 0) -> None:
        self.before, self.seed = pool, seed
        weights = {name: weight_of(model, name).cpu() for name in pool.shapes}
        self.counts = {} if budget is None else budget.shares(pool, weights, seed=seed)
        self.narrow = budget is not None and budget.narrow(pool, self.counts)
        self.new: dict[str, Tensor] = {}

    def of(self, name: str, weight: Tensor, gram: Tensor | None = None) -> Tensor:
        """A layer's codebook where this weight is, grown for it if there is room; gram (groups, d, d) of its inputs."""
        book = self.before.layers[name].to(weight)
        if self.counts.get(name) and name not in self.new:
            cost = None if gram is None else strengths(gram, len(weight), book.shape[1])
            vectors, seed = weight.detach().reshape(-1, book.shape[1]), self.seed + list(self.before.layers).index(name)
            new = new_kernels(vectors, book, self.counts[name], weights=cost, narrow=self.narrow, seed=seed)
            self.new[name] = new.cpu().to(self.before.layers[name].dtype)
        return torch.cat([book, self.new[name].to(book)]) if name in self.new else book

    def drop_unused(self, codes: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Without the new kernels that nothing uses; the indices as they are then."""
        self.new, moved = without_unused(self.before, self.new, {name: index.cpu() for name, index in codes.items()})
        return moved

    @property
    def growth(self) -> Growth | None:
        """What was added; None where nothing was missing."""
        layers = {n: self.new[n] for n in self.before.layers if n in self.new and len(self.new[n])}
        return Growth(self.before.hash, layers) if layers else None

    @property
    def pool(self) -> KernelPool:
        """With what was added."""
        growth = self.growth
        return self.before if growth is None else self.before.grown_by(growth)
