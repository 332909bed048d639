"""Nearest of K kernels for many: ours against torch.cdist, the published form and faiss; time and extra memory.

The published form of weight search takes the whole matrix of distances, ‖x‖² + ‖p‖² − 2 x·p, and its argmin. Every
contender is given the same vectors; `agree` is the share of rows in which it names the same kernel as float64 does.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor

from brickwork.devices import pick
from brickwork.errors import RequestError
from brickwork.pools.nearest import nearest as assign
from brickwork.progress import bar
from brickwork_lab.benchmarks.measure import Work, in_turn, ratios
from brickwork_lab.benchmarks.registry import Outcome, benchmark

OURS = "brickwork"


@benchmark("nearest", help="Nearest of K kernels for many vectors, against torch.cdist, the published form and faiss.")
def nearest(
    *,
    rows: int = 262_144,
    size: int = 512,
    length: int = 9,
    device: str = "cpu",
    repeat: int = 3,
    separate: bool = True,
) -> Outcome:
    """rows: vectors; size: of the codebook; length: numbers in a vector; separate: each in a process of its own."""
    for name, value in (("rows", rows), ("size", size), ("length", length), ("repeat", repeat)):
        if value < 1:
            raise RequestError(f"{name} must be 1 or more, not {value}")
    pick(device)
    arguments = {"rows": rows, "size": size, "length": length, "device": device}
    contenders = {OURS: "ours", "torch.cdist": "cdist", "published form": "published"}
    if importlib.util.find_spec("faiss") is not None:
        contenders["faiss"] = "by_faiss"
    named = {who: f"{__name__}:{function}" for who, function in contenders.items()}
    with bar("nearest", repeat * len(named)) as advance:
        found = in_turn(named, arguments, repeat=repeat, separate=separate, tell=advance)
    return Outcome(found, ratios(found, OURS, ("cpu_s", "wall_s", "grown_mb")))


def ours(rows: int, size: int, length: int, device: str) -> Work:
    return _work(rows, size, length, device, assign)


def cdist(rows: int, size: int, length: int, device: str) -> Work:
    return _work(rows, size, length, device, lambda x, p: torch.cdist(x, p).argmin(1))


def published(rows: int, size: int, length: int, device: str) -> Work:
    def distances(x: Tensor, p: Tensor) -> Tensor:
        return (x.square().sum(1, keepdim=True) + p.square().sum(1) - 2 * x @ p.T).argmin(1)

    return _work(rows, size, length, device, distances)


def by_faiss(rows: int, size: int, length: int, device: str) -> Work:
    import faiss

    faiss.omp_set_num_threads(1)
    return _work(rows, size, length, device, lambda x, p: assign(x, p, way="faiss"))


def _work(rows: int, size: int, length: int, device: str, find: Callable[[Tensor, Tensor], Tensor]) -> Work:
    torch.set_num_threads(1)
    where = pick(device)
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
