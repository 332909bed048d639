"""A sweep of α and β against the plain loop: copy the network, add the weights up, load them, evaluate.

The same cells, images and accuracies; the plain loop is what a careful user writes: batches of prepared images, argmax.
"""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork import zoo
from brickwork.algebra import sweep as swept
from brickwork.data.pixels import as_input, measure
from brickwork.devices import pick
from brickwork.errors import JobFailed
from brickwork.origin import attach, origin_of
from brickwork_lab.benchmarks.measure import Contender, Row, Work, ratios
from brickwork_lab.benchmarks.registry import Contest, Outcome, benchmark

COLUMNS = ("cpu_s", "wall_s", "peak_mb")
OURS, HALF, PLAIN = "brickwork", "brickwork bf16", "plain loop"


@benchmark(
    "sweep",
    help="9 cells of α and β on two test sets, against the plain loop; in full: side=11 images=1000 repeat=3.",
    at_least={"cells": 0, "batch": 0},
    repeat=2,
)
def sweep(
    contest: Contest, *, arch: str = "lenet,resnet8", side: int = 3, images: int = 100, cells: int = 0, batch: int = 0
) -> Outcome:
    """side: cells along each axis; images: of each of the two sets; cells, batch: at once, 0 as `sweep` chooses."""
    where, archs = pick(contest.device), arch.split(",")
    for name in archs:
        zoo.input_shape(name)  # refuses a name there is not
    contenders: dict[str, Contender] = {OURS: ours, HALF: (ours, {"precision": "bf16"}), PLAIN: plain}
    if where.type != "cuda":
        del contenders[HALF]
    arguments = {"side": side, "images": images, "device": str(where), "cells": cells, "batch": batch}
    table: list[Row] = []
    gains: dict[str, float] = {}
    for name in archs:
        rows = contest.measure(contenders, arch=name, **arguments)
        apart = max(abs(row["accuracy_sum"] - rows[-1]["accuracy_sum"]) for row in rows)
        if apart > 2e-3 * side * side:
            raise JobFailed(f"{name}: the accuracies differ by {apart / side / side / 2:.4f} on average.")
        table += [{"arch": name, **row} for row in rows]
        peers = [row for row in rows if row["who"] != HALF]
        gains |= {f"{name}: {k}": v for k, v in ratios(peers, OURS, COLUMNS).items()}
        if HALF in contenders:
            gains |= {f"{name}: {k}": v for k, v in ratios(rows[1:], HALF, COLUMNS).items()}
    return Outcome(table, gains)


def ours(arch: str, side: int, images: int, device: str, cells: int, batch: int, precision: str = "auto") -> Work:
    nets, sets, grid = _problem(arch, side, images, device)
    options: dict[str, Any] = {"base": nets[0], "data": sets, "precision": precision, "progress": False, "bn": "linear"}
    options |= {"cells": cells or None, "batch_size": batch or None}
    first = grid if pick(device).type == "cuda" else grid[:1]  # a GPU chooses its kernels by the shapes it has met
    swept(nets[1], nets[2], alpha=first, beta=first, **options)

    def work() -> dict[str, float]:
        result = swept(nets[1], nets[2], alpha=grid, beta=grid, **options)
        return {"accuracy_sum": round(float(sum(row[3] for row in result.rows)), 6)}

    return work


def plain(arch: str, side: int, images: int, device: str, cells: int, batch: int) -> Work:
    """One cell at a time; cells and batch are for the others."""
    nets, sets, grid = _problem(arch, side, images, device)
    zero, a, b = (net.state_dict() for net in nets)
    where = pick(device)

    def work(values: list[float] = grid) -> dict[str, float]:
        total = 0.0
        for beta in values:
            for alpha in values:
                model = copy.deepcopy(nets[0])
                state = {
                    n: v + alpha * (a[n] - v) + beta * (b[n] - v) if v.is_floating_point() else v
                    for n, v in zero.items()
                }
                for name, value in state.items():
                    if name.endswith("running_var"):
                        state[name] = value.clamp(min=0)
                model.load_state_dict(state)
                model.eval()
                for pixels, labels in sets.values():
                    total += _accuracy(model, pixels, labels, where)
        return {"accuracy_sum": round(total, 6)}

    work(grid[:1])
    return work


def _accuracy(model: nn.Module, pixels: np.ndarray, labels: np.ndarray, where: torch.device) -> float:
    right = 0
    with torch.inference_mode():
        for start in range(0, len(pixels), 512):
            batch = as_input(pixels[start : start + 512], origin_of(model).preprocessing, where)
            answers = torch.from_numpy(labels[start : start + 512]).to(where)
            right += int((model(batch).argmax(1) == answers).sum())
    return right / len(labels)


def _problem(arch: str, side: int, images: int, device: str) -> tuple[list[nn.Module], dict[str, Any], list[float]]:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    channels, height, width = zoo.input_shape(arch)
    sets = {
        name: (rng.integers(0, 256, (images, height, width, channels), np.uint8), rng.integers(0, 10, images))
        for name in ("one", "two")
    }
    nets = [zoo.build(arch, num_classes=10, seed=seed).eval().to(pick(device)) for seed in range(3)]
    for net in nets:
        attach(net, replace(origin_of(net), preprocessing=measure(sets["one"][0])))
    return nets, sets, [round(k / max(1, side - 1), 6) for k in range(side)]
