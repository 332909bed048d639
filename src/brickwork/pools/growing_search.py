"""A search whose pool grows on the way: once training shows which kernels are missing, new ones join and settle."""

from collections.abc import Callable

import torch

from brickwork.pools.clusters import sums_by
from brickwork.pools.growing import GrowthBudget, new_kernels, without_unused
from brickwork.pools.growth import Growth
from brickwork.pools.pool import KernelPool
from brickwork.pools.search import Search
from brickwork.pools.task import in_half, rounded

GROWS_AT = 0.4  # of a run without a free part
FIXED_AT = 0.6  # of what is left then: from here on new kernels stay as they are, and the network settles with them


class GrowingSearch:
    """Adds kernels to the codebooks of a search; the pool itself is left alone, and its own kernels never move.

    Between joining and being fixed a new kernel is the mean of the temporary ones that choose it. before: what is done
    before each training step otherwise.
    """

    def __init__(
        self,
        search: Search,
        pool: KernelPool,
        budget: GrowthBudget,
        before: Callable[[int, int], None],
        *,
        seed: int = 0,
    ) -> None:
        self.search, self.pool, self.budget, self.before, self.seed = search, pool, budget, before, seed
        self.joined = self.fixed = self.narrow = False
        self.joins_at = search.free or GROWS_AT
        self.fixed_at = self.joins_at + FIXED_AT * (1 - self.joins_at)

    def step(self, step: int, steps: int) -> None:
        """Before a training step."""
        if not self.joined and step >= self.joins_at * steps:
            self._join()
        elif not self.fixed and step >= self.fixed_at * steps:
            self._fix()
        elif self.joined and not self.fixed and step % self.search.refresh == 0:
            self._follow()
        self.before(step, steps)

    @torch.no_grad()
    def finish(self) -> None:
        """After training, however short it was: kernels are chosen once more, and new ones that none is left with go."""
        if not self.joined:
            self._join()
            self.search.choose()
        if not self.fixed:
            self._fix()
        self.search.choose()
        layers, growth = self.search.layers, self.growth
        new, codes = without_unused(self.pool, {} if growth is None else growth.layers, self.search.codes)
        for name, chosen in layers.items():
            chosen.use_book(torch.cat([chosen.book[: len(self.pool.layers[name])], new[name].to(chosen.book)]))
            chosen.index.copy_(codes[name])

    @property
    def growth(self) -> Growth | None:
        """The new kernels as they are now; None: there are none."""
        new = {}
        for name, book in self.pool.layers.items():
            more = self.search.layers[name].book[len(book) :].cpu().to(book.dtype)
            if len(more):
                new[name] = more
        return Growth(self.pool.hash, new) if new else None

    @torch.no_grad()
    def _join(self) -> None:
        self.joined = True
        vectors = {name: c.vectors(self.search.temporary(name)) for name, c in self.search.layers.items()}
        whole = {name: v.reshape(self.pool.shapes[name].shape).cpu() for name, v in vectors.items()}
        counts = self.budget.shares(self.pool, whole, seed=self.seed)
        self.narrow = self.budget.narrow(self.pool, counts)
        for number, (name, chosen) in enumerate(self.search.layers.items()):
            new = new_kernels(vectors[name], chosen.book, counts[name], narrow=self.narrow, seed=self.seed + number)
            chosen.use_book(torch.cat([chosen.book, new]))

    @torch.no_grad()
    def _follow(self) -> None:
        for name, chosen in self.search.layers.items():
            book, old = chosen.book, len(self.pool.layers[name])
            sums, counts = sums_by(chosen.vectors(self.search.temporary(name)), chosen.index, len(book))
            moves = (counts > 0) & (torch.arange(len(book), device=counts.device) >= old)
            means = (sums / counts.clamp(min=1)[:, None]).to(book)
            book.copy_(torch.where(moves.to(book.device)[:, None], means, book))
            chosen.fresh = False

    @torch.no_grad()
    def _fix(self) -> None:
        """To numbers that 16 bits hold exactly; what nothing chooses, or the pool has, is dropped."""
        self.fixed = True
        for name, chosen in self.search.layers.items():
            old = len(self.pool.layers[name])
            book, more = chosen.book[:old], chosen.book[old:]
            used = torch.bincount(chosen.index, minlength=len(chosen.book))[old:] > 0
            more = in_half(more[used]) if self.narrow else rounded(more[used], 16)
            more = torch.unique(more, dim=0)
            known = (more[:, None] == book[None]).all(2).any(1)
            chosen.use_book(torch.cat([book, more[~known]]))
        self.search.choose()  # numbers of kernels have changed
