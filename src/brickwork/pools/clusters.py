"""k-means: the K vectors that stand for many with the least squared error."""

import numpy as np
import torch
from torch import Tensor

from brickwork.pools.nearest import nearest


def k_means(vectors: Tensor, size: int, *, seed: int = 0, rounds: int = 25) -> Tensor:
    """At most `size` centres of `vectors` (n, d); where there are no more distinct vectors than that, those themselves.

    Starts from vectors drawn without replacement; a centre that nothing is nearest to starts again at the vector that
    is worst served. Centres come sorted, so that near ones have near indices.

    >>> k_means(torch.tensor([[0.0], [0.2], [9.0], [9.2]]), 2).flatten().tolist()
    [0.10000000149011612, 9.100000381469727]
    """
    distinct = _distinct(vectors)
    if len(distinct) <= size:
        return distinct
    draw = torch.Generator().manual_seed(seed)
    centres = distinct[torch.randperm(len(distinct), generator=draw)[:size].to(distinct.device)].clone()
    before = None
    for _ in range(rounds):
        index = nearest(vectors, centres)
        if before is not None and torch.equal(index, before):
            break
        before = index
        sums, counts = sums_by(vectors, index, size)
        used = counts > 0
        centres[used] = (sums[used] / counts[used, None]).to(centres.dtype)
        dead = int(size - used.sum())
        if dead:
            error = (vectors - centres[index]).square().sum(1)
            worst = torch.unique(vectors[error.topk(min(4 * dead, len(error))).indices], dim=0)
            some = worst[torch.randperm(len(worst), generator=draw)[:dead].to(worst.device)]
            centres[(~used).nonzero()[: len(some), 0]] = some
    return _distinct(centres)


def k_means_beside(
    vectors: Tensor, book: Tensor, count: int, *, weights: Tensor | None = None, seed: int = 0, rounds: int = 25
) -> Tensor:
    """At most `count` centres to stand beside those of `book` (K, d), which stay; fewer where less is left to serve.

    Only what is nearer to a new centre than to all of the book moves it. weights (n,): what a squared distance counts
    for. They begin with vectors drawn in proportion to what the book leaves of them.

    >>> k_means_beside(torch.tensor([[0.1], [5.0], [5.2], [9.0]]), torch.tensor([[0.0], [9.0]]), 1).tolist()
    [[5.099999904632568]]
    """
    cost = torch.ones(len(vectors), dtype=torch.float64, device=vectors.device) if weights is None else weights.double()
    left = (vectors - book[nearest(vectors, book)]).square().sum(1)
    need = left.double() * cost
    need = torch.where(need > 1e-12 * (vectors.double().square().sum(1) * cost).mean(), need, 0.0)
    chance = torch.rand(len(vectors), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(
        need.device
    )
    # the largest of these keys are a draw without replacement, each in proportion to its need
    keys = chance.clamp(min=1e-300).log() / need
    centres = _distinct(vectors[keys.topk(min(count, int((need > 0).sum()))).indices])
    weighed = torch.cat([vectors.double() * cost[:, None], cost[:, None]], 1)
    before = None
    for _ in range(rounds if len(centres) else 0):
        index = nearest(vectors, centres)
        nearer = (vectors - centres[index]).square().sum(1) < left
        index = torch.where(nearer, index, len(centres))  # the last place is the book's
        if before is not None and torch.equal(index, before):
            break
        before = index
        sums = sums_by(weighed, index, len(centres) + 1)[0][:-1]
        used = sums[:, -1] > 0
        centres[used] = (sums[used, :-1] / sums[used, -1:]).to(centres.dtype)
    return _distinct(centres)


def _distinct(vectors: Tensor) -> Tensor:
    """Each vector once, sorted. By a hash of the rows where there are many: sorting whole rows takes minutes."""
    if vectors.shape[1] == 1:
        return torch.unique(vectors[:, 0])[:, None]
    kept = vectors
    if len(vectors) > 10_000:
        bits = vectors.contiguous().view(torch.int32 if vectors.element_size() == 4 else torch.int64).long()
        draw = torch.Generator().manual_seed(0)
        factors = torch.randint(-(2**62), 2**62, (bits.shape[1],), generator=draw).to(bits.device) | 1
        _, place = torch.unique((bits * factors).sum(1), return_inverse=True)
        one = torch.zeros(int(place.max()) + 1, dtype=torch.int64, device=bits.device)
        one.scatter_(0, place, torch.arange(len(place), device=bits.device))
        if torch.equal(vectors[one][place], vectors):  # no two share a hash that are not the same
            kept = vectors[one]
    if len(kept) > 10_000:
        return kept[kept[:, 0].argsort(stable=True)]
    return torch.unique(kept, dim=0)


def sums_by(vectors: Tensor, index: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Sum and number of the vectors of each index, float64: the same on every device up to its last bits."""
    if vectors.device.type == "cpu":
        rows, where = vectors.numpy(), index.numpy()
        total = np.stack([np.bincount(where, column, size) for column in rows.T], 1)
        return torch.from_numpy(total), torch.from_numpy(np.bincount(where, minlength=size)).double()
    sums = torch.zeros(size, vectors.shape[1], dtype=torch.float64, device=vectors.device)
    sums.index_add_(0, index, vectors.double())
    ones = torch.ones(len(index), dtype=torch.float64, device=index.device)
    return sums, torch.zeros(size, dtype=torch.float64, device=index.device).index_add_(0, index, ones)
