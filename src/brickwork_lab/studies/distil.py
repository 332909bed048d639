"""Paper 2, Tables 8 and 9: one student from one teacher, and from several."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from brickwork.bricks import assemble, disassemble
from brickwork.bricks.distillation import distil as teach
from brickwork.data.images import ImageData
from brickwork.training import train
from brickwork_lab.studies.registry import Row, Run, study
from brickwork_lab.studies.workshop import Workshop, accuracy, mean_facts, places, side_by_side, some_of

#: teachers and their classes; the paper's: the original, the best of the others it compares, its own
PICKS = {
    "A0-9": ((("A", "0-9"),), (78.50, 82.25, 88.40)),
    "A10-49": ((("A", "10-49"),), (77.58, 82.12, 79.00)),
    "A0-9,B0-9": ((("A", "0-9"), ("B", "0-9")), (76.35, 77.24, 82.10)),
    "A0-9,B20-39": ((("A", "0-9"), ("B", "20-39")), (77.58, 78.41, 79.83)),
    "A0-49,B0-49": ((("A", "0-49"), ("B", "0-49")), (78.13, 78.67, 68.02)),
}
SMALL = {"A0-2": ((("A", "0-2"),), (None,) * 3), "A0-1,B3-4": ((("A", "0-1"), ("B", "3-4")), (None,) * 3)}


@study("distil", paper="2, Tables 8, 9")
def distil(
    run: Run,
    *,
    archs: tuple[str, ...] | None = None,
    picks: tuple[str, ...] | None = None,
    budget: float = 0.25,
    epochs: int = 10,
) -> Iterator[Row]:
    """A student cut out of its teachers, before and after an epoch of distillation, against one from scratch."""
    shop = Workshop.of(run)
    source = "cifar100" if run.full else "digits"
    for arch in shop.archs(archs, ("vgg16",)):
        halves = {h: shop.network(arch, f"{source}:{h}") for h in "AB"}
        for name, (pick, paper) in some_of(PICKS if run.full else SMALL, picks).items():
            bricks = [
                disassemble(
                    halves[h], places(c, len(half.classes)), half, budget=budget, seed=run.seed, progress=run.progress
                )
                for h, c in pick
                for half in [shop.data(f"{source}:{h}")]
            ]
            teachers = [halves[h] for h, _ in pick]
            chosen = shop.chosen(source, tuple(n for brick in bricks for n in brick.classes))
            student = assemble(bricks)
            common: dict[str, Any] = {
                "seed": run.seed,
                "device": shop.where,
                "progress": run.progress,
                "batch_size": 128 if run.full else 16,
                "augment": "crop+flip" if run.full else "none",
            }
            images, labels = chosen.train_images, chosen.train_labels
            fresh = _from_scratch(student)
            ways = {
                "cut and joined, nothing trained": student,
                "+ 1 epoch, teachers alone": teach(student, teachers, images, **common).model,
                "+ 1 epoch, teachers and labels": teach(student, teachers, images, labels, **common).model,
                f"the same student from scratch, {epochs} epochs, teachers and labels": teach(
                    fresh, teachers, images, labels, epochs=epochs, lr=0.05, **common
                ).model,
                f"the same student from scratch, {epochs} epochs, smoothed labels": _labels_alone(
                    shop, fresh, chosen, epochs
                ),
            }
            for what, model in ways.items():
                yield (
                    {
                        "what": f"{source} {arch} {name}, {what}",
                        "paper": paper[2],
                        "ours": accuracy(model, chosen),
                        "whole": side_by_side(teachers, chosen),
                        "paper_original": paper[0],
                        "paper_best_other": paper[1],
                        **mean_facts(bricks),
                        "seed": run.seed,
                    }
                )


def _from_scratch(student: nn.Module) -> nn.Module:
    """The student's shape with weights as they are before training."""
    fresh = copy.deepcopy(student)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for module in fresh.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()  # type: ignore[operator]
    return fresh


def _labels_alone(shop: Workshop, model: nn.Module, chosen: ImageData, epochs: int) -> nn.Module:
    pupil = copy.deepcopy(model)
    train(
        pupil,
        chosen.train_images,
        chosen.train_labels,
        epochs=epochs,
        lr=0.05,
        batch_size=128 if shop.full else 16,
        label_smoothing=0.1,
        augment="crop+flip" if shop.full else "none",
        seed=shop.seed,
        device=shop.where,
        progress=shop.progress,
    )
    return pupil.eval()
