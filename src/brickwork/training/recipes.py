"""Default settings for each architecture, so that `brickwork train lenet digits:A --out a` just works.

Measured numbers stand beside the entries they belong to; the GPU ones are in studies/results/ground-floor.json.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from brickwork.training.settings import Settings


@dataclass(frozen=True)
class Recipe:
    """Settings for one architecture on an ordinary data set; `steps` is the least number of updates."""

    epochs: int = 30
    batch_size: int = 128
    lr: float = 0.1
    weight_decay: float = 5e-4
    label_smoothing: float = 0.0
    optimizer: str = "sgd"
    steps: int = 600


RECIPES = {
    # digits 97.8 to 99.2 % (seeds 0-2), 4.3 to 5.2 s on two cores, 6.6 to 7.8 on one; torch 2.13, 2026-11-15
    "lenet": Recipe(epochs=15, batch_size=128, lr=5e-3, weight_decay=0.01, optimizer="adamw", steps=180),
    # cifar10 93.1 % in 49 s, 97,000 images/s on one H200 (torch 2.11, 2026-11-15). No label smoothing: two smoothed
    # networks, joined, lost 18 points against plain ones
    "vgg16": Recipe(epochs=80, batch_size=1024, lr=0.2),
    # cifar10 92.8 % in 20 s, 84,000 images/s, likewise
    "resnet8": Recipe(epochs=30, batch_size=512, lr=0.2, label_smoothing=0.1),
    "simplenetv1": Recipe(epochs=40, batch_size=256, lr=0.1),
    "resnet18": Recipe(epochs=30, batch_size=512, lr=0.2),
    "resnet50": Recipe(epochs=40, batch_size=512, lr=0.2),
    "mobilenetv2": Recipe(epochs=40, batch_size=256, lr=0.1),
    "vit_small": Recipe(epochs=60, batch_size=256, lr=1e-3, weight_decay=0.05, optimizer="adamw", label_smoothing=0.1),
    "fcn8s": Recipe(epochs=30, batch_size=32, lr=0.02),
}

#: written signs change their meaning in a mirror, so they are only shifted, or left as they are
UNMIRRORED = {"digits": "none", "mnist": "crop"}


def settings_for(arch: str | None, images: int, data: str | None = None, **given: Any) -> Settings:
    """The recipe of an architecture for so many training images; what is given (not None) wins.

    A small set gets smaller batches and more epochs, so that there are enough updates to learn anything.

    >>> settings_for("lenet", 718, "digits").epochs
    15
    >>> settings_for("lenet", 718, epochs=3).epochs
    3
    """
    recipe = RECIPES.get(arch or "", Recipe())
    chosen = {key: value for key, value in given.items() if value is not None}
    batch_size = chosen.get("batch_size") or min(recipe.batch_size, max(16, images // 12))
    if "epochs" not in chosen:
        updates = max(1, images // max(1, batch_size))
        chosen["epochs"] = max(recipe.epochs, math.ceil(recipe.steps / updates))
    optimizer = chosen.get("optimizer", recipe.optimizer)
    # The learning rate of a recipe belongs to its optimizer.
    lr = recipe.lr if optimizer == recipe.optimizer else {"sgd": 0.1}.get(optimizer, 1e-3)
    defaults = {
        "batch_size": batch_size,
        "lr": lr,
        "weight_decay": recipe.weight_decay,
        "label_smoothing": recipe.label_smoothing,
        "optimizer": optimizer,
        "augment": "none" if data is None else UNMIRRORED.get(data, "crop+flip"),
    }
    if chosen.get("milestones"):
        defaults["schedule"] = "milestones"
    if chosen.get("momentum") == 0:
        defaults["nesterov"] = False
    return Settings(**{**defaults, **chosen})
