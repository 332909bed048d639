"""Which training makes networks whose parts can be joined? Measured on one H200, 2026-11-15, seed 0:

    VGG-16 halves of CIFAR-10, side by side on A0-2,B3-4 (whole | 25 % | 50 % of the parameters, uncalibrated):
    80 epochs, batches of 1024, lr 0.2                      89.26 | 87.90 | 89.48
    40 epochs, batches of 512, lr 0.1                       89.60 | 88.26 | 88.40
    30 epochs, batches of 128, lr 0.05                      90.22 | 89.34 | 90.36
    60 epochs, batches of 512, lr 0.1, weight decay 1e-3    87.44 | 85.26 | 87.16

The more a network has been pressed onto its own classes, the surer it is of foreign ones. Whole networks scaled to one
spread of logits (assemble's default): 90.12, 89.98, 90.46, 87.12. Rows: studies/results/joining-recipes.json.

    BRICKWORK_DATA=DIR python -m brickwork_lab.joining_recipes --out rows.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import nn

from brickwork import data, zoo
from brickwork.bricks import assemble, disassemble
from brickwork.training import settings_for, train
from brickwork_lab.studies.workshop import accuracy, side_by_side

RECIPES = {
    "vgg16, 80 epochs of 1024": ("vgg16", {"epochs": 80, "batch_size": 1024, "lr": 0.2}),
    "vgg16, 40 epochs of 512": ("vgg16", {"epochs": 40, "batch_size": 512, "lr": 0.1}),
    "vgg16, 30 epochs of 128": ("vgg16", {"epochs": 30, "batch_size": 128, "lr": 0.05}),
    "vgg16, 60 epochs of 512, decay 1e-3": (
        "vgg16",
        {"epochs": 60, "batch_size": 512, "lr": 0.1, "weight_decay": 1e-3},
    ),
    "resnet50, 40 epochs of 512": ("resnet50", {"epochs": 40, "batch_size": 512, "lr": 0.2}),
}
PICKS = {"A0,B0": ("0", "0"), "A0-2,B3-4": ("0-2", "3-4"), "all": ("0-4", "0-4")}


def trained(arch: str, half: str, seed: int, recipe: dict[str, float]) -> nn.Module:
    images = data.load(f"cifar10:{half}")
    model = zoo.build(arch, num_classes=5, seed=seed)
    settings = settings_for(arch, len(images.train_labels), "cifar10", seed=seed, label_smoothing=0.0, **recipe)
    train(
        model,
        images.train_images,
        images.train_labels,
        classes=images.classes,
        preprocessing=data.load("cifar10").preprocessing(),
        **settings.to_dict(),
    )
    return model.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train halves by several recipes and join their parts.")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    whole = data.load("cifar10")
    rows = []
    for name, (arch, recipe) in RECIPES.items():
        nets = [trained(arch, half, seed, recipe) for seed, half in enumerate("AB")]
        for pick, classes in PICKS.items():
            for budget in (0.25, 0.5):
                bricks = [
                    disassemble(net, c, data.load(f"cifar10:{half}"), budget=budget)
                    for net, c, half in zip(nets, classes, "AB", strict=True)
                ]
                names = [n for brick in bricks for n in brick.classes]
                images = whole.select([whole.classes.index(n) for n in names])
                row = {"what": f"{name}, {pick}, {budget:.0%}", "whole": side_by_side(nets, images)}
                row |= {c: accuracy(assemble(bricks, calibrate=c), images) for c in ("none", "source")}
                rows.append(row)
                print(row, flush=True)
                arguments.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
