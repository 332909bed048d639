"""`brickwork train ARCH DATA --out FOLDER`."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.cli.common import (
    ArgsOption,
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    OutOption,
    SeedOption,
    emit,
    log,
    parse_args,
)


class CutBy(StrEnum):
    """What is held at zero between two classes."""

    covariance = "covariance"
    coefficient = "coefficient"


FROM_RECIPE = "Default: the architecture's recipe."


def command(
    arch: Annotated[str, typer.Argument(help="lenet, vgg16, timm:resnet18, package.module:factory, …")],
    data: Annotated[str, typer.Argument(help="digits:A, cifar10@100, a folder, an .npz, hfds:NAME, …")],
    out: OutOption,
    arg: ArgsOption = None,
    epochs: Annotated[int | None, typer.Option(help=FROM_RECIPE)] = None,
    batch_size: Annotated[int | None, typer.Option(help=FROM_RECIPE)] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate. " + FROM_RECIPE)] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd, adam or adamw. " + FROM_RECIPE)] = None,
    schedule: Annotated[
        str | None, typer.Option(help="onecycle (default), cosine, milestones or constant.")
    ] = None,
    milestones: Annotated[
        str | None, typer.Option(help="Epochs at which the rate falls to a tenth, e.g. 30,45.")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help=FROM_RECIPE)] = None,
    momentum: Annotated[float | None, typer.Option(help="Of sgd; default 0.9.")] = None,
    nesterov: Annotated[bool | None, typer.Option(help="Of sgd; default on.", show_default=False)] = None,
    label_smoothing: Annotated[float | None, typer.Option(help=FROM_RECIPE)] = None,
    augment: Annotated[
        str | None, typer.Option(help="none, flip, crop or crop+flip; default: what suits the data.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="float32 or bf16; default: bf16 on a GPU, else float32.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Height and width of the images; default: the architecture's.")
    ] = None,
    cut: Annotated[
        list[str] | None,
        typer.Option("--cut", metavar="A:B", help="Keep two classes' logits uncorrelated (repeatable)."),
    ] = None,
    cut_strength: Annotated[
        float | None, typer.Option(help="Weight of --cut in the loss; default 1.")
    ] = None,
    cut_by: Annotated[
        CutBy,
        typer.Option(help="What --cut holds at zero: the paper's covariance, or CovLasso's coefficient."),
    ] = CutBy.covariance,
    compile: Annotated[bool, typer.Option("--compile", help="Compile the model with torch.compile.")] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder for a checkpoint after each epoch; the same command resumes.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the checkpoint, if there is one.")] = True,
    metrics: Annotated[Path | None, typer.Option(help="File for one line of JSON an epoch.")] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Folder for TensorBoard curves.")] = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Train an architecture on a data set and save a model folder.

    brickwork train lenet digits:A --out a
    """
    from brickwork import data as images_of
    from brickwork.atomic import check_output
    from brickwork.devices import pick
    from brickwork.training import settings_for

    given: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "optimizer": optimizer,
        "schedule": schedule,
        "milestones": _milestones(milestones),
        "weight_decay": weight_decay,
        "momentum": momentum,
        "nesterov": nesterov,
        "label_smoothing": label_smoothing,
        "augment": augment,
        "precision": precision,
        "seed": seed,
    }
    # Everything that can be refused is refused here, before an image is read.
    check_output(out, force=force)
    where = pick(str(device))
    spec = images_of.check(data, size=size)
    settings_for(arch, 1000, spec.source, **given)
    args, shape = _shape(arch, parse_args(arg), size)
    pairs = _pairs(cut, cut_strength)

    images = images_of.load(spec, seed=seed, size=shape[1:], channels=shape[0])
    penalty, links = _penalty(pairs, cut_strength, str(cut_by), images, arch)
    settings = settings_for(arch, len(images.train_images), spec.source, **given)
    model, found, result = _train(
        arch, args, images, settings, compile=compile, device=where, checkpoint=checkpoint, resume=resume,
        metrics=metrics, tensorboard=tensorboard, penalty=penalty,
    )  # fmt: skip
    if int(os.environ.get("RANK", "0")):  # under torchrun, the first process alone writes and prints
        return
    from brickwork import store

    provenance = {
        "command": "train",
        "data": str(spec),
        "settings": settings.to_dict() | {"milestones": list(settings.milestones)},
        "seconds": round(result.seconds, 2),
        "test_accuracy": found.accuracy,
        **links,
    }
    store.save(model, out, force=force, provenance=provenance)
    report = {
        "folder": str(out),
        "arch": arch,
        "data": str(spec),
        **links,
        **result.to_dict(),
        "test": found.to_dict(),
    }
    text = f"{found}\ntrained {len(result.history)} epochs in {result.seconds:.1f} s; saved in {out}"
    emit(report, text, as_json=as_json)


