"""The options of continual learning, and those that methods have in common."""

from collections.abc import Iterator
from typing import Any, Literal

from brickwork.options import Options, option, seed_option
from brickwork.training.options import AUGMENTATIONS, TRAINING

TASKS = "The tasks"  # heading of the help


class ContinualOptions(Options, panel=TRAINING):
    """What a run of several methods has in common for all of them."""

    epochs: int = option(default=30, at_least=1, help="Passes over the images of each task, for every method.")
    batch_size: int | None = option(
        default=None, at_least=1, help="Images per step.", default_text="up to 128, fewer for small tasks"
    )
    augment: str | None = option(
        default=None, choices=AUGMENTATIONS, help="Augmentation.", default_text="what suits the data"
    )
    protocol: Literal["task", "class"] = option(
        default="task",
        help="What is known of a test image: its task, or nothing, so that all classes learned so far compete (class).",
        panel=TASKS,
    )
    forward: bool = option(default=False, help="Also measure every task just before it is learned.", panel=TASKS)
    seed: int = seed_option()


class SplitOptions(Options, panel=TASKS):
    """How a data set becomes tasks."""

    tasks: int | None = option(default=None, at_least=1, help="Tasks to split one data set into.")
    classes_per_task: int | None = option(default=None, at_least=1, help="Classes per task.")
    class_seed: int | None = option(
        default=None, at_least=0, help="Seed to shuffle the classes with.", default_text="their order"
    )
    groups: str | None = option(
        default=None,
        metavar="superclass|FILE",
        help="A task per group of classes: CIFAR-100's superclasses, or a JSON file of groups.",
    )
    holdout: float | None = option(
        default=None,
        above=0,
        below=1,
        help="Judge on this share of the training images instead of the test images: to choose options.",
    )

    def rules_for(self, sets: int) -> Iterator[str]:
        """Problems with so many data sets."""
        given = [self.tasks, self.classes_per_task, self.class_seed, self.groups]
        if sets > 1 and any(value is not None for value in given):
            yield "several data sets are one task each; leave out `tasks`, `classes_per_task`, `class_seed` and `groups`"
        if self.groups is not None and (self.classes_per_task is not None or self.class_seed is not None):
            yield "`groups` say which classes a task has; leave out `classes_per_task` and `class_seed`"
        if sets == 1 and self.tasks is None and self.classes_per_task is None and self.groups is None:
            yield "give `tasks`, `classes_per_task` or `groups` to split the data set, or several data sets"


def rate(default: float) -> Any:
    """The learning rate of a method."""
    return option(default=default, above=0, help="Peak learning rate.")


def passes() -> Any:
    """The epochs of a method."""
    return option(default=None, at_least=1, help="Passes over the images.", default_text="those of the run")
