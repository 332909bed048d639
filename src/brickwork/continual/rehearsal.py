"""Rehearsal: one network with one head for all classes, trained on each task beside stored images of the earlier ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.continual.base import RewrittenFile
from brickwork.continual.bench import Bench, load_partly
from brickwork.continual.files import write_tensors
from brickwork.continual.networks import head_tensors, with_head
from brickwork.continual.options import passes, rate
from brickwork.continual.registry import method
from brickwork.data.images import ImageData
from brickwork.data.streamed import concatenated
from brickwork.options import option
from brickwork.store.weights import read_safetensors

NETWORK = "network."  # before the names of the network's tensors; beside them are the stored images


@method("replay")
class Replay(RewrittenFile):
    """One network and one head for all classes so far; some images of every class are stored and trained on again."""

    prefix = "replay"
    lr: float = rate(0.02)
    epochs: int | None = passes()
    stored: int = option(default=20, at_least=1, help="Images stored per class.")

    def learn(self, bench: Bench, number: int) -> None:
        task = bench.task(number)
        model = with_head(self.opening(bench, number), _classes(bench, number), seed=bench.seed_of(number))
        images, labels = task.train_images, task.train_labels + len(_classes(bench, number - 1))
        kept = self._drawn(bench, number, task)
        memory = {"images": torch.from_numpy(np.asarray(images[kept])), "labels": torch.from_numpy(labels[kept])}
        if number:
            earlier = read_safetensors(self.file(bench, number - 1))
            _copy_head(model, earlier)
            images = concatenated([images, earlier["images"].numpy()])
            labels = np.concatenate([labels, earlier["labels"].numpy()])
            memory = {name: torch.cat([earlier[name], new]) for name, new in memory.items()}
        known = {"classes": _classes(bench, number), "train_images": images, "train_labels": labels}
        none = {"test_images": images[:0], "test_labels": labels[:0], "train_masks": None, "test_masks": None}
        bench.fit(model, number, lr=self.lr, epochs=self.epochs, images=replace(task, **known, **none))
        state = {NETWORK + name: value for name, value in model.state_dict().items()}
        write_tensors(self.file(bench, number), {**state, **memory})

    def network(self, bench: Bench, number: int, after: int) -> nn.Module | None:
        whole = self.whole(bench, after)
        first = len(_classes(bench, number - 1))
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
        model = with_head(bench.start, _classes(bench, after), seed=bench.seed_of(after))
        stored = read_safetensors(self.file(bench, after))
        load_partly(model, {n.removeprefix(NETWORK): t for n, t in stored.items() if n.startswith(NETWORK)})
        return model.eval()

    def _drawn(self, bench: Bench, number: int, task: ImageData) -> np.ndarray:
        """Which images of a task are stored: so many of each class."""
        draw = np.random.default_rng([bench.seed_of(number), 6])
        own = [
            draw.permutation(np.flatnonzero(task.train_labels == k))[: self.stored] for k in range(len(task.classes))
        ]
        return np.sort(np.concatenate(own))


def _classes(bench: Bench, after: int) -> tuple[str, ...]:
    """Names of all classes of the tasks up to this one; none for -1."""
    return tuple(f"{task.name}/{name}" for task in bench.scenario.tasks[: after + 1] for name in task.classes)


def _copy_head(model: nn.Module, stored: dict[str, Tensor]) -> None:
    """Put the outputs of the earlier classes into a wider head, in place."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            old = stored[NETWORK + name]
            if old.shape != value.shape:
                value[: len(old)].copy_(old)
