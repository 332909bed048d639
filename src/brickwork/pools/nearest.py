"""Nearest vectors: for each row the index of the closest entry of a codebook, exactly; ties go to the lowest index.

Four ways, the same answers up to rounding: entries of one number by sorting; compiled loops on a CPU; matrix products in
chunks on a GPU; faiss where it is asked for. Beside the result no way takes more than a chunk of memory.
"""

import torch
from torch import Tensor

from brickwork.devices import without_tf32
from brickwork.errors import BadData, BadModel, MissingExtra, RequestError
from brickwork.pools.nearest_cpu import search_cpu

WAYS = ("auto", "sorted", "compiled", "products", "faiss")
CHUNK = 48 * 2**20  # bytes of distances held at once by products


def nearest(vectors: Tensor, codebook: Tensor, *, way: str = "auto") -> Tensor:
    """For each row of `vectors` (n, d) the index of the nearest row of `codebook` (K, d), int64.

    way: "auto" sorts entries of one number, and else is "compiled" on a CPU and "products" on other devices. faiss is
    never taken by itself: what a seed gives must not depend on what happens to be installed.

    >>> nearest(torch.tensor([[0.2, 0.0], [0.9, 1.1]]), torch.tensor([[0.0, 0.0], [1.0, 1.0]])).tolist()
    [0, 1]
    """
    if way not in WAYS:
        raise RequestError(f"way is {way!r}; it must be {', '.join(WAYS)}.")
    if vectors.ndim != 2 or codebook.ndim != 2 or vectors.shape[1] != codebook.shape[1]:
        raise BadModel(
            f"vectors are {tuple(vectors.shape)} and the codebook {tuple(codebook.shape)}: not (n, d), (K, d)."
        )
    if len(codebook) == 0:
        raise BadData("the codebook is empty; there is nothing to choose from.")
    vectors, codebook = vectors.detach(), codebook.detach().to(vectors)
    if way == "auto":
        way = "sorted" if codebook.shape[1] == 1 else "compiled" if vectors.device.type == "cpu" else "products"
    if way == "sorted":
        return Sorted(codebook).find(vectors)
    if way == "compiled":
        index = search_cpu(vectors.numpy(), codebook.numpy(), torch.get_num_threads())
        return torch.from_numpy(index)
    if way == "faiss":
        return _faiss(vectors, codebook)
    return _products(vectors, codebook)


class Sorted:
    """A codebook of single numbers, sorted once: then a search is a bisection."""

    def __init__(self, codebook: Tensor) -> None:
        if codebook.shape[1] != 1:
            raise BadModel(f"entries of {codebook.shape[1]} numbers cannot be sorted; only those of one can.")
        self.values, self.index = codebook[:, 0].sort(stable=True)
        # of equal entries the first, which has the lowest index; equal ones stay, as a GPU would wait to leave them out
        self.first = torch.bucketize(self.values, self.values)

    def find(self, vectors: Tensor) -> Tensor:
        x = vectors[:, 0].contiguous()
        above = self.first[torch.bucketize(x, self.values).clamp_(max=len(self.values) - 1)]
        below = self.first[(above - 1).clamp_(min=0)]
        up, down = (self.values[above] - x).abs(), (x - self.values[below]).abs()
        i, j = self.index[above], self.index[below]
        return torch.where((down < up) | ((down == up) & (j < i)), j, i)


def _products(vectors: Tensor, codebook: Tensor) -> Tensor:
    """argmin of ‖p‖² − 2 x·p, a chunk of rows at a time, in full precision whatever the caller has set."""
    size = max(1, CHUNK // (len(codebook) * codebook.element_size()))
    norms, twice = codebook.square().sum(1), codebook.T * -2
    with torch.autocast(vectors.device.type, enabled=False), without_tf32():  # ten bits would mistake kernels
        return torch.cat([torch.addmm(norms, part, twice).argmin(1) for part in vectors.split(size)])


def _faiss(vectors: Tensor, codebook: Tensor) -> Tensor:
    try:
        import faiss
    except ImportError:
        raise MissingExtra("faiss", "searches by faiss") from None
    searcher = faiss.IndexFlatL2(codebook.shape[1])
    searcher.add(codebook.float().cpu().contiguous().numpy())
    index = searcher.search(vectors.float().cpu().contiguous().numpy(), 1)[1][:, 0]
    return torch.from_numpy(index).to(vectors.device)
