"""A repaired part, trained for some minutes towards the whole network's answers, on images without labels."""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from brickwork.bricks.cut import LogitsAlone
from brickwork.bricks.distillation import distil
from brickwork.bricks.judge import Judge
from brickwork.bricks.subject import Subject
from brickwork.errors import BadData
from brickwork.origin import Origin, Preprocessing, attach
from brickwork.training.recipes import default_augment

TEMPERATURE = 4.0
BATCH = 128
TIMED = 12  # batches that are timed first
MOST = 60  # epochs: more of them on few images learn those by heart


def _unscaled(images: Tensor) -> Preprocessing:
    """What `as_input` does with images of a network that says nothing: 0 to 1."""
    height, width, channels = images.shape[1:]
    return Preprocessing((height, width), channels, (0.0,) * channels, (1.0,) * channels)


def check_polish(subject: Subject, judge: Judge) -> None:
    """Refuse before anything is cut what cannot be polished."""
    if judge.before is None:
        raise BadData("there are no images to judge a `polish` by; give more data, or leave it out.")
    if subject.samples.images.ndim != 4:
        shape = tuple(subject.samples.images.shape)
        raise BadData(f"`polish` trains on images, and these inputs are {shape}; leave it out.")


def polish(
    part: nn.Module, subject: Subject, judge: Judge, minutes: float, *, source: str | None, seed: int, progress: bool
) -> tuple[nn.Module, dict[str, Any]]:
    """The part after some minutes of distillation, and which of the two is the better one on the images that judge.

    A network with batch norms learns by SGD, another one by AdamW; how many epochs fit into the time is measured.
    """
    samples = subject.samples
    teacher = LogitsAlone(subject.whole, subject.bp.output, subject.wanted)
    student = LogitsAlone(copy.deepcopy(part), subject.bp.output)
    raw = not samples.images.is_floating_point()
    for net in (teacher, student):
        attach(net, Origin(preprocessing=samples.preprocessing or _unscaled(samples.images) if raw else None))
    normed = any(isinstance(module, _BatchNorm) for module in part.modules())
    how: dict[str, Any] = {"optimizer": "sgd", "lr": 0.02} if normed else {"optimizer": "adamw", "lr": 3e-4}
    how |= {"temperature": TEMPERATURE, "batch_size": BATCH, "weight_decay": 5e-4 if normed else 0.01, "seed": seed}
    how["augment"] = default_augment(source) if raw else "none"
    how["device"] = samples.device

    def learn(index: np.ndarray, epochs: int, show: bool) -> nn.Module:
        images = samples.images[torch.from_numpy(index)] if raw else samples.inputs(index)
        return distil(student, teacher, images, epochs=epochs, progress=show, **how).model

    some = samples.use[: BATCH * TIMED]
    learn(some[: 2 * BATCH], 1, False)  # whatever is made once is made here
    started = time.monotonic()
    learn(some, 1, False)
    pace = (time.monotonic() - started) / len(some)
    affordable = minutes * 60 / pace  # images
    index = samples.use
    if affordable < len(index):
        index = np.sort(np.random.default_rng([seed, 4]).permutation(index)[: max(BATCH, int(affordable))])
    epochs = max(1, min(MOST, int(affordable // len(index))))
    learned = learn(index, epochs, progress)
    assert isinstance(learned, LogitsAlone)
    before, after = judge.of(part), judge.of(learned.net)
    assert before is not None and after is not None  # `check_polish`
    facts = {"epochs": epochs, "images": len(index), "before": before, "after": after}
    return learned.net, {**facts, "kept": "after" if after >= before else "before"}
