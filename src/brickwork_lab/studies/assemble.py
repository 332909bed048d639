"""Paper 2, Table 2: parts of one network or of two that never saw each other's classes, joined, without training.

Two networks are trained on the halves of a data set. The parts of some classes are cut out of each, repaired
by response matching on unlabelled images of their own half, and joined into one network.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from brickwork.bricks import assemble as join_bricks
from brickwork.zoo.summary import parameters_of
from brickwork_lab.judging import accuracy, mean_facts, side_by_side
from brickwork_lab.lab import Lab
from brickwork_lab.studies.disassemble import PAPERS_WAY
from brickwork_lab.studies.parts import Pick, cut_parts, parse_pick
from brickwork_lab.studies.registry import Names, Row, some_of, study

#: parts: each half's classes by their number within the half
PICKS = {"A0,A4": "A0 A4", "A0-1,A3-4": "A0-1 A3-4", "A0,B0": "A0 B0", "A0-2,B3-4": "A0-2 B3-4", "all": "A0-4 B0-4"}
PICKS_100 = {"A0-9,A30-49": "A0-9 A30-49", "A0,B0": "A0 B0", "A0-9,B20-39": "A0-9 B20-39"}
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
    lab: Lab, *, archs: Names = None, sets: Names = None, picks: Names = None, budgets: tuple[float, ...] = (0.25, 0.5)
) -> Iterator[Row]:
    """Join parts of one network or of two trained on different classes, with no training."""
    for source, arch in lab.cases(sets, archs, ("simplenetv1", "vgg16", "resnet50")):
        for name, pick in some_of(PICKS_100 if source == "cifar100" else PICKS, picks).items():
            yield from _rows(lab, source, arch, name, parse_pick(pick), budgets)


def _rows(lab: Lab, source: str, arch: str, name: str, pick: Pick, budgets: tuple[float, ...]) -> Iterator[Row]:
    used = list(dict.fromkeys(half for half, _ in pick))
    nets = [lab.network(arch, f"{source}:{half}") for half in used]
    given: dict[str, Any] = {}
    if len(used) == 1:  # both parts of one network
        given = {"source": nets[0], "images": lab.data(f"{source}:{used[0]}").train_images[:3000]}
    original, paper, paper_tuned = PAPER.get((source, arch, name), (None, None, None))
    theirs = cut_parts(lab, arch, source, pick, **PAPERS_WAY)
    chosen = lab.classes_of(source, [n for brick in theirs for n in brick.classes])
    base: Row = {"paper": paper, "paper_original": original, "whole": side_by_side(nets, chosen), "seed": lab.seed}
    plain = accuracy(join_bricks(theirs, calibrate="none"), chosen)
    yield {"what": f"{source} {arch} {name}, the paper's way", **base, "ours": plain, **mean_facts(theirs)}
    for budget in budgets:
        began = time.perf_counter()
        bricks = cut_parts(lab, arch, source, pick, budget=budget)
        joined = join_bricks(bricks, **given)
        seconds = round(time.perf_counter() - began, 1)
        row: Row = {
            "what": f"{source} {arch} {name}, {budget:.0%} of the parameters",
            **base,
            "ours": accuracy(joined, chosen),
            "uncalibrated": accuracy(join_bricks(bricks, calibrate="none", **given), chosen),
            **mean_facts(bricks),
            "latency": lab.latency_ratio(joined, nets, chosen),
            "joined": type(joined).__name__,
            "seconds": seconds,
        }
        if given:
            row["united"] = round(parameters_of(joined) / parameters_of(nets[0]), 4)
        else:
            target = chosen.train_images[:: max(1, len(chosen.train_images) // 1000)]
            on_target = join_bricks(bricks, calibrate="target", target=target)
            row["calibrated_on_target"] = accuracy(on_target, chosen)
        if budget == max(budgets):
            row |= {"paper_tuned": paper_tuned, "ours_tuned": accuracy(lab.fine_tuned(joined, chosen), chosen)}
        yield row
