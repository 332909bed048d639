"""Where a method works: the scenario, the network everything starts from, the folder its files go to, the budget."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.continual.files import read_tensors, write_tensors
from brickwork.continual.networks import halved, head_of, with_head
from brickwork.continual.scenario import Scenario
from brickwork.data.images import ImageData
from brickwork.training import train

TRUNK = "trunk.safetensors"
LARGEST_BATCH, SMALLEST_BATCH = 128, 16


@dataclass
class Bench:
    """Handed to a method with every call. All a method knows of earlier tasks is in the files of its folder."""

    scenario: Scenario
    start: nn.Module = field(repr=False)
    folder: Path
    device: torch.device
    epochs: int = 30
    batch_size: int | None = None
    augment: str = "none"
    seed: int = 0
    progress: bool = False
    pool: Any = None  # a brickwork.pools.KernelPool, for the methods that need one
    _trunk: nn.Module | None = field(default=None, repr=False)

    def task(self, number: int) -> ImageData:
        return self.scenario.tasks[number]

    def path(self, name: str) -> Path:
        return self.folder / name

    def task_path(self, number: int) -> Path:
        """The file of one task."""
        return self.folder / f"task-{number:03d}.safetensors"

    def fresh(self, number: int, trunk: nn.Module | None = None) -> nn.Module:
        """A copy of the trunk (the start without one) with a new head for a task, the same one every time."""
        source = self.start if trunk is None else trunk
        return with_head(source, self.task(number).classes, seed=1000 * self.seed + number)

    def keep_trunk(self) -> None:
        """Write the start without its head, in float16: what methods that share one trunk store once."""
        head = head_of(self.start) + "."
        state = {
            name: halved(value) if value.is_floating_point() else value
            for name, value in self.start.state_dict().items()
            if not name.startswith(head)
        }
        write_tensors(self.path(TRUNK), state)

    def trunk(self) -> nn.Module:
        """The start as the file of `keep_trunk` has it; not to be changed."""
        if self._trunk is None:
            model = copy.deepcopy(self.start)
            load_partly(model, read_tensors(self.path(TRUNK)))
            self._trunk = model
        return self._trunk

    def fit(
        self, model: nn.Module, number: int, *, lr: float, optimizer: str = "sgd", weight_decay: float = 5e-4,
        epochs: int | None = None, images: ImageData | None = None, **more: Any,
    ) -> nn.Module:  # fmt: skip
        """Train in place on a task (or other images) with this bench's budget; back in evaluation mode."""
        data = images or self.task(number)
        count = len(data.train_labels)
        size = self.batch_size or min(LARGEST_BATCH, max(SMALLEST_BATCH, count // 12))
        train(
            model, data.train_images, data.train_labels, epochs=epochs or self.epochs, batch_size=size, lr=lr,
            optimizer=optimizer, weight_decay=weight_decay, schedule="onecycle", label_smoothing=0.0,
            augment=self.augment, seed=1000 * self.seed + number, classes=data.classes, record=True,
            device=self.device, progress=self.progress, **more,
        )  # fmt: skip
        return model.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def load_partly(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put tensors into a network by name, in place; every one must find its place."""
    state = model.state_dict()
    with torch.no_grad():
        for name, value in tensors.items():
            state[name].copy_(value)
