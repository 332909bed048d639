"""Scoring by Taylor expansion, cutting and repairing, against Torch-Pruning's Taylor pruning: cost, and the result's speed.

The same network, images and share of channels for all. Torch-Pruning scores and cuts, and stops there, in place; ours
makes a new network and proves it; the row `+ match` also repairs it without labels, which no peer offers. The images
score and repair, so nothing else is read. Latency is of the network that came out, against the whole.
"""

import copy
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from brickwork import zoo
from brickwork.devices import pick
from brickwork.errors import RequestError
from brickwork.latency import latency
from brickwork.zoo.summary import parameters_of
from brickwork_lab.benchmarks.measure import Contender, Work, quiet, ratios
from brickwork_lab.benchmarks.registry import Contest, Outcome, benchmark

OURS, MATCHED, PEER = "brickwork, cut", "brickwork, cut + match", "torch-pruning"


@benchmark(
    "disassemble",
    help="Score, cut and repair half of a network's channels, against Torch-Pruning's Taylor.",
    needs="torch_pruning",
)
def disassemble(contest: Contest, *, arch: str = "resnet50", images: int = 256, keep: float = 0.5) -> Outcome:
    """device: cpu or cuda; separate: each measurement in its own process."""
    if not 0 < keep <= 1:
        raise RequestError(f"keep must be above 0 and at most 1, not {keep}")
    contenders: dict[str, Contender] = {OURS: (ours, {"repair": "none"}), MATCHED: (ours, {"repair": "match"})}
    contenders[PEER] = peer
    rows = contest.measure(contenders, arch=arch, images=images, keep=keep, device=contest.device)
    return Outcome(rows, ratios(rows, OURS, ("cpu_s", "wall_s", "peak_mb", "latency_s")))


def ours(arch: str, images: int, keep: float, device: str, repair: Literal["match", "none"]) -> Work:
    import brickwork

    model, x, y = _problem(arch, images, device)
    tiny = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 2)).to(x.device)

    def work(net: nn.Module, x: Tensor, y: Tensor) -> nn.Module:
        # a fifth of the images is held out to judge; five quarters make it as many as the peer's
        more = torch.cat([x, x[: -(-len(x) // 4)]]), torch.cat([y, y[: -(-len(y) // 4)]])
        brick = brickwork.disassemble(
            net,
            None,
            more,
            keep=keep,
            attribution="taylor",
            repair=repair,
            images=len(x),
            scored=len(x),
            round_to=8,
            progress=False,
        )
        return brick.model

    work(tiny, torch.randn(16, 3, 8, 8, device=x.device), torch.arange(16) % 2)  # imports and first calls

    def measured() -> Callable[[], dict[str, float]]:
        part = work(model, x, y)
        return lambda: _facts(model, part, x)

    return measured


def peer(arch: str, images: int, keep: float, device: str) -> Work:
    import torch_pruning as tp

    model, x, y = _problem(arch, images, device)
    whole = copy.deepcopy(model)

    def work() -> Callable[[], dict[str, float]]:
        with quiet():
            importance: Any = tp.importance.GroupTaylorImportance()
            last = [m for m in model.modules() if isinstance(m, nn.Linear)][-1:]
            pruner = tp.pruner.BasePruner(
                model, x[:2], importance=importance, pruning_ratio=1 - keep, ignored_layers=last, round_to=8
            )
            for batch, labels in zip(x.split(100), y.to(x.device).split(100), strict=True):
                nn.functional.cross_entropy(model(batch), labels).backward()
            pruner.step()
        return lambda: _facts(whole, model, x)

    return work


def _problem(arch: str, images: int, device: str) -> tuple[nn.Module, Tensor, Tensor]:
    torch.set_num_threads(1)
    where = pick(device)
    model = zoo.build(arch, num_classes=10, seed=0).eval().to(where)
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(images, *zoo.input_shape(arch), generator=rng).to(where)
    return model, x, torch.arange(images) % 10


def _facts(whole: nn.Module, part: nn.Module, x: Tensor) -> dict[str, float]:
    sizes = [parameters_of(m) for m in (part, whole)]
    batch = x[:16] if not x.is_cuda else x[:256]
    return {"parameters": sizes[0] / sizes[1], "latency_s": latency(part, batch, repeat=3, warm_up=1)}
