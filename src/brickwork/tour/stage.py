"""What the parts of the tour share: where they write, the digits, the networks that the first part trained."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brickwork import data, zoo
from brickwork.data.images import ImageData
from brickwork.evaluation import evaluate
from brickwork.training import train

SIZE, EPOCHS = 16, 12
FAST: dict[str, Any] = {"batch_size": 32, "lr": 5e-3, "optimizer": "adamw", "schedule": "onecycle", "augment": "none"}


@dataclass
class Stage:
    """One tour. `folder` is written to; `final` is where it will be found; `quick` is for tests: a tenth of the work."""

    folder: Path
    final: Path
    seed: int
    device: torch.device
    log: Callable[[str], None]
    quick: bool = False
    nets: dict[str, nn.Module] = field(default_factory=dict)

    def digits(self, spec: str = "digits", size: int = SIZE) -> ImageData:
        return data.load(spec, size=size, channels=1)

    def epochs(self, wanted: int) -> int:
        return 2 if self.quick else wanted

    def lenet(self, classes: int) -> nn.Module:
        return zoo.build("lenet", num_classes=classes, in_channels=1, seed=self.seed)

    @property
    def training(self) -> dict[str, Any]:
        """How the tour's classifiers are trained, in the words of `train`."""
        return {"epochs": self.epochs(EPOCHS), **FAST}

    def trained(self, model: nn.Module, images: ImageData) -> nn.Module:
        """The model, trained in place on a set's training images."""
        train(
            model,
            images.train_images,
            images.train_labels,
            classes=images.classes,
            preprocessing=images.preprocessing(),
            seed=self.seed,
            device=self.device,
            progress=False,
            **self.training,
        )
        return model.eval()

    def accuracy(self, model: nn.Module, images: ImageData) -> float:
        return evaluate(model, images.test_images, images.test_labels).accuracy

    def said(self, *words: object) -> str:
        """A command that does the same; `@a` is what the tour's folder holds as a."""
        told = map(str, words)
        return shlex.join(["brickwork", *(f"{self.final / w[1:]}" if w[:1] == "@" else w for w in told)])

    @property
    def seeded(self) -> tuple[str, ...]:
        """The seed as a command says it."""
        return ("--seed", str(self.seed)) if self.seed else ()


def as_options(values: dict[str, Any]) -> tuple[str, ...]:
    """Settings as a command says them.

    >>> as_options({"batch_size": 32, "lr": 0.005})
    ('--batch-size', '32', '--lr', '0.005')
    """
    return tuple(w for name, value in values.items() for w in (f"--{name.replace('_', '-')}", str(value)))
