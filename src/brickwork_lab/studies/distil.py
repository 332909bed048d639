"""Paper 2, Tables 8 and 9: one student from one teacher, and from several."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from brickwork.bricks import assemble
from brickwork.bricks.distillation import distil as teach
from brickwork_lab.judging import accuracy, mean_facts, side_by_side
from brickwork_lab.lab import Lab
from brickwork_lab.studies.parts import cut_parts, parse_pick
from brickwork_lab.studies.registry import Names, Row, some_of, study

#: teachers and their classes; the paper's: the original, the best of the others it compares, its own
PICKS = {
    "A0-9": (78.50, 82.25, 88.40),
    "A10-49": (77.58, 82.12, 79.00),
    "A0-9,B0-9": (76.35, 77.24, 82.10),
    "A0-9,B20-39": (77.58, 78.41, 79.83),
    "A0-49,B0-49": (78.13, 78.67, 68.02),
}
SMALL = {"A0-2": (None,) * 3, "A0-1,B3-4": (None,) * 3}


@study("distil", paper="2, Tables 8, 9")
def distil(
    lab: Lab, *, archs: Names = None, picks: Names = None, budget: float = 0.25, epochs: int = 10
) -> Iterator[Row]:
    """A student cut out of its teachers, before and after an epoch of distillation, against one from scratch."""
    source = "cifar100" if lab.full else "digits"
    for arch in lab.archs(archs, ("vgg16",)):
        for name, (original, best_other, paper) in some_of(PICKS if lab.full else SMALL, picks).items():
            pick = parse_pick(name.replace(",", " "))
            bricks = cut_parts(lab, arch, source, pick, budget=budget)
            teachers = [lab.network(arch, f"{source}:{half}") for half, _ in pick]
            chosen = lab.classes_of(source, [n for brick in bricks for n in brick.classes])
            student = assemble(bricks)
            fresh = _from_scratch(student)
            images, labels = chosen.train_images, chosen.train_labels
            common: dict[str, Any] = {"seed": lab.seed, "device": lab.where, "progress": lab.progress, **lab.batches}
            long: dict[str, Any] = {"epochs": epochs, "lr": 0.05}
            again = f"the same student from scratch, {epochs} epochs"
            ways = {
                "cut and joined, nothing trained": student,
                "+ 1 epoch, teachers alone": teach(student, teachers, images, **common).model,
                "+ 1 epoch, teachers and labels": teach(student, teachers, images, labels, **common).model,
                f"{again}, teachers and labels": teach(fresh, teachers, images, labels, **long, **common).model,
                f"{again}, smoothed labels": lab.train(
                    copy.deepcopy(fresh), chosen, label_smoothing=0.1, **long, **lab.batches
                ),
            }
            for what, model in ways.items():
                yield {
                    "what": f"{source} {arch} {name}, {what}",
                    "paper": paper,
                    "ours": accuracy(model, chosen),
                    "whole": side_by_side(teachers, chosen),
                    "paper_original": original,
                    "paper_best_other": best_other,
                    **mean_facts(bricks),
                    "seed": lab.seed,
                }


def _from_scratch(student: nn.Module) -> nn.Module:
    """The student's shape with weights as they are before training."""
    fresh = copy.deepcopy(student)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for module in fresh.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()  # type: ignore[operator]
    return fresh