def _train(
    arch: str, args: dict[str, Any], images: Any, settings: Any, **options: Any
) -> tuple[Any, Any, Any]:
    from brickwork import zoo
    from brickwork.errors import BadData
    from brickwork.evaluation import evaluate_data
    from brickwork.training import train

    segments = arch in zoo.REGISTRY and zoo.REGISTRY[arch].task == "segment"
    if segments and images.train_masks is None:
        raise BadData(f"{arch} needs masks to train on, and {images.name} has none.")
    classes = images.mask_classes if segments else images.classes
    model = zoo.build(arch, seed=settings.seed, **args, num_classes=len(classes))
    log(f"training {arch} on {images}: {settings.epochs} epochs, batch {settings.batch_size} …")
    try:
        result = train(
            model,
            images.train_images,
            images.train_labels,
            masks=images.train_masks if segments else None,
            classes=classes,
            **settings.to_dict(),
            **options,
        )
    except KeyboardInterrupt:
        if options["checkpoint"] is not None:
            log(f"the last whole epoch is in {options['checkpoint']}; the same command goes on from there.")
        raise
    return model, evaluate_data(model, images), result


def _pairs(cut: list[str] | None, strength: float | None) -> list[tuple[str, str]]:
    """Read --cut, and refuse what can be refused without the names of the classes."""
    from brickwork.errors import RequestError

    if not cut:
        if strength is not None:
            raise RequestError("--cut-strength needs --cut A:B, the classes to keep apart.")
        return []
    from brickwork.dependencies.cutting import CovariancePenalty, parse_pair

    pairs = [parse_pair(text) for text in cut]
    for pair in pairs:
        CovariancePenalty(pair, classes=pair, strength=1.0 if strength is None else strength)
    return pairs


def _penalty(
    pairs: list[tuple[str, str]], strength: float | None, by: str, images: Any, arch: str
) -> tuple[Any, Any]:
    """The loss term of --cut, and what the folder records of it."""
    if not pairs:
        return None, {}
    from brickwork import zoo
    from brickwork.dependencies.partial import PENALTIES

    weight = 1.0 if strength is None else strength
    segments = arch in zoo.REGISTRY and zoo.REGISTRY[arch].task == "segment"
    penalty = PENALTIES[by](
        pairs, classes=images.mask_classes if segments else images.classes, strength=weight
    )
    return penalty, {"cut": {"pairs": [f"{a}:{b}" for a, b in pairs], "by": by, "strength": weight}}


def _shape(arch: str, args: dict[str, Any], size: int | None) -> tuple[dict[str, Any], tuple[int, int, int]]:
    """Arguments and input shape (channels, height, width) of the architecture; no weights are made."""
    import torch

    from brickwork import zoo
    from brickwork.errors import RequestError
    from brickwork.origin import origin_of

    if "num_classes" in args:
        raise RequestError("num_classes comes from the data; select classes there, as in digits:0-4.")
    if arch in zoo.REGISTRY and size is not None and "image_size" in zoo.REGISTRY[arch].defaults:
        args = {"image_size": size, **args}
    with torch.device("meta"):
        shape = origin_of(zoo.build(arch, **args)).input_shape or (3, 32, 32)
    return args, (shape[0], size or shape[1], size or shape[2])


def _milestones(text: str | None) -> tuple[int, ...] | None:
    from brickwork.errors import RequestError

    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise RequestError(f"milestones are {text!r}; they must be epochs, as in 30,45.") from None
