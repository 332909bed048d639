"""Which training makes networks whose parts can be joined? Measured on one H200, 2026-11-15, seed 0:

    VGG-16 halves of CIFAR-10, side by side on A0-2,B3-4 (whole | 25 % | 50 % of the parameters, uncalibrated):
    80 epochs, batches of 1024, lr 0.2                      89.26 | 87.90 | 89.48
    40 epochs, batches of 512, lr 0.1                       89.60 | 88.26 | 88.40
    30 epochs, batches of 128, lr 0.05                      90.22 | 89.34 | 90.36
    60 epochs, batches of 512, lr 0.1, weight decay 1e-3    87.44 | 85.26 | 87.16

The more a network has been pressed onto its own classes, the surer it is of foreign ones. Whole networks scaled to one
spread of logits (assemble's default): 90.12, 89.98, 90.46, 87.12. Rows: studies/results/joining-recipes.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from brickwork import zoo
from brickwork.bricks import assemble, disassemble
from brickwork_lab.judging import accuracy, side_by_side
from brickwork_lab.lab import SMOKE, Lab
from brickwork_lab.studies.registry import Names, Row, some_of, study

RECIPES: dict[str, dict[str, Any]] = {
    "vgg16, 80 epochs of 1024": {"epochs": 80, "batch_size": 1024, "lr": 0.2},
    "vgg16, 40 epochs of 512": {"epochs": 40, "batch_size": 512, "lr": 0.1},
    "vgg16, 30 epochs of 128": {"epochs": 30, "batch_size": 128, "lr": 0.05},
    "vgg16, 60 epochs of 512, decay 1e-3": {"epochs": 60, "batch_size": 512, "lr": 0.1, "weight_decay": 1e-3},
    "resnet50, 40 epochs of 512": {"epochs": 40, "batch_size": 512, "lr": 0.2},
}
SMALL = {"lenet, 8 epochs of 32": SMOKE}
PICKS = {"A0,B0": ("0", "0"), "A0-2,B3-4": ("0-2", "3-4"), "all": ("0-4", "0-4")}


@study("joining-recipes", paper="2, Table 2", trains=False)
def joining_recipes(lab: Lab, *, picks: Names = None, budgets: tuple[float, ...] = (0.25, 0.5)) -> Iterator[Row]:
    """Train halves by several recipes and join their parts: side by side, uncalibrated and calibrated."""
    source = "cifar10" if lab.full else "digits"
    halves = [lab.data(f"{source}:{letter}") for letter in "AB"]
    chosen = some_of(PICKS, picks)
    for name, recipe in (RECIPES if lab.full else SMALL).items():
        nets = []
        for seed, half in enumerate(halves, 2 * lab.seed):
            model = zoo.build(name.split(",")[0], num_classes=5, seed=seed, in_channels=half.shape[2])
            nets.append(lab.taught(model, half, source, record=False, seed=seed, label_smoothing=0.0, **recipe))
        for pick, classes in chosen.items():
            for budget in budgets:
                bricks = [
                    disassemble(net, numbers, half, budget=budget, progress=lab.progress)
                    for net, numbers, half in zip(nets, classes, halves, strict=True)
                ]
                images = lab.classes_of(source, [n for brick in bricks for n in brick.classes])
                none, ours = (accuracy(assemble(bricks, calibrate=c), images) for c in ("none", "source"))
                row: Row = {"what": f"{name}, {pick}, {budget:.0%}", "paper": None, "ours": ours}
                yield {**row, "uncalibrated": none, "whole": side_by_side(nets, images), "seed": lab.seed}
