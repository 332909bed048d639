"""`brickwork distil STUDENT --teacher … --data … --out DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.cli.brick_options import (
    AugmentOption,
    BatchSizeOption,
    DataOption,
    EpochsOption,
    LrOption,
    OptimizerOption,
)
from brickwork.cli.common import (
    ArchOption,
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    OutOption,
    SeedOption,
    emit,
)
from brickwork.errors import RequestError


def command(
    student: Annotated[Path, typer.Argument(metavar="STUDENT", help="A model folder, best cut from the teachers.")],
    teacher: Annotated[
        list[Path], typer.Option(help="A model folder that knows some of the classes; repeatable.", show_default=False)
    ],
    data: DataOption,
    out: OutOption,
    labels: Annotated[bool, typer.Option(help="Learn from the labels too, or from the teachers alone.")] = True,
    temperature: Annotated[float, typer.Option(help="How soft the teachers' answers are.")] = 2.0,
    hard: Annotated[
        float | None, typer.Option(help="Weight of the labels; the teachers get the rest. Default: 0.5.")
    ] = None,
    epochs: EpochsOption = 1,
    lr: LrOption = 0.01,
    batch_size: BatchSizeOption = 128,
    optimizer: OptimizerOption = "sgd",
    augment: AugmentOption = "none",
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Train a student towards what its teachers answer; student and teachers stay as they are.

    brickwork distil small --teacher a --data digits:A --no-labels --out taught
    """
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.bricks import distil
    from brickwork.bricks.distillation import teacher_columns
    from brickwork.cli.brick_folders import accuracy, before_and_after, check_training, images_for, save
    from brickwork.devices import pick

    # Everything that can be refused is refused here, before a tensor or an image is read.
    check_output(out, force=force)
    where = pick(str(device))
    _check_numbers(temperature, hard, labels)
    config, others = store.read_config(student), [store.read_config(folder) for folder in teacher]
    training = check_training(
        config.arch, epochs=epochs, lr=lr, batch_size=batch_size, optimizer=optimizer, augment=augment, seed=seed
    )
    teacher_columns(config.origin().classes, [other.origin().classes for other in others])
    spec = images_of.check(data)

    pupil = store.load(student, arch=arch, device=where)
    images = images_for(pupil, spec, seed)
    answers = _numbers(pupil, images) if labels else None
    options: dict[str, Any] = {} if hard is None else {"hard": hard}
    found = distil(
        pupil,
        [store.load(folder, arch=arch, device=where) for folder in teacher],
        images.train_images,
        answers,
        temperature=temperature,
        **options,
        **training,
    )
    judged = {"before": accuracy(pupil, images), "after": accuracy(found.model, images)}
    facts = {
        "data": str(spec),
        "source": config.weights.state_hash,
        "teachers": [other.weights.state_hash for other in others],
        "test_accuracy": judged["after"],
    }
    save(found.model, out, force=force, command="distil", **facts)
    report = {"folder": str(out), "student": str(student), "teachers": list(map(str, teacher)), "data": str(spec)}
    text = f"{found.training}\n{before_and_after(**judged)}\nsaved in {out}"
    emit({**report, **judged, **found.to_dict()}, text, as_json=as_json)


def _check_numbers(temperature: float, hard: float | None, labels: bool) -> None:
    if not temperature > 0:
        raise RequestError(f"temperature is {temperature:g}; it must be above 0.")
    if hard is not None and not 0 <= hard <= 1:
        raise RequestError(f"hard is {hard:g}; it must be 0 to 1.")
    if hard is not None and not labels:
        raise RequestError("--hard weighs the labels, and --no-labels leaves them out; give one of them.")


def _numbers(model: Any, images: Any) -> Any:
    """The labels of the training images as numbers of the student's classes."""
    import torch

    from brickwork.bricks.samples import take_in
    from brickwork.origin import origin_of

    known = origin_of(model).classes
    return take_in(
        images,
        known or images.classes,
        known is not None,
        preprocessing=None,
        device=torch.device("cpu"),
        dtype=torch.float32,
        seed=0,
    ).labels
