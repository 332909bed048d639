"""What the parts of the tour share: where they write, the digits, the networks that the first part trained."""

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
from brickwork.report.drawing import Drawing
from brickwork.training import train

SIZE, EPOCHS = 16, 12
FAST: dict[str, Any] = {"batch_size": 32, "lr": 5e-3, "optimizer": "adamw", "schedule": "onecycle", "augment": "none"}
PartResult = tuple[list[Drawing], dict[str, Any]]  # figures, and numbers for demo.json


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

    @property
    def place(self) -> dict[str, Any]:
        """What every run of the tour is given."""
        return {"seed": self.seed, "device": self.device, "progress": False}

    def trained(self, model: nn.Module, images: ImageData) -> nn.Module:
        """The model, trained in place on a set's training images."""
        about: dict[str, Any] = {"classes": images.classes, "preprocessing": images.preprocessing()}
        train(model, images.train_images, images.train_labels, **about, **self.place, **self.training)
        return model.eval()

    def accuracy(self, model: nn.Module, images: ImageData) -> float:
        return evaluate(model, images.test_images, images.test_labels).accuracy

    def command(self, line: str) -> str:
        """A command that does the same; `@a` is what the tour's folder holds as a."""
        words = (str(self.final / word[1:]) if word.startswith("@") else word for word in line.split())
        return shlex.join(["brickwork", *words])

    @property
    def seeded(self) -> str:
        """The seed as an option of a command."""
        return f"--seed {self.seed}" if self.seed else ""


def as_options(values: dict[str, Any]) -> str:
    """Settings as options of a command.

    >>> as_options({"batch_size": 32, "lr": 0.005})
    '--batch-size 32 --lr 0.005'
    """
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in values.items())
