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
from brickwork.cli.train_start import Start, check_outputs, find_start, leave_untrained
from brickwork.words import counted


class CutBy(StrEnum):
    """What is held at zero between two classes."""

    covariance = "covariance"
    coefficient = "coefficient"


TRAINING, APART, RUNNING = "The training", "Classes kept apart", "How it runs"  # headings of the help
FROM_RECIPE = "Default: the architecture's recipe."


def command(
    arch: Annotated[
        str,
        typer.Argument(help="lenet, vgg16, timm:resnet18, package.module:factory, …, or a model folder to go on from."),
    ],
    data: Annotated[str, typer.Argument(help="digits:A, cifar10@100, a folder, an .npz, hfds:NAME, …")],
    out: OutOption,
    arg: ArgsOption = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=TRAINING, help="0 writes the network untrained, to start others from. " + FROM_RECIPE
        ),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(rich_help_panel=TRAINING, help=FROM_RECIPE)] = None,
    lr: Annotated[
        float | None, typer.Option(rich_help_panel=TRAINING, help="Peak learning rate. " + FROM_RECIPE)
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(rich_help_panel=TRAINING, help="sgd, adam or adamw. " + FROM_RECIPE)
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(rich_help_panel=TRAINING, help="onecycle (default), cosine, milestones or constant.")
    ] = None,
    milestones: Annotated[
        str | None,
        typer.Option(rich_help_panel=TRAINING, help="Epochs at which the rate falls to a tenth, e.g. 30,45."),
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(rich_help_panel=TRAINING, help=FROM_RECIPE)] = None,
    momentum: Annotated[float | None, typer.Option(rich_help_panel=TRAINING, help="Of sgd; default 0.9.")] = None,
    nesterov: Annotated[
        bool | None, typer.Option(rich_help_panel=TRAINING, help="Of sgd; default on.", show_default=False)
    ] = None,
    label_smoothing: Annotated[float | None, typer.Option(rich_help_panel=TRAINING, help=FROM_RECIPE)] = None,
    augment: Annotated[
        str | None,
        typer.Option(rich_help_panel=TRAINING, help="none, flip, crop or crop+flip; default: what suits the data."),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(rich_help_panel=TRAINING, help="float32 or bf16; default: bf16 on a GPU, else float32."),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Height and width of the images; default: the architecture's.")
    ] = None,
    cut: Annotated[
        list[str] | None,
        typer.Option(
            "--cut", rich_help_panel=APART, metavar="A:B", help="Keep two classes' logits uncorrelated (repeatable)."
        ),
    ] = None,
    cut_strength: Annotated[
        float | None, typer.Option(rich_help_panel=APART, help="Weight of --cut in the loss; default 1.")
    ] = None,
    cut_by: Annotated[
        CutBy,
        typer.Option(
            rich_help_panel=APART, help="What --cut holds at zero: the paper's covariance, or CovLasso's coefficient."
        ),
    ] = CutBy.covariance,
    compile: Annotated[
        bool, typer.Option("--compile", rich_help_panel=RUNNING, help="Compile the model with torch.compile.")
    ] = False,
    record: Annotated[
        bool,
        typer.Option(
            "--record", rich_help_panel=RUNNING, help="On a GPU: record one step and replay it; fast for small batches."
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=RUNNING, help="Folder for a checkpoint after each epoch; the same command resumes."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option(rich_help_panel=RUNNING, help="Go on from the checkpoint, if there is one.")
    ] = True,
    metrics: Annotated[
        Path | None, typer.Option(rich_help_panel=RUNNING, help="File for one line of JSON an epoch.")
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(rich_help_panel=RUNNING, help="Folder for TensorBoard curves.")
    ] = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Train an architecture, or go on from a model folder, and save a model folder.

    brickwork train lenet digits:A --out a

    brickwork train a digits:B --out ab
    """
    from brickwork import data as images_of
    from brickwork.atomic import check_output
    from brickwork.devices import pick
    from brickwork.errors import RequestError
    from brickwork.training import settings_for

    given: dict[str, Any] = {
        "epochs": epochs or None,
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
    if epochs is not None and epochs < 0:
        raise RequestError(
            f"--epochs is {epochs}; it must be 1 or more, or 0 to write the network untrained. Left out, it is the "
            "architecture's own."
        )
    check_output(out, force=force)
    where = pick(str(device))
    spec = images_of.check(data, size=size)
    start = find_start(arch, parse_args(arg), size)
    settings_for(start.arch, 1000, spec.source, **given)
    pairs = _pairs(cut, cut_strength)
    if epochs == 0 and (pairs or checkpoint):
        raise RequestError("--epochs 0 trains nothing; leave out --cut and --checkpoint.")

    images = images_of.load(spec, seed=seed, size=start.shape[1:], channels=start.shape[0])
    penalty, links = _penalty(pairs, cut_strength, str(cut_by), images, start.segments)
    settings = settings_for(start.arch, len(images.train_images), spec.source, **given)
    model, found, result = _train(
        start,
        images,
        settings,
        epochs == 0,
        compile=compile,
        record=record,
        device=where,
        checkpoint=checkpoint,
        resume=resume,
        metrics=metrics,
        tensorboard=tensorboard,
        penalty=penalty,
    )
    if not _first_process():
        return
    from brickwork import store

    if start.folder is not None:
        links["start"] = store.read_config(start.folder).weights.state_hash
    training = settings.to_dict() | {"milestones": list(settings.milestones)}
    provenance = {
        "command": "train",
        "data": str(spec),
        "settings": training | ({"epochs": 0} if epochs == 0 else {}),
        "seconds": round(result.seconds, 2),
        "test_accuracy": found.accuracy,
        **links,
    }
    store.save(model, out, force=force, provenance=provenance)
    report = {"folder": str(out), "arch": arch, "data": str(spec), **links, **result.to_dict(), "test": found.to_dict()}
    text = f"{found}\ntrained {counted(len(result.history), 'epoch')} in {result.seconds:.1f} s; saved in {out}"
    emit(report, text, as_json=as_json)


def _train(start: Start, images: Any, settings: Any, untrained: bool, **options: Any) -> tuple[Any, Any, Any]:
    from brickwork.errors import BadData
    from brickwork.evaluation import evaluate_data
    from brickwork.training import TrainingResult, train

    what = start.folder or start.arch
    if start.segments and images.train_masks is None:
        raise BadData(f"{what} needs masks to train on, and {images.name} has none.")
    classes = images.mask_classes if start.segments else images.classes
    model = start.network(classes, settings.seed)
    if not start.segments:
        check_outputs(model, images, classes)
    if untrained:
        leave_untrained(model, images, classes)
        model.to(options["device"])
        return model, evaluate_data(model, images), TrainingResult(model, settings, [], 0.0, 0)
    if _first_process():
        log(f"training {what} on {images}: {counted(settings.epochs, 'epoch')}, batch {settings.batch_size} …")
    try:
        result = train(
            model,
            images.train_images,
            images.train_labels,
            masks=images.train_masks if start.segments else None,
            classes=classes,
            **settings.to_dict(),
            **options,
        )
    except KeyboardInterrupt:
        if options["checkpoint"] is not None:
            log(f"the last whole epoch is in {options['checkpoint']}; the same command goes on from there.")
        raise
    return model, evaluate_data(model, images), result


def _first_process() -> bool:
    """Under torchrun, the first process alone writes and prints."""
    return os.environ.get("RANK", "0") == "0"


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
    pairs: list[tuple[str, str]], strength: float | None, by: str, images: Any, segments: bool
) -> tuple[Any, dict[str, Any]]:
    """The loss term of --cut, and what the folder records of it."""
    if not pairs:
        return None, {}
    from brickwork.dependencies.partial import PENALTIES

    weight = 1.0 if strength is None else strength
    penalty = PENALTIES[by](pairs, classes=images.mask_classes if segments else images.classes, strength=weight)
    return penalty, {"cut": {"pairs": [f"{a}:{b}" for a, b in pairs], "by": by, "strength": weight}}


def _milestones(text: str | None) -> tuple[int, ...] | None:
    from brickwork.errors import RequestError

    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise RequestError(f"milestones are {text!r}; they must be epochs, as in 30,45.") from None
