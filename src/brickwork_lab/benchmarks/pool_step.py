"""What a training step costs when the network uses a pool's kernels: against plain fine-tuning of the same network.

Plain fine-tuning is `brickwork.training.train`; the others are the same loop with kernels chosen anew every 1, 4 or 16
steps. On a GPU the steps are recorded (CUDA graphs) in all of them.
"""

import time
from typing import Any

import torch
from torch import nn

from brickwork import zoo
from brickwork.devices import pick
from brickwork.pools import KernelPool
from brickwork.pools.layers import find_layers, head_of, weight_of
from brickwork.pools.search import Search
from brickwork.training import train
from brickwork_lab.benchmarks.measure import Contender, Work, ratios
from brickwork_lab.benchmarks.registry import Contest, Outcome, benchmark

PLAIN = "plain fine-tuning"
REFRESH = (1, 4, 16)
WARM = 2  # steps that are left out


@benchmark(
    "pool-step",
    help="A step of learning with a pool against one of plain fine-tuning, for several refreshes.",
    at_least={"steps": 4},
)
def pool_step(
    contest: Contest, *, arch: str = "resnet18", batch_size: int = 64, steps: int = 20, size: int = 512
) -> Outcome:
    """steps: in each measurement; size: of the codebooks. step_s is the time of one step, the first ones left out."""
    refreshes = [r for r in REFRESH if r <= steps - WARM - 1]  # of the others no refresh would be measured
    contenders: dict[str, Contender] = {PLAIN: steps_of}
    contenders |= {f"pool, refresh {r}": (steps_of, {"refresh": r}) for r in refreshes}
    arguments = {"arch": arch, "batch_size": batch_size, "steps": steps, "size": size, "device": contest.device}
    rows = contest.measure(contenders, **arguments)
    return Outcome(rows, ratios(rows, PLAIN, ("step_s", "peak_mb")))


def steps_of(arch: str, batch_size: int, steps: int, size: int, device: str, refresh: int | None = None) -> Work:
    torch.set_num_threads(1)
    where = pick(device)
    start = zoo.build(arch, num_classes=5, seed=0)
    search = None
    if refresh is not None:
        pool = _quick_pool(start, size)
        assert pool.base is not None
        start = pool.rebuild(pool.base)
        search = Search(start, pool, pool.base, refresh=refresh)
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (batch_size, 32, 32, 3), generator=draw, dtype=torch.uint8)
    clock = _Clock(search, where)

    def work() -> dict[str, float]:
        options: dict[str, Any] = {"epochs": steps, "batch_size": batch_size, "lr": 0.02, "record": True}
        options |= {"device": where, "progress": False, "before_step": clock.tick}
        train(start, images, torch.arange(batch_size) % 5, **options)
        return {"step_s": clock.step_s()}

    return work


class _Clock:
    """The times at which steps begin."""

    def __init__(self, search: Search | None, where: torch.device) -> None:
        self.search, self.where = search, where
        self.times: list[float] = []

    def tick(self, step: int, steps: int) -> None:
        if self.where.type == "cuda":
            torch.cuda.synchronize(self.where)
        self.times.append(time.perf_counter())
        if self.search is not None:
            self.search.step(step, steps)

    def step_s(self) -> float:
        """The mean over as many whole rounds of the refresh as there are: it counts for its share."""
        period = 1 if self.search is None else self.search.refresh
        count = (len(self.times) - 1 - WARM) // period * period
        return (self.times[-1] - self.times[-1 - count]) / count


def _quick_pool(model: nn.Module, size: int) -> KernelPool:
    """Codebooks drawn from the network's own kernels: as slow to search as clustered ones, and made at once."""
    head = head_of(model)
    shapes = find_layers(model, head)
    draw = torch.Generator().manual_seed(0)
    books = {}
    for name, layer in shapes.items():
        vectors = weight_of(model, name).reshape(-1, layer.length)
        books[name] = vectors[torch.randperm(len(vectors), generator=draw)[:size]].clone()
    return KernelPool.of(model, books, shapes, head, size=size)
