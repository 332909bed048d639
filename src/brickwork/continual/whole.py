"""Whole networks: one per task, one for all tasks at once, and one that is trained on task after task."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.continual.base import ContinualMethod, RewrittenFile
from brickwork.continual.bench import Bench, load_partly
from brickwork.continual.files import write_tensors
from brickwork.continual.networks import head_of, head_tensors, with_head
from brickwork.continual.options import passes, rate
from brickwork.continual.registry import method
from brickwork.data.images import ImageData
from brickwork.options import option
from brickwork.store.weights import read_safetensors


@method("finetune")
class Finetune(ContinualMethod):
    """The start fine-tuned on each task alone: a whole network in float32 per task.

    soup: so many times, and the average of the networks kept.
    """

    lr: float = rate(0.02)
    epochs: int | None = passes()
    soup: int = option(default=1, at_least=1, help="Trainings whose average is kept.")

    def learn(self, bench: Bench, number: int) -> None:
        model = bench.fit_soup(number, self.soup, lr=self.lr, epochs=self.epochs)
        write_tensors(bench.task_path(number), dict(model.state_dict()))

    def network(self, bench: Bench, number: int, after: int) -> nn.Module | None:
        model = bench.fresh(number)
        load_partly(model, read_safetensors(bench.task_path(number)))
        return model.eval()


@method("joint")
class Joint(ContinualMethod):
    """One network trained on all tasks at once, when the last one has come; a task is judged among its own classes."""

    lr: float = rate(0.05)
    epochs: int | None = passes()

    def learn(self, bench: Bench, number: int) -> None:
        if number + 1 < len(bench.scenario):
            return
        every = together(bench.scenario.tasks)
        model = self._all(bench)
        bench.fit(model, number, lr=self.lr, epochs=self.epochs, images=every)
        write_tensors(self._path(bench), dict(model.state_dict()))

    def network(self, bench: Bench, number: int, after: int) -> nn.Module | None:
        model = self.whole(bench, after)
        if model is None:
            return None
        first = sum(len(task.classes) for task in bench.scenario.tasks[:number])
        rows = slice(first, first + len(bench.task(number).classes))
        small = bench.fresh(number, model)
        with torch.no_grad():
            for name, value in head_tensors(small).items():
                whole = head_tensors(model)[name]
                value.copy_(whole[rows] if name in ("weight", "bias") else whole)
        return small.eval()

    def whole(self, bench: Bench, after: int) -> nn.Module | None:
        if after + 1 < len(bench.scenario):
            return None
        model = self._all(bench)
        load_partly(model, read_safetensors(self._path(bench)))
        return model.eval()

    def own(self, bench: Bench, number: int) -> list[Path]:
        return []

    def shared(self, bench: Bench, after: int) -> list[Path]:
        return [self._path(bench)] if after + 1 == len(bench.scenario) else []

    def _path(self, bench: Bench) -> Path:
        return bench.path("all.safetensors")

    def _all(self, bench: Bench) -> nn.Module:
        classes = [f"{task.name}/{name}" for task in bench.scenario.tasks for name in task.classes]
        return with_head(bench.start, classes, seed=bench.seed)


@method("sequential")
class Sequential(RewrittenFile):
    """One network fine-tuned on task after task, with a head for each; nothing keeps it from forgetting."""

    prefix = "network"
    lr: float = rate(0.02)
    epochs: int | None = passes()

    def learn(self, bench: Bench, number: int) -> None:
        model = bench.fit(bench.fresh(number, self.opening(bench, number)), number, lr=self.lr, epochs=self.epochs)
        head = head_of(model) + "."
        write_tensors(self.file(bench, number), {n: t for n, t in model.state_dict().items() if not n.startswith(head)})
        write_tensors(bench.task_path(number), {f"head.{n}": t for n, t in head_tensors(model).items()})

    def network(self, bench: Bench, number: int, after: int) -> nn.Module | None:
        model = bench.fresh(number)
        head: dict[str, Tensor] = read_safetensors(bench.task_path(number))
        load_partly(model, read_safetensors(self.file(bench, after)))
        load_partly(model.get_submodule(head_of(model)), {n.removeprefix("head."): t for n, t in head.items()})
        return model.eval()

    def opening(self, bench: Bench, number: int) -> nn.Module:
        if number == 0:
            return bench.start
        model = self.network(bench, number - 1, number - 1)
        assert model is not None
        return model


def together(tasks: tuple[ImageData, ...]) -> ImageData:
    """All tasks as one set, the classes of each behind those of the one before."""
    firsts = np.cumsum([0, *(len(task.classes) for task in tasks)])
    return replace(
        tasks[0],
        name="all tasks",
        classes=tuple(f"{task.name}/{name}" for task in tasks for name in task.classes),
        train_images=np.concatenate([task.train_images for task in tasks]),
        train_labels=np.concatenate([task.train_labels + k for task, k in zip(tasks, firsts, strict=False)]),
        test_images=np.concatenate([task.test_images for task in tasks]),
        test_labels=np.concatenate([task.test_labels + k for task, k in zip(tasks, firsts, strict=False)]),
        train_masks=None,
        test_masks=None,
    )
