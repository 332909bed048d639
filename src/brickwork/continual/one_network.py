"""One network with one head for all classes so far, trained on task after task: what methods that do so have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from brickwork.continual.base import RewrittenFile
from brickwork.continual.bench import Bench, load_partly
from brickwork.continual.files import write_tensors
from brickwork.continual.networks import head_tensors, with_head
from brickwork.continual.options import passes, rate
from brickwork.data.images import ImageData
from brickwork.store.weights import read_safetensors

NETWORK = "network."  # before the names of the network's tensors; beside them is what a method keeps
Penalty = Callable[[Tensor, Tensor, Tensor], Tensor]
Stored = dict[str, Tensor]


class OneNetwork(RewrittenFile):
    """What methods of one network have in common. `kept` is what they store beside it, `penalty` and `images` how they use it."""

    lr: float = rate(0.02)
    epochs: int | None = passes()

    def learn(self, bench: Bench, number: int) -> None:
        model = with_head(self.opening(bench, number), classes_until(bench, number), seed=bench.seed_of(number))
        earlier = read_safetensors(self.file(bench, number - 1)) if number else {}
        if earlier:
            copy_grown(model, {n.removeprefix(NETWORK): t for n, t in earlier.items() if n.startswith(NETWORK)})
        own, before = bench.task(number), len(classes_until(bench, number - 1))
        task = replace(
            own,
            classes=classes_until(bench, number),
            train_labels=own.train_labels + before,
            test_images=own.test_images[:0],
            test_labels=own.test_labels[:0],
            train_masks=None,
            test_masks=None,
        )
        penalty = self.penalty(model, bench, number, earlier) if earlier else None
        # a step that is recorded for a GPU cannot draw stored images, or ask another network, anew every time
        how = {} if penalty is None else {"penalty": penalty, "record": False}
        bench.fit(model, number, lr=self.lr, epochs=self.epochs, images=self.images(task, earlier), **how)
        state = {NETWORK + name: value for name, value in model.state_dict().items()}
        write_tensors(self.file(bench, number), {**state, **self.kept(model, bench, number, task, earlier)})

    def images(self, task: ImageData, earlier: Stored) -> ImageData:
        """What is trained on."""
        return task

    def penalty(self, model: nn.Module, bench: Bench, number: int, earlier: Stored) -> Penalty | None:
        """What is added to the loss of a task that is not the first."""
        return None

    def kept(self, model: nn.Module, bench: Bench, number: int, task: ImageData, earlier: Stored) -> Stored:
        """What is stored beside the network once a task is learned; its labels are numbered among all classes."""
        return {}

    def network(self, bench: Bench, number: int, after: int) -> nn.Module | None:
        whole = self.whole(bench, after)
        first = len(classes_until(bench, number - 1))
        model = bench.fresh(number, whole)
        with torch.no_grad():
            for name, value in head_tensors(model).items():
                value.copy_(head_tensors(whole)[name][first : first + len(value)])
        return model.eval()

    def opening(self, bench: Bench, number: int) -> nn.Module:
        return self.whole(bench, number - 1) if number else bench.start

    def own(self, bench: Bench, number: int) -> list[Path]:
        return []

    def whole(self, bench: Bench, after: int) -> nn.Module:
        model = with_head(bench.start, classes_until(bench, after), seed=bench.seed_of(after))
        stored = read_safetensors(self.file(bench, after))
        load_partly(model, {n.removeprefix(NETWORK): t for n, t in stored.items() if n.startswith(NETWORK)})
        return model.eval()


def classes_until(bench: Bench, after: int) -> tuple[str, ...]:
    """Names of all classes of the tasks up to this one; none for -1."""
    return tuple(f"{task.name}/{name}" for task in bench.scenario.tasks[: after + 1] for name in task.classes)


def copy_grown(model: nn.Module, stored: Stored) -> None:
    """Put the outputs of the earlier classes into a wider head, in place."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            old = stored[name]
            if old.shape != value.shape:
                value[: len(old)].copy_(old)
