"""The one interface of all methods, and the form most of them have: a shared trunk and a small file per task.

A method keeps nothing in memory between tasks. The network that is judged is read back from the files whose bytes are
counted, so a number that is reported belongs to what is on the disk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from brickwork.continual.bench import TRUNK, Bench
from brickwork.continual.files import write_tensors
from brickwork.continual.networks import flat, load_flat, load_head, small_of, stored_head
from brickwork.options import Options
from brickwork.store.weights import read_safetensors


class ContinualMethod(Options, ABC):
    """Learn a task (`learn`), and give the network of a task back from the files (`network`).

    A method is an options class: its fields are what can be told in brackets, as in lora(rank=8).
    """

    pooled = False  # whether its numbers depend on the pool of the bench

    def begin(self, bench: Bench) -> None:
        """Write what is there before the first task."""

    @abstractmethod
    def learn(self, bench: Bench, number: int) -> None:
        """Learn a task and write what it adds."""

    @abstractmethod
    def network(self, bench: Bench, number: int, after: int) -> nn.Module | None:
        """The network of a task as it is after task `after`, read from the files; None: there is none yet."""

    def whole(self, bench: Bench, after: int) -> nn.Module | None:
        """One network of all classes so far, read from the files; None: the networks of the tasks answer side by side."""
        return None

    def own(self, bench: Bench, number: int) -> list[Path]:
        """The files of one task alone."""
        return [bench.task_path(number)]

    def shared(self, bench: Bench, after: int) -> list[Path]:
        """The files of all tasks together, as they are after task `after`."""
        return []

    def sources(self, bench: Bench, number: int, after: int) -> list[Path]:
        """Every file that the network of a task is read from: as long as they are the same, so is it."""
        return [*self.own(bench, number), *self.shared(bench, after)]

    def opening(self, bench: Bench, number: int) -> nn.Module:
        """What learning a task begins with; its features are what earlier tasks can have done for it."""
        return bench.start

    def tidy(self, bench: Bench, after: int) -> None:
        """Remove files that are not needed after task `after`; it is on record by now."""


class RewrittenFile(ContinualMethod):
    """One file of all tasks that every task writes anew; the ones before it go when it is there."""

    prefix = ""  # of the file's name

    def shared(self, bench: Bench, after: int) -> list[Path]:
        return [self.file(bench, after)]

    def tidy(self, bench: Bench, after: int) -> None:
        for number in range(after):
            self.file(bench, number).unlink(missing_ok=True)

    def file(self, bench: Bench, after: int) -> Path:
        return bench.path(f"{self.prefix}-after-{after:03d}.safetensors")


class TaskFiles(ContinualMethod):
    """A trunk that is kept once and never changed, and one file per task: small tensors, head, and what a method adds."""

    if TYPE_CHECKING:  # each method has its own, with a default
        lr: float
        epochs: int | None

    optimizer = "sgd"
    weight_decay = 5e-4

    def begin(self, bench: Bench) -> None:
        bench.keep_trunk()

    def shared(self, bench: Bench, after: int) -> list[Path]:
        return [bench.path(TRUNK)]

    def opening(self, bench: Bench, number: int) -> nn.Module:
        return bench.trunk()

    def learn(self, bench: Bench, number: int) -> None:
        model = bench.fresh(number, self.opening(bench, number))
        self.prepare(model, bench, number)
        recipe: dict[str, Any] = {"optimizer": self.optimizer, "weight_decay": self.weight_decay}
        bench.fit(model, number, lr=self.lr, epochs=self.epochs, **recipe)
        added = self.added(model)
        self.settle(model)
        small = {"small": flat(small_of(model))} if self.keeps_small else {}
        write_tensors(bench.task_path(number), {**added, **small, **stored_head(model)})

    def network(self, bench: Bench, number: int, after: int) -> nn.Module | None:
        model = bench.fresh(number, self.opening(bench, number))
        stored = read_safetensors(bench.task_path(number))
        with torch.no_grad():
            if self.keeps_small:
                load_flat(small_of(model), stored["small"])
            load_head(model, stored)
            self.restore(model, stored)
        return model.eval()

    keeps_small = True  # batch norms and biases are of each task; without, they are the trunk's

    def prepare(self, model: nn.Module, bench: Bench, number: int) -> None:
        """Say what is trained, in place; everything is, otherwise."""

    def added(self, model: nn.Module) -> dict[str, Tensor]:
        """What the file of a task holds beside the small tensors and the head."""
        return {}

    def settle(self, model: nn.Module) -> None:
        """Undo what `prepare` put in the way of reading the tensors by their names."""

    def restore(self, model: nn.Module, stored: dict[str, Tensor]) -> None:
        """Change the kernels of a network as the file says."""
