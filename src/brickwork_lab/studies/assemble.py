"""Paper 2, Table 2: parts of one network or of two that never saw each other's classes, joined, without training.

Two networks are trained on the halves of a data set. The parts of some classes are cut out of each, repaired
by response matching on unlabelled images of their own half, and joined into one network.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from torch import nn

from brickwork.bricks import assemble as join_bricks
from brickwork.bricks import disassemble
from brickwork.zoo.summary import parameters_of
from brickwork_lab.studies.disassemble import PAPERS_WAY
from brickwork_lab.studies.registry import Row, Run, study
from brickwork_lab.studies.workshop import Workshop, accuracy, mean_facts, places, side_by_side, some_of

#: parts: (half, its classes by their number within the half)
PICKS = {
    "A0,A4": (("A", "0"), ("A", "4")),
    "A0-1,A3-4": (("A", "0-1"), ("A", "3-4")),
    "A0,B0": (("A", "0"), ("B", "0")),
    "A0-2,B3-4": (("A", "0-2"), ("B", "3-4")),
    "all": (("A", "0-4"), ("B", "0-4")),
}
PICKS_100 = {
    "A0-9,A30-49": (("A", "0-9"), ("A", "30-49")),
    "A0,B0": (("A", "0"), ("B", "0")),
    "A0-9,B20-39": (("A", "0-9"), ("B", "20-39")),
}
#: (set, network, classes): the original, assembled, after one epoch of fine-tuning
PAPER = {
    ("cifar10", "simplenetv1", "A0,A4"): (93.05, 66.80, 96.60),
    ("cifar10", "vgg16", "A0,A4"): (93.35, 93.70, 97.45),
    ("cifar10", "resnet50", "A0,A4"): (93.85, 50.00, 93.50),
    ("cifar10", "simplenetv1", "A0-1,A3-4"): (94.58, 59.60, 93.73),
    ("cifar10", "vgg16", "A0-1,A3-4"): (94.13, 78.48, 93.70),
    ("cifar10", "resnet50", "A0-1,A3-4"): (94.38, 45.28, 93.95),
    ("cifar10", "simplenetv1", "A0,B0"): (94.95, 50.0, 93.65),
    ("cifar10", "vgg16", "A0,B0"): (96.10, 50.5, 97.20),
    ("cifar10", "resnet50", "A0,B0"): (96.00, 50.0, 90.80),
    ("cifar10", "simplenetv1", "A0-2,B3-4"): (94.86, 30.62, 93.06),
    ("cifar10", "vgg16", "A0-2,B3-4"): (94.50, 49.68, 93.28),
    ("cifar10", "resnet50", "A0-2,B3-4"): (94.36, 20.0, 93.04),
    ("cifar100", "vgg16", "A0-9,A30-49"): (78.47, 82.03, 81.97),
    ("cifar100", "vgg16", "A0,B0"): (74.0, 50.0, 90.0),
    ("cifar100", "vgg16", "A0-9,B20-39"): (74.0, 76.33, 79.83),
}


@study("assemble", paper="2, Table 2")
def assemble(
    run: Run,
    *,
    archs: tuple[str, ...] | None = None,
    sets: tuple[str, ...] | None = None,
    picks: tuple[str, ...] | None = None,
    budgets: tuple[float, ...] = (0.25, 0.5),
) -> Iterator[Row]:
    """Join parts of one network or of two trained on different classes, with no training."""
    shop = Workshop.of(run)
    for source in sets or (("cifar10",) if run.full else ("digits",)):
        for arch in shop.archs(archs, ("simplenetv1", "vgg16", "resnet50")):
            halves = {h: shop.network(arch, f"{source}:{h}") for h in "AB"}
            for name, pick in some_of(PICKS_100 if source == "cifar100" else PICKS, picks).items():
                yield from _rows(shop, source, arch, halves, name, pick, budgets)


def _rows(
    shop: Workshop,
    source: str,
    arch: str,
    halves: dict[str, nn.Module],
    name: str,
    pick: tuple[tuple[str, str], ...],
    budgets: tuple[float, ...],
) -> list[Row]:
    common: dict[str, Any] = {"seed": shop.seed, "progress": shop.progress}
    used = list(dict.fromkeys(half for half, _ in pick))
    nets = [halves[half] for half in used]
    one_source = len(used) == 1
    images = shop.data(f"{source}:{used[0]}").train_images[:3000] if one_source else None
    original, paper, paper_tuned = PAPER.get((source, arch, name), (None, None, None))

    def numbers(half: str, classes: str) -> list[int]:
        return places(classes, len(shop.data(f"{source}:{half}").classes))

    theirs = [
        disassemble(halves[h], numbers(h, c), shop.data(f"{source}:{h}"), **PAPERS_WAY, **common) for h, c in pick
    ]
    chosen = shop.chosen(source, tuple(n for brick in theirs for n in brick.classes))
    base: Row = {"paper": paper, "paper_original": original, "whole": side_by_side(nets, chosen), "seed": shop.seed}
    plain = join_bricks(theirs, calibrate="none")
    rows: list[Row] = [
        {
            "what": f"{source} {arch} {name}, the paper's way",
            **base,
            "ours": accuracy(plain, chosen),
            **mean_facts(theirs),
        }
    ]
    for budget in budgets:
        began = time.perf_counter()
        bricks = [
            disassemble(halves[h], numbers(h, c), shop.data(f"{source}:{h}"), budget=budget, **common) for h, c in pick
        ]
        given: dict[str, Any] = {"source": nets[0], "images": images} if one_source else {}
        joined = join_bricks(bricks, **given)
        seconds = round(time.perf_counter() - began, 1)
        row: Row = {
            "what": f"{source} {arch} {name}, {budget:.0%} of the parameters",
            **base,
            "ours": accuracy(joined, chosen),
            "uncalibrated": accuracy(join_bricks(bricks, calibrate="none", **given), chosen),
            **mean_facts(bricks),
            "latency": shop.latency_ratio(joined, nets, chosen),
            "joined": type(joined).__name__,
            "seconds": seconds,
        }
        if one_source:
            row["united"] = round(parameters_of(joined) / parameters_of(nets[0]), 4)
        else:
            target = chosen.train_images[:: max(1, len(chosen.train_images) // 1000)]
            on_target = join_bricks(bricks, calibrate="target", target=target)
            row["calibrated_on_target"] = accuracy(on_target, chosen)
        if budget == max(budgets):
            row |= {"paper_tuned": paper_tuned, "ours_tuned": accuracy(shop.fine_tuned(joined, chosen), chosen)}
        rows.append(row)
    return rows
