"""Paper 2, Table 1: the part of some classes, cut out of a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from brickwork.bricks import Brick
from brickwork.bricks import disassemble as cut_out
from brickwork_lab.judging import accuracy, facts_of, one_against_rest, restricted
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, some_of, study

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
#: 100 images per class, as many as the largest of these sets has classes in a half
PAPERS_WAY: dict[str, Any] = {"attribution": "frat", "threshold": 1.0, "depth": 2, "repair": "none", "scored": 5000}


@study("disassemble", paper="2, Table 1")
def disassemble(
    lab: Lab, *, archs: Names = None, sets: Names = None, picks: Names = None, budgets: tuple[float, ...] = (0.5, 0.25)
) -> Iterator[Row]:
    """Cut the part of some classes out of a network, without training: the paper's way and ours."""
    for source, arch in lab.cases(sets, archs, ("simplenetv1", "vgg16", "resnet50")):
        for name, classes in some_of(PICKS_100 if source == "cifar100" else PICKS, picks).items():
            yield from _rows(lab, source, arch, name, classes, budgets)


def _rows(lab: Lab, source: str, arch: str, name: str, classes: str, budgets: tuple[float, ...]) -> Iterator[Row]:
    half, net = lab.data(f"{source}:A"), lab.network(arch, f"{source}:A")
    original, paper, paper_tuned = PAPER.get((source, arch, name), (None, None, None))

    def cut(**options: Any) -> Brick:
        return cut_out(net, classes, half, seed=lab.seed, progress=lab.progress, **options)

    def judged(model: nn.Module) -> float:
        return one_against_rest(model, theirs.classes[0], half) if single else accuracy(model, chosen)

    def row(what: str, brick: Brick) -> Row:
        measured: Row = {
            "what": f"{source} {arch} {name}, {what}",
            "paper": None if single else paper,
            "ours": judged(brick.model),
            "whole": whole,
            "paper_original": original,
            "measure": "auroc" if single else "accuracy",
        }
        if not single:
            measured["paper_tuned"] = paper_tuned
            measured["ours_tuned"] = accuracy(lab.fine_tuned(brick.model, chosen, lr=1e-3), chosen)
        measured["latency"] = lab.latency_ratio(brick.model, [net], half)
        return {**measured, **facts_of(brick), "arch": arch, "classes": len(half.classes), "seed": lab.seed}

    theirs = cut(**PAPERS_WAY)
    chosen, single = lab.classes_of(source, theirs.classes), len(theirs.classes) == 1
    whole = judged(net) if single else restricted(net, chosen)
    yield row("the paper's way", theirs)
    for budget in budgets:
        yield row(f"{budget:.0%} of the parameters", cut(budget=budget))
