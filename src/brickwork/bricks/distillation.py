"""`distil`: a student learns what one or several teachers answer, on images without labels (paper 2, §A.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.blueprint.parts import rescale_input
from brickwork.bricks.assembly import rescaling
from brickwork.bricks.brick import Brick
from brickwork.bricks.options import DistilOptions
from brickwork.copying import copy_module
from brickwork.data.datasets import images_of
from brickwork.data.streamed import Images
from brickwork.devices import DeviceLike, device_of, pick
from brickwork.errors import BadModel, RequestError
from brickwork.options import takes
from brickwork.origin import origin_of, record_step
from brickwork.outputs import logits_of, of_classes
from brickwork.training import TrainingResult, train


@dataclass(frozen=True)
class Distilled:
    """A trained copy of the student."""

    model: nn.Module = field(repr=False)
    options: DistilOptions
    training: TrainingResult = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        return self.training.to_dict()


@takes(DistilOptions)
def distil(
    student: nn.Module,
    teachers: Sequence[nn.Module | Brick] | nn.Module | Brick,
    images: Images,
    labels: np.ndarray | Tensor | None = None,
    *,
    device: DeviceLike | None = None,
    progress: bool = True,
    options: DistilOptions,
) -> Distilled:
    """A copy of `student` trained towards the teachers' answers; student and teachers are left unchanged.

    Every class of the student is looked up among the teachers' by name; without names, the teachers' logits side by
    side must be as many as the student's. labels: numbers of the student's classes; then cross-entropy counts `hard`
    and the teachers 1 − hard. Best started from parts cut out of the teachers (`disassemble`, `assemble`), which know
    most of it already.

    >>> _ = torch.manual_seed(0)
    >>> teacher = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    >>> x = torch.randn(64, 1, 4, 4)
    >>> found = distil(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), teacher, x, epochs=2, lr=0.1, progress=False)
    >>> found.training.history[1]["loss"] < found.training.history[0]["loss"]
    True
    """
    teachers = [teachers] if isinstance(teachers, nn.Module | Brick) else list(teachers)
    if not teachers:
        raise RequestError("distil needs at least one teacher.")
    images = images_of(images)  # a Dataset's labels are not used: they may not be the student's numbers
    where = pick(device, of=student)
    models = [copy_module(t.model if isinstance(t, Brick) else t).eval().to(where) for t in teachers]
    for model in models:
        model.requires_grad_(False)
    pupil = copy_module(student).to(where)
    models = [_seeing_alike(pupil, model) for model in models]
    columns = teacher_columns(origin_of(student).classes, [origin_of(m).classes for m in models])
    soft = _Soft(models, columns, options.temperature)
    weight = options.hard if labels is not None else 0.0

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits, target) * weight if weight else logits.new_zeros(())

    def penalty(images: Tensor, logits: Tensor, target: Tensor) -> Tensor:
        return (1 - weight) * soft(images, logits)

    answers = labels if labels is not None else np.zeros(len(images), np.int64)
    training = options.training(pupil)
    result = train(pupil, images, answers, device=where, loss=loss, penalty=penalty, progress=progress, **training)
    if labels is None:  # without labels the loop's accuracy says nothing
        for row in result.history:
            row.pop("accuracy", None)
    facts = {"teachers": len(models), "labels": labels is not None, **options.to_dict(), **training}
    record_step(pupil, "distil", facts, before=origin_of(student).provenance)
    return Distilled(pupil.eval().to(device_of(student)), options, result)


def teacher_columns(wanted: tuple[str, ...] | None, known: Sequence[tuple[str, ...] | None]) -> list[int] | None:
    """Where the student's classes stand among the teachers' logits side by side; None: they are the same.

    >>> teacher_columns(("cat", "car"), [("dog", "cat"), ("car",)])
    [1, 2]
    """
    if wanted is None or any(names is None for names in known):
        return None
    every = [name for names in known for name in names or ()]
    missing = [name for name in wanted if name not in every]
    if missing:
        raise BadModel(
            f"no teacher knows {', '.join(map(repr, missing[:10]))}; together they know {', '.join(every[:40])}."
        )
    return [every.index(name) for name in wanted]


def _seeing_alike(student: nn.Module, teacher: nn.Module) -> nn.Module:
    """One prepared batch goes to all: a teacher that normalises images otherwise has them rescaled first."""
    own, other = origin_of(student).preprocessing, origin_of(teacher).preprocessing
    if own is None or other is None or own == other:
        return teacher
    change = rescaling(own, other)
    if change is None:
        raise BadModel(
            f"student and teacher prepare images differently ({own} and {other}), and more than mean and spread; train "
            "them with the same size and channels."
        )
    return rescale_input(teacher, *change)


class _Soft:
    """Kullback-Leibler divergence from the teachers' soft answers, times temperature² (Hinton et al. 2015)."""

    def __init__(self, teachers: list[nn.Module], columns: list[int] | None, temperature: float) -> None:
        self.teachers, self.columns, self.temperature = teachers, columns, temperature

    def __call__(self, images: Tensor, logits: Tensor) -> Tensor:
        with torch.no_grad(), torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
            answers = torch.cat([logits_of(teacher(images)) for teacher in self.teachers], 1).float()
        if self.columns is not None:
            answers = answers[:, self.columns]
        if answers.shape != logits.shape:
            raise BadModel(
                f"the teachers give {answers.shape[1]} logits and the student {logits.shape[1]}; name their classes."
            )
        of_classes(logits)
        own, other = ((t.float() / self.temperature).log_softmax(1) for t in (logits, answers))
        return F.kl_div(own, other, log_target=True, reduction="batchmean") * self.temperature**2
