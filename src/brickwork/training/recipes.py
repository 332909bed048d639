"""Default options of training for each architecture, so that `brickwork train lenet digits:A --out a` just works.

Measured numbers stand beside the entries they belong to; the GPU ones are in studies/results/ground-floor.json.
"""

import math
from dataclasses import dataclass

from brickwork.training.options import TrainOptions


@dataclass(frozen=True)
class TrainingRecipe:
    """Defaults for one architecture on an ordinary data set; `steps` is the least number of updates."""

    epochs: int = 30
    batch_size: int = 128
    lr: float = 0.1
    weight_decay: float = 5e-4
    label_smoothing: float = 0.0
    optimizer: str = "sgd"
    steps: int = 600


RECIPES = {
    # digits 97.8 to 99.2 % (seeds 0-2), 4.3 to 5.2 s on two cores, 6.6 to 7.8 on one; torch 2.13, 2026-11-15
    "lenet": TrainingRecipe(epochs=15, batch_size=128, lr=5e-3, weight_decay=0.01, optimizer="adamw", steps=180),
    # cifar10 93.1 % in 49 s, 97,000 images/s on one H200 (torch 2.11, 2026-11-15). No label
    # smoothing: two smoothed networks, joined, lost 18 points against plain ones
    "vgg16": TrainingRecipe(epochs=80, batch_size=1024, lr=0.2),
    # cifar10 92.8 % in 20 s, 84,000 images/s, likewise
    "resnet8": TrainingRecipe(epochs=30, batch_size=512, lr=0.2, label_smoothing=0.1),
    "simplenetv1": TrainingRecipe(epochs=40, batch_size=256, lr=0.1),
    "resnet18": TrainingRecipe(epochs=30, batch_size=512, lr=0.2),
    "resnet50": TrainingRecipe(epochs=40, batch_size=512, lr=0.2),
    "mobilenetv2": TrainingRecipe(epochs=40, batch_size=256, lr=0.1),
    "vit_small": TrainingRecipe(
        epochs=60, batch_size=256, lr=1e-3, weight_decay=0.05, optimizer="adamw", label_smoothing=0.1
    ),
    "fcn8s": TrainingRecipe(epochs=30, batch_size=32, lr=0.02),
}

#: written signs change their meaning in a mirror, so they are only shifted, or left as they are
UNMIRRORED = {"digits": "none", "mnist": "crop"}


def default_augment(source: str | None) -> str:
    """The augmentation where none is asked for; source: the name of the data set, None for plain arrays.

    >>> default_augment("cifar10"), default_augment("digits"), default_augment(None)
    ('crop+flip', 'none', 'none')
    """
    return "none" if source is None else UNMIRRORED.get(source, "crop+flip")


def resolve(options: TrainOptions, arch: str | None, images: int, source: str | None = None) -> TrainOptions:
    """The same options with everything decided, for an architecture and so many training images of a data set.

    A small set gets smaller batches and more epochs, so that there are enough updates to learn anything.

    >>> resolve(TrainOptions(), "lenet", 718, "digits").epochs, resolve(TrainOptions(epochs=3), "lenet", 718).epochs
    (15, 3)
    """
    recipe = RECIPES.get(arch or "", TrainingRecipe())
    chosen = {name: value for name, value in vars(options).items() if value is not None}
    batch_size = chosen.get("batch_size") or min(recipe.batch_size, max(16, images // 12))
    optimizer = chosen.get("optimizer", recipe.optimizer)
    updates = max(1, images // max(1, batch_size))
    decided = {
        "epochs": max(recipe.epochs, math.ceil(recipe.steps / updates)),
        "batch_size": batch_size,
        # The learning rate of a recipe belongs to its optimizer.
        "lr": recipe.lr if optimizer == recipe.optimizer else {"sgd": 0.1, "muon": 0.05}.get(optimizer, 1e-3),
        "optimizer": optimizer,
        "schedule": "milestones" if chosen.get("milestones") else "onecycle",
        "milestones": (),
        "weight_decay": recipe.weight_decay,
        "momentum": 0.9,
        "nesterov": chosen.get("momentum") != 0,
        "label_smoothing": recipe.label_smoothing,
        "augment": default_augment(source),
    }
    return TrainOptions(**{**decided, **chosen})
