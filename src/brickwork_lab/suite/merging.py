"""Eight trunks into one: merged by a method, judged on every task under that task's own head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork import data
from brickwork.algebra import merge, merge_on
from brickwork.algebra.data_methods import DATA_METHODS
from brickwork.moments.readout import linear_answers
from brickwork.outputs import accuracy_of
from brickwork.prediction import predict
from brickwork_lab.benchmarks.measure import measured
from brickwork_lab.lab import Lab, digest
from brickwork_lab.suite.corruptions import CORRUPTIONS
from brickwork_lab.suite.methods import Candidate, Options
from brickwork_lab.suite.starts import Start, with_statistics
from brickwork_lab.suite.tasks import SIDE, Task
from brickwork_lab.suite.tuning import Tuned, answers, mixture

UNSEEN = {True: "cifar10", False: "digits"}  # a set of no task, in a full run and in a smoke run


@dataclass(frozen=True)
class Sizes:
    """How many images of each task are looked at, unlabelled, and how many choose or are damaged."""

    images: int = 500  # to merge with, and for batch-norm statistics
    choosing: int = 400  # held-out images that choose
    trial: int = 100  # to merge with while settings are tried
    judged: int | None = None  # test images; None: all that the task has
    damaged: int = 200  # test images under every corruption
    readout: int = 2000  # training images of the unseen set
    steps: int = 500  # of methods that learn coefficients


@dataclass
class Suite:
    """The tasks with their networks, and what a merged trunk is judged by."""

    lab: Lab
    start: Start
    tasks: Sequence[Task]
    tuned: Sequence[Tuned]
    sizes: Sizes
    _unseen: dict[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Of everything that a row depends on beside the method."""
        sizes = vars(self.sizes)
        return digest([self.start.digest, [t.digest for t in self.tasks], [t.digest for t in self.tuned], sizes])

    def merged(self, candidate: Candidate, options: Options, count: int) -> nn.Module:
        """One trunk; where it has batch norms, with the statistics of the same images whatever the method."""
        trunks = [one.trunk for one in self.tuned]
        given = {**candidate.fixed, **options}
        base: dict[str, Any] = {"base": self.start.trunk} if candidate.needs_base else {}
        if candidate.method not in DATA_METHODS:
            made = merge(trunks, candidate.method, **base, **given)
        else:
            images = [task.unlabelled(count, self.lab.seed) for task in self.tasks]
            more: dict[str, Any] = {"heads": [one.head for one in self.tuned]} if candidate.answers else {}
            made = merge_on(trunks, images, candidate.method, progress=self.lab.progress, **base, **more, **given)
        return with_statistics(made, mixture(self.tasks, count, self.lab.seed))

    def chosen(self, candidate: Candidate) -> Options:
        """The settings whose network agrees most with the tasks' own on held-out images; no label is read."""
        if len(candidate.tries) == 1:
            return candidate.tries[0]
        count = self.sizes.trial
        return max(candidate.tries, key=lambda options: self.agreement(self.merged(candidate, options, count)))

    def cost(self, candidate: Candidate, options: Options) -> tuple[nn.Module, dict[str, float]]:
        """The merged trunk, processor seconds, and megabytes above what was held before."""
        made: list[nn.Module] = []
        cost = measured(lambda: made.append(self.merged(candidate, options, self.sizes.images)))
        facts = {"seconds": round(cost["cpu_s"], 1), "grown_mb": round(cost["grown_mb"])}
        if self.lab.where.type == "cuda":
            facts["gpu_mb"] = round(torch.cuda.max_memory_allocated() / 2**20)
            torch.cuda.reset_peak_memory_stats()
        return made[0], facts

    def agreement(self, trunk: nn.Module) -> float:
        """How often it answers as the tasks' own networks, mean over tasks."""
        rates = []
        for images, theirs, one in zip(self._choosing, self._own_answers, self.tuned, strict=True):
            rates.append(float((answers(trunk, one.head, images).argmax(1) == theirs).float().mean()))
        return sum(rates) / len(rates)

    def accuracies(self, trunks: Sequence[nn.Module]) -> dict[str, float]:
        """Per cent right on every task's test images."""
        rates = {}
        for task, trunk, one in zip(self.tasks, trunks, self.tuned, strict=True):
            images, labels = (part[: self.sizes.judged] for part in self._shuffled(task))
            rates[task.name] = percent(answers(trunk, one.head, images), labels)
        return rates

    def damaged(self, trunks: Sequence[nn.Module]) -> dict[str, float]:
        """Per cent right under every corruption, mean over tasks."""
        rates: dict[str, list[float]] = {name: [] for name in CORRUPTIONS}
        for task, trunk, one in zip(self.tasks, trunks, self.tuned, strict=True):
            images, labels = (part[: self.sizes.damaged] for part in self._shuffled(task))
            every = np.concatenate([corrupt(images, 0) for corrupt in CORRUPTIONS.values()])
            said = answers(trunk, one.head, every).split(len(images))
            for name, some in zip(CORRUPTIONS, said, strict=True):
                rates[name].append(percent(some, labels))
        return {name: round(float(np.mean(values)), 2) for name, values in rates.items()}

    def unseen(self, trunks: Sequence[nn.Module]) -> float:
        """Per cent right on a set of no task, by ridge regression from the features to its labels; mean over the trunks."""
        if not self._unseen:
            whole = data.load(UNSEEN[self.lab.full], progress=self.lab.progress)
            shape = (SIDE, 3) if self.lab.full else (16, 1)
            small = whole.draw(self.sizes.readout, 0)
            rows = np.random.default_rng(0).permutation(len(whole.test_labels))[: self.sizes.readout // 2]
            tests: dict[str, Any] = {
                "test_images": np.asarray(small.test_images[rows]),
                "test_labels": small.test_labels[rows],
            }
            small = replace(small, test_masks=None, **tests)
            self._unseen["set"] = small.fit(size=shape[0], channels=shape[1])
        found = self._unseen["set"]
        rates = []
        for trunk in {id(t): t for t in trunks}.values():
            seen, new = (predict(trunk, np.asarray(part)).double() for part in (found.train_images, found.test_images))
            said = linear_answers(seen, torch.from_numpy(found.train_labels), len(found.classes), new)
            rates.append(percent(said, found.test_labels))
        return round(float(np.mean(rates)), 2)

    @cached_property
    def _choosing(self) -> list[np.ndarray]:
        return [task.held[0][_order(len(task.held[1]))[: self.sizes.choosing]] for task in self.tasks]

    @cached_property
    def _own_answers(self) -> list[Tensor]:
        pairs = zip(self.tuned, self._choosing, strict=True)
        return [answers(one.trunk, one.head, images).argmax(1) for one, images in pairs]

    @staticmethod
    def _shuffled(task: Task) -> tuple[np.ndarray, np.ndarray]:
        order = _order(len(task.test[1]))
        return task.test[0][order], task.test[1][order]


def _order(count: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(count)


def percent(said: Tensor, labels: np.ndarray) -> float:
    return round(100 * accuracy_of(said, labels), 2)
