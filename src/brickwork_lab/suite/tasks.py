"""The eight tasks: which files hold them, which images of them are learned from, which choose and which judge.

Images are 64 pixels wide. A smoke run has stand-ins: both halves of the embedded digits, turned by 0, 90, 180 and 270 degrees.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from brickwork import data
from brickwork.data.images import ImageData, drawn_images, hold_out
from brickwork.data.named import OFFICIAL, data_folder
from brickwork.errors import BadFile, UnknownName
from brickwork_lab.lab import Lab

SIDE = 64
#: task: the named sets it is made of
SETS: dict[str, tuple[str, ...]] = {
    "pets": ("pets",),
    "flowers102": ("flowers102",),
    "cub200": ("cub200",),
    "cars196": ("cars196",),
    "gtsrb": ("gtsrb",),
    "caltech101": ("caltech101",),
    "pacs": ("pacs_photo", "pacs_art_painting", "pacs_cartoon", "pacs_sketch"),
    "cifar100": ("cifar100",),
}
#: tasks whose classes are not the same in a mirror
ONE_WAY = ("gtsrb", *(f"digits-{half}-{turn}" for half in "AB" for turn in (0, 90, 180, 270)))
STAND_INS = ONE_WAY[1:]


@dataclass(frozen=True)
class Task:
    """One task's images, all uint8 (N, H, W, C): to learn from, to choose on (held out of training), to judge on."""

    name: str
    classes: tuple[str, ...]
    train: tuple[np.ndarray, np.ndarray]
    held: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]

    @property
    def flips(self) -> bool:
        return self.name not in ONE_WAY

    @property
    def digest(self) -> str:
        """Of what is learned from."""
        state = hashlib.sha256(self.name.encode())
        for part in self.train:
            state.update(np.ascontiguousarray(part).tobytes())
        return state.hexdigest()

    def unlabelled(self, count: int, seed: int) -> np.ndarray:
        """At most so many of the training images; those of a smaller count are among those of a larger one.

        They are mixed: files are sorted by class or style, and batch-norm statistics are measured batch by batch.
        """
        return self.train[0][np.random.default_rng([seed, 29]).permutation(len(self.train[0]))[:count]]


def load_tasks(lab: Lab, names: Sequence[str] | None = None, images: int | None = None) -> list[Task]:
    """The tasks by name, all of them without; at most so many training images of each and half as many that judge."""
    chosen = {name: SETS.get(name, ()) for name in task_names(lab, names)}
    if lab.full:
        refuse_missing([part for parts in chosen.values() for part in parts])
    return [_task(lab, name, parts, images) for name, parts in chosen.items()]


def task_names(lab: Lab, asked: Sequence[str] | None = None) -> list[str]:
    """Those that are asked for, all of them without, in the suite's order."""
    known = tuple(SETS) if lab.full else STAND_INS
    for name in asked or ():
        if name not in known:
            raise UnknownName("task", name, known)
    return [name for name in known if not asked or name in asked]


def refuse_missing(sets: Sequence[str]) -> None:
    """One sentence that names every file that is not there and cannot be downloaded."""
    folder = data_folder()
    missing = [f"{name}.npz" for name in sets if name not in OFFICIAL and not (folder / f"{name}.npz").is_file()]
    if missing:
        raise BadFile(
            f"{folder} (the data folder, $BRICKWORK_DATA) has no {', '.join(missing)}; write each with the arrays "
            "train_images (N, H, W, 3) uint8, train_labels, test_images, test_labels and classes, as "
            "../shared/tools/prepare_data.py and prepare_repo_data.py do, or name the tasks that are there with `set`."
        )


def _task(lab: Lab, name: str, parts: Sequence[str], images: int | None) -> Task:
    whole = _sized(lab, parts, images) if lab.full else _turned(name)
    use, held = hold_out(whole.train_labels, key=(lab.seed, 17))
    pixels, labels = whole.train_images, whole.train_labels
    return Task(
        name,
        tuple(whole.classes),
        (pixels[use], labels[use]),
        (pixels[held], labels[held]),
        (whole.test_images, whole.test_labels),
    )


def _sized(lab: Lab, parts: Sequence[str], images: int | None) -> ImageData:
    """At most so many images of every part, drawn with the seed (those that judge always the same), 64 pixels wide."""
    found = []
    for part in parts:
        whole = replace(data.load(part, progress=lab.progress), train_masks=None, test_masks=None)
        share = len(whole.train_labels) if images is None else -(-images // len(parts))
        judges = len(whole.test_labels) if images is None else -(-images // 2 // len(parts))
        whole = whole.draw(share, lab.seed)
        tests = (drawn_images(array, judges, 0) for array in (whole.test_images, whole.test_labels))
        pixels, labels = (np.asarray(array) for array in tests)
        found.append(replace(whole, test_images=pixels, test_labels=labels).fit(size=SIDE, channels=3))
    if len({some.classes for some in found}) > 1:
        raise BadFile(f"{', '.join(parts)} do not have the same classes in the same order; they make one task.")
    joined: dict[str, Any] = {
        field: np.concatenate([np.asarray(getattr(some, field)) for some in found])
        for field in ("train_images", "train_labels", "test_images", "test_labels")
    }
    return replace(found[0], **joined)


def _turned(name: str) -> ImageData:
    _, half, turn = name.split("-")
    whole = data.load(f"digits:{half}", size=16, channels=1).take(20).take(10, split="test")
    turned: dict[str, Any] = {
        f: np.rot90(getattr(whole, f), int(turn) // 90, (1, 2)).copy() for f in ("train_images", "test_images")
    }
    return replace(whole, **turned)
