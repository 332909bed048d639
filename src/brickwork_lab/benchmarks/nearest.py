"""Nearest of K kernels for many: ours against torch.cdist, the published form and faiss; time and extra memory.

The published form of weight search takes the whole matrix of distances, ‖x‖² + ‖p‖² − 2 x·p, and its argmin. Every
contender is given the same vectors; `agree` is the share of rows in which it names the same kernel as float64 does.
"""

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor

from brickwork.devices import pick
from brickwork.pools.nearest import nearest as assign
from brickwork_lab.benchmarks.measure import Contender, Work, ratios
from brickwork_lab.benchmarks.registry import Contest, Outcome, benchmark

OURS = "brickwork"


def _cdist(x: Tensor, p: Tensor) -> Tensor:
    return torch.cdist(x, p).argmin(1)


def _published(x: Tensor, p: Tensor) -> Tensor:
    return (x.square().sum(1, keepdim=True) + p.square().sum(1) - 2 * x @ p.T).argmin(1)


def _faiss(x: Tensor, p: Tensor) -> Tensor:
    import faiss

    faiss.omp_set_num_threads(1)
    return assign(x, p, way="faiss")


WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {OURS: assign, "torch.cdist": _cdist}
WAYS |= {"published form": _published, "faiss": _faiss}


@benchmark("nearest", help="Nearest of K kernels for many vectors, against torch.cdist, the published form and faiss.")
def nearest(contest: Contest, *, rows: int = 262_144, size: int = 512, length: int = 9) -> Outcome:
    """rows: vectors; size: of the codebook; length: numbers in a vector; separate: each in a process of its own."""
    ways = [who for who in WAYS if who != "faiss" or importlib.util.find_spec("faiss") is not None]
    contenders: dict[str, Contender] = {who: (search, {"who": who}) for who in ways}
    measured = contest.measure(contenders, rows=rows, size=size, length=length, device=contest.device)
    return Outcome(measured, ratios(measured, OURS, ("cpu_s", "wall_s", "grown_mb")))


def search(rows: int, size: int, length: int, device: str, who: str) -> Work:
    torch.set_num_threads(1)
    where, find = pick(device), WAYS[who]
    draw = torch.Generator().manual_seed(0)
    vectors = torch.randn(rows, length, generator=draw).to(where)
    book = torch.randn(size, length, generator=draw).to(where)
    find(vectors[:100], book)  # compiled, and the first calls made
    if where.type == "cuda":
        torch.cuda.synchronize(where)
        torch.cuda.reset_peak_memory_stats(where)
    held = torch.cuda.memory_allocated(where) if where.type == "cuda" else 0

    def work() -> Callable[[], dict[str, float]]:
        index = find(vectors, book)
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        return lambda: _facts(vectors, book, index, held)

    return work


def _facts(vectors: Tensor, book: Tensor, index: Tensor, held: int) -> dict[str, float]:
    some = slice(0, 20_000)
    exact = assign(vectors[some].cpu().double(), book.cpu().double())
    facts = {"agree": float((exact == index[some].cpu()).double().mean())}
    if vectors.is_cuda:
        facts["device_mb"] = (torch.cuda.max_memory_allocated(vectors.device) - held) / 2**20
    return facts
