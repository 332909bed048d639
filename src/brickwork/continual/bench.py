"""Where a method works: the scenario, the network everything starts from, the folder its files go to, the budget."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.algebra import merge
from brickwork.continual.files import write_tensors
from brickwork.continual.networks import halved, head_of, with_head
from brickwork.continual.options import ContinualOptions
from brickwork.continual.scenario import Scenario
from brickwork.copying import copy_module
from brickwork.data.images import ImageData
from brickwork.moments import reestimate_batch_norm
from brickwork.pools import KernelPool
from brickwork.prediction import input_of
from brickwork.store.weights import read_safetensors
from brickwork.training import train

TRUNK = "trunk.safetensors"
LARGEST_BATCH, SMALLEST_BATCH = 128, 16
DEFAULTS = ContinualOptions.from_dict({})
SHIFT = 1_000_000_007  # between the seeds of one soup's members


@dataclass
class Bench:
    """Handed to a method with every call. All a method knows of earlier tasks is in the files of its folder."""

    scenario: Scenario
    start: nn.Module = field(repr=False)
    folder: Path
    device: torch.device
    options: ContinualOptions = DEFAULTS
    pool: KernelPool | None = None  # for the methods that need one
    held: dict[str, Any] = field(default_factory=dict, repr=False)  # read from the folder once: it does not change

    @property
    def seed(self) -> int:
        return self.options.seed

    def task(self, number: int) -> ImageData:
        return self.scenario.tasks[number]

    def path(self, name: str) -> Path:
        return self.folder / name

    def task_path(self, number: int) -> Path:
        """The file of one task."""
        return self.folder / f"task-{number:03d}.safetensors"

    @property
    def head(self) -> str:
        """The name of the layer that gives the logits, in the start and in every network made from it."""
        return head_of(self.start)

    def fresh(self, number: int, trunk: nn.Module | None = None) -> nn.Module:
        """A copy of the trunk (the start without one) with a new head for a task, the same one every time."""
        source = self.start if trunk is None else trunk
        return with_head(source, self.task(number).classes, seed=self.seed_of(number))

    def seed_of(self, number: int) -> int:
        """Of everything that is drawn for a task."""
        return 1000 * self.seed + number

    def keep_trunk(self) -> None:
        """Write the start without its head, in float16: what methods that share one trunk store once."""
        head = self.head + "."
        state = {
            name: halved(value) if value.is_floating_point() else value
            for name, value in self.start.state_dict().items()
            if not name.startswith(head)
        }
        write_tensors(self.path(TRUNK), state)

    def trunk(self) -> nn.Module:
        """The start as the file of `keep_trunk` has it; not to be changed."""
        if "trunk" not in self.held:
            model = copy_module(self.start)
            load_partly(model, read_safetensors(self.path(TRUNK)))
            self.held["trunk"] = model
        return self.held["trunk"]

    def fit(
        self, model: nn.Module, number: int, *, images: ImageData | None = None, epochs: int | None = None, **how: Any
    ) -> nn.Module:
        """Train in place on a task (or other images) with this bench's budget; back in evaluation mode."""
        data = images or self.task(number)
        train(
            model,
            data.train_images,
            data.train_labels,
            classes=data.classes,
            **{**self.settings(number, len(data.train_labels), epochs), **how},
        )
        return model.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def fit_soup(self, number: int, members: int, **how: Any) -> nn.Module:
        """The start fitted to a task so many times, images in another order each time, and the weights averaged."""
        fitted = [
            self.fit(self.fresh(number), number, **how, seed=self.seed_of(number) + SHIFT * k) for k in range(members)
        ]
        if members == 1:
            return fitted[0]
        model = merge(fitted).to(self.device)
        inputs = input_of(model, self.task(number).train_images, self.device)
        # the statistics of an average are not the average of the statistics
        return reestimate_batch_norm(model, inputs.tensor_split(-(-len(inputs) // 250)))

    def settings(self, number: int, count: int, epochs: int | None = None) -> dict[str, Any]:
        """What training a task of so many images has in common for all methods; lr and optimizer are each one's own."""
        return {
            "epochs": epochs or self.options.epochs,
            "batch_size": self.options.batch_size or min(LARGEST_BATCH, max(SMALLEST_BATCH, count // 12)),
            "schedule": "onecycle",
            "weight_decay": 5e-4,
            "label_smoothing": 0.0,
            "optimizer": "sgd",
            "augment": self.options.augment or "none",
            "seed": self.seed_of(number),
            "record": True,
            "device": self.device,
            "progress": False,
        }


def load_partly(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put tensors into a network by name, in place; every one must find its place."""
    state = model.state_dict()
    with torch.no_grad():
        for name, value in tensors.items():
            state[name].copy_(value)
