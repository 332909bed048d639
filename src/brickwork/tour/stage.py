"""What the parts of the tour share: where they write, the digits, the networks that the first part trained."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork import data, store, zoo
from brickwork.data.images import ImageData
from brickwork.evaluation import evaluate
from brickwork.origin import attach, origin_of
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

    def start(self, name: str, arch: str, classes: int, *, seed: int = 0, **own: int) -> nn.Module:
        """An untrained network, saved in the tour's folder, so that a command can train it."""
        model = zoo.build(arch, num_classes=classes, in_channels=1, seed=self.seed + seed, **own)
        attach(model, replace(origin_of(model), input_shape=(1, SIZE, SIZE)))
        store.save(model, self.folder / name)
        return model

    @property
    def training(self) -> dict[str, Any]:
        """How the tour's classifiers are trained, in the words of `train`."""
        return {"epochs": self.epochs(EPOCHS), **FAST}

    @property
    def place(self) -> dict[str, Any]:
        """What every run of the tour is given."""
        return {"seed": self.seed, "device": self.device, "progress": False}

    def trained(self, model: nn.Module, images: ImageData, *, seed: int = 0, **own: Any) -> nn.Module:
        """The model, trained in place on a set's training images; own: settings that differ from the tour's."""
        about: dict[str, Any] = {"classes": images.classes, "preprocessing": images.preprocessing()}
        how = {**self.place, **self.training, "seed": self.seed + seed, **own}
        train(model, images.train_images, images.train_labels, **about, **how)
        return model.eval()

    def save(self, model: nn.Module, name: str, spec: str) -> None:
        """A network in the tour's folder, with the images it knows, so that a studio need not be told."""
        store.save(model, self.folder / name, provenance={"command": "demo", "data": spec})

    def save_images(self, images: ImageData, name: str) -> None:
        """Images as a file of the tour's folder, which commands take as data."""
        arrays = {key: getattr(images, key) for key in ("train_images", "train_labels", "test_images", "test_labels")}
        np.savez_compressed(self.folder / name, classes=np.array(images.classes), **arrays)

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
