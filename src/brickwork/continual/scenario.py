"""A scenario: tasks that come one after another, each a set of images with classes of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from brickwork.data.class_groups import class_groups, places_of
from brickwork.data.images import SPLITS, ImageData, hold_out
from brickwork.errors import BadData, RequestError
from brickwork.words import counted


@dataclass(frozen=True)
class Scenario:
    """Tasks in the order they are learned. Whether the task of a test image is known is a matter of the run (`protocol`)."""

    name: str
    tasks: tuple[ImageData, ...] = field(repr=False)
    left_out: int = 0  # classes of the data that no task has

    def __post_init__(self) -> None:
        if not self.tasks:
            raise RequestError("a scenario needs one task or more.")
        names = [task.name for task in self.tasks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise RequestError(f"two tasks are called {twice[0]!r}; give each a name of its own.")
        for task in self.tasks:
            if task.shape != self.tasks[0].shape:
                raise BadData(
                    f"images of {task.name} are {_size(task.shape)}, those of {names[0]} {_size(self.tasks[0].shape)}; "
                    "sequence() brings them to one size."
                )
            for split in SPLITS:
                if len(task.split(split)[1]) == 0:
                    raise BadData(f"{task.name} has no {split} images; every task is trained and tested.")

    def __len__(self) -> int:
        return len(self.tasks)

    def __str__(self) -> str:
        counts = sorted({len(task.classes) for task in self.tasks})
        each = counted(counts[0], "class") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} classes"
        images = sum(len(task.train_labels) for task in self.tasks)
        shape = _size(self.tasks[0].shape)
        return f"{self.name}: {counted(len(self), 'task')} of {each}, {images:,} training images of {shape}"

    def held_out(self, share: float = 0.2) -> Scenario:
        """The same tasks judged on a share of their training images, which is not learned from: to choose options by.

        >>> from brickwork import data
        >>> two = split_classes(data.load("digits@10", size=8), tasks=5).held_out(0.3)
        >>> len(two.tasks[0].train_labels), len(two.tasks[0].test_labels)
        (14, 6)
        """
        if not 0 < share < 1:
            raise RequestError(f"the share held out is {share:g}; it must be above 0 and below 1.")
        tasks = []
        for task in self.tasks:
            kept, held = hold_out(task.train_labels, share)
            images, labels = task.train_images, task.train_labels
            tasks.append(
                ImageData(
                    task.name,
                    task.classes,
                    train_images=images[kept],
                    train_labels=labels[kept],
                    test_images=images[held],
                    test_labels=labels[held],
                )
            )
        name = f"{self.name}, {share:.0%} of the training images held out"
        return replace(self, name=name, tasks=tuple(tasks))

    def to_dict(self) -> dict[str, Any]:
        """JSON values: which task has which classes."""
        return {"name": self.name, "tasks": {task.name: list(task.classes) for task in self.tasks}}


def split_classes(
    data: ImageData,
    *,
    tasks: int | None = None,
    per: int | None = None,
    seed: int | None = None,
    groups: Mapping[str, Sequence[str]] | str | Path | None = None,
) -> Scenario:
    """The classes of one data set dealt out to tasks: `tasks` of them, `per` classes each; or a task per group.

    With one of the two left out, it is as large as the classes allow. Every task has as many classes; where they do not
    divide evenly, or fewer are asked for, those at the end of the order are left out. seed: the classes are shuffled first;
    None: in their order. groups: names of classes, by the name of their task; "superclass": CIFAR-100's twenty groups of
    five similar classes, which are paper 4's tasks; or a JSON file of groups. With `tasks`, the first so many.

    >>> from brickwork import data
    >>> two = split_classes(data.load("digits@5", size=8), tasks=2, per=3, seed=0)
    >>> [task.classes for task in two.tasks]
    [('4', '6', '2'), ('7', '3', '5')]
    """
    count = len(data.classes)
    if groups is not None and (per is not None or seed is not None):
        raise RequestError("groups say which classes a task has; leave out `per` and `seed`.")
    for name, value in (("tasks", tasks), ("per", per)):
        if value is not None and value < 1:
            raise RequestError(f"{name} is {value}; it must be 1 or more.")
    if groups is not None:
        given = class_groups(groups) if isinstance(groups, str | Path) else dict(groups)
        if tasks is not None and tasks > len(given):
            raise RequestError(f"tasks is {tasks}, and there are {len(given)} groups; ask for fewer.")
        dealt = places_of(given, data.classes, data.name)[:tasks]
        return _dealt(data, dict(zip(given, dealt, strict=False)), f"{data.name} in {counted(len(dealt), 'group')}")
    if tasks is None and per is None:
        raise RequestError("say into how many tasks to split (tasks) or how many classes each has (per).")
    per = count // int(tasks or 1) if per is None else per
    tasks = count // per if tasks is None else tasks
    if per < 1 or tasks < 1 or tasks * per > count:
        raise RequestError(
            f"{tasks} tasks of {per or 1} classes need {tasks * (per or 1)}; {data.name} has {count}. Ask for fewer."
        )
    order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
    width = len(str(tasks - 1))
    numbered = {f"{k:0{width}d}": order[k * per : (k + 1) * per].tolist() for k in range(tasks)}
    if tasks == 1:
        numbered = {"": numbered["0"]}  # the one task is the data set itself
    return _dealt(data, numbered, f"{data.name} in {tasks} × {per}")


def _dealt(data: ImageData, dealt: Mapping[str, list[int]], name: str) -> Scenario:
    """A task for each list of classes, by its name."""
    parts = [data.select(own) for own in dealt.values()]
    named = [
        replace(part, name=f"{data.name}#{task}") if task else part for task, part in zip(dealt, parts, strict=True)
    ]
    return Scenario(name, tuple(named), len(data.classes) - sum(map(len, dealt.values())))


def sequence(sets: Sequence[ImageData], *, size: int | None = None, name: str | None = None) -> Scenario:
    """Whole data sets one after another, brought to one shape.

    The rule: height and width are `size`, or those of the first set; images are RGB as soon as one set is (grey is
    repeated over the three channels), else grey.
    """
    if not sets:
        raise RequestError("a sequence needs one data set or more.")
    channels = max(one.shape[2] for one in sets)
    target = sets[0].shape[:2] if size is None else (size, size)
    tasks = tuple(one.fit(size=target, channels=channels) for one in sets)
    return Scenario(name or " → ".join(one.name for one in sets), tasks)


def _size(shape: tuple[int, int, int]) -> str:
    return f"{shape[0]}×{shape[1]}×{shape[2]}"
