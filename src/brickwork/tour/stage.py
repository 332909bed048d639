"""What the parts of the tour share: where they write, the digits, the networks that the first part trained."""

from __future__ import annotations

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

SIZE = 16
FAST: dict[str, Any] = {
    "batch_size": 32,
    "lr": 5e-3,
    "optimizer": "adamw",
    "schedule": "onecycle",
    "augment": "none",
}


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

    def lenet(self, classes: int, seed: int | None = None) -> nn.Module:
        return zoo.build(
            "lenet", num_classes=classes, in_channels=1, seed=self.seed if seed is None else seed
        )

    def trained(self, model: nn.Module, images: ImageData, epochs: int = 12, **more: Any) -> nn.Module:
        """The model, trained in place on a set's training images."""
        how = {
            **FAST,
            "seed": self.seed,
            "device": self.device,
            "progress": False,
            "epochs": self.epochs(epochs),
            **more,
        }
        train(
            model, images.train_images, images.train_labels, classes=images.classes, preprocessing=images.preprocessing(),
            **how,
        )  # fmt: skip
        return model.eval()

    def accuracy(self, model: nn.Module, images: ImageData) -> float:
        return evaluate(model, images.test_images, images.test_labels).accuracy

    def said(self, *words: str) -> str:
        """A command that does the same, with the tour's folder in it."""
        return " ".join(["brickwork", *(word.replace("@", f"{self.final}/") for word in words)])
