"""Paper 2, Table 1: the part of some classes, cut out of a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from brickwork.bricks import Brick
from brickwork.bricks import disassemble as cut_out
from brickwork_lab.studies.registry import Row, Run, study
from brickwork_lab.studies.workshop import Workshop, accuracy, facts_of, one_against_rest, restricted, some_of

PICKS = {"0": "0", "1": "1", "0-2": "0-2", "2-4": "2-4"}
PICKS_100 = {"0-9": "0-9", "10-49": "10-49"}
#: (set, network, classes): accuracy of the original, of the disassembled part, after one epoch of fine-tuning
PAPER = {
    ("cifar10", "simplenetv1", "0"): (93.90, 100.0, 100.0),
    ("cifar10", "simplenetv1", "1"): (92.20, 92.90, 95.40),
    ("cifar10", "simplenetv1", "0-2"): (93.93, 50.33, 94.03),
    ("cifar10", "simplenetv1", "2-4"): (96.33, 56.90, 98.17),
    ("cifar10", "vgg16", "0"): (95.40, 100.0, 100.0),
    ("cifar10", "vgg16", "1"): (91.30, 100.0, 100.0),
    ("cifar10", "vgg16", "0-2"): (94.13, 79.40, 96.99),
    ("cifar10", "vgg16", "2-4"): (95.57, 81.03, 98.27),
    ("cifar10", "resnet50", "0"): (94.50, 100.0, 100.0),
    ("cifar10", "resnet50", "1"): (93.20, 100.0, 100.0),
    ("cifar10", "resnet50", "0-2"): (93.80, 42.27, 93.83),
    ("cifar10", "resnet50", "2-4"): (95.37, 76.47, 98.50),
    ("cifar100", "vgg16", "0-9"): (78.50, 88.50, 88.80),
    ("cifar100", "vgg16", "10-49"): (77.58, 79.35, 79.00),
}
#: 100 images a class, as many as the largest of these sets has classes in a half
PAPERS_WAY: dict[str, Any] = {"attribution": "frat", "threshold": 1.0, "depth": 2, "repair": "none", "scored": 5000}


@study("disassemble", paper="2, Table 1")
def disassemble(
    run: Run,
    *,
    archs: tuple[str, ...] | None = None,
    sets: tuple[str, ...] | None = None,
    picks: tuple[str, ...] | None = None,
    budgets: tuple[float, ...] = (0.5, 0.25),
) -> Iterator[Row]:
    """Cut the part of some classes out of a network, without training: the paper's way and ours."""
    shop = Workshop.of(run)
    for source in sets or (("cifar10",) if run.full else ("digits",)):
        for arch in shop.archs(archs, ("simplenetv1", "vgg16", "resnet50")):
            net = shop.network(arch, f"{source}:A")
            for name, classes in some_of(PICKS_100 if source == "cifar100" else PICKS, picks).items():
                yield from _rows(shop, source, arch, net, name, classes, budgets)


def _rows(
    shop: Workshop, source: str, arch: str, net: nn.Module, name: str, classes: str, budgets: tuple[float, ...]
) -> list[Row]:
    half = shop.data(f"{source}:A")
    original, paper, paper_tuned = PAPER.get((source, arch, name), (None, None, None))
    common: dict[str, Any] = {"seed": shop.seed, "progress": shop.progress}
    theirs = cut_out(net, classes, half, **PAPERS_WAY, **common)
    chosen = shop.chosen(source, theirs.classes)
    single = len(theirs.classes) == 1

    def judged(model: nn.Module) -> float:
        return one_against_rest(model, theirs.classes[0], half) if single else accuracy(model, chosen)

    whole = one_against_rest(net, theirs.classes[0], half) if single else restricted(net, chosen)

    def row(what: str, brick: Brick) -> Row:
        found: Row = {
            "what": f"{source} {arch} {name}, {what}",
            "paper": None if single else paper,
            "ours": judged(brick.model),
            "whole": whole,
            "paper_original": original,
            "measure": "auroc" if single else "accuracy",
        }
        if not single:
            found["paper_tuned"] = paper_tuned
            found["ours_tuned"] = accuracy(shop.fine_tuned(brick.model, chosen, lr=1e-3), chosen)
        found["latency"] = shop.latency_ratio(brick.model, [net], half)
        return {**found, **facts_of(brick), "arch": arch, "classes": len(half.classes), "seed": shop.seed}

    rows = [row("the paper's way", theirs)]
    for budget in budgets:
        brick = cut_out(net, classes, half, budget=budget, **common)
        rows.append(row(f"{budget:.0%} of the parameters", brick))
    return rows
