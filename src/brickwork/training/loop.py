"""One training function for classifiers and segmenters."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.atomic import check_file
from brickwork.data.datasets import TorchData, unpacked
from brickwork.data.images import ImageData
from brickwork.data.pixels import check_raw, fitted, measure, normalise, resize_masks
from brickwork.data.streamed import Images, StreamedImages, tensor_of, unread
from brickwork.devices import DeviceLike, device_of, pick
from brickwork.errors import BadData, BadModel, RequestError
from brickwork.evaluation import evaluate
from brickwork.forward_fault import explained
from brickwork.options import takes
from brickwork.origin import Preprocessing, attach, origin_of, record_step
from brickwork.outputs import are_probabilities, in_rows, logits_of
from brickwork.prediction import eval_mode, precision_of, works_channels_last
from brickwork.progress import bar
from brickwork.training import checkpoint as checkpoints
from brickwork.training.augment import Batches
from brickwork.training.journal import Journal
from brickwork.training.options import RunningOptions, TrainHooks, TrainOptions
from brickwork.training.processes import join_processes
from brickwork.training.recipes import resolve
from brickwork.training.result import TrainingResult
from brickwork.training.run import Run, cross_entropy, make_optimizer, several_labels, tuned
from brickwork.words import counted, some_of


@takes(options=TrainOptions, running=RunningOptions, hooks=TrainHooks)
def train(
    model: nn.Module,
    data: ImageData | Images | TorchData | tuple[Images, Any],
    labels: np.ndarray | Tensor | None = None,
    *,
    masks: np.ndarray | Tensor | None = None,
    classes: Sequence[str] | None = None,
    preprocessing: Preprocessing | None = None,
    device: DeviceLike | None = None,
    progress: bool = True,
    options: TrainOptions,
    running: RunningOptions,
    hooks: TrainHooks,
) -> TrainingResult:
    """Train a model in place: the module given is changed, moved to `device` and returned in the result.

    data: an ImageData, whose training split is used (its masks where `masks` are asked for), images with `labels`, a pair
    or a torch Dataset or DataLoader of both. Images are uint8 (N, H, W, C), prepared with the model's preprocessing (measured
    here and attached if it has none), or floating (N, C, H, W), taken as they are. What is left None comes from the
    architecture's recipe. `masks` (N, H, W) train a segmenter; labels (N, classes) of 0 and 1 a network of several labels an
    image. Floating labels go to a `loss` of your own, in the network's precision and else as they are. A recorded step is
    several times as fast for small batches; only for a network that does the same in every forward pass, and without effect
    off CUDA. Under torchrun, `batch_size` counts all processes together.

    >>> from brickwork import data, zoo
    >>> model = zoo.build("lenet", num_classes=5, seed=0)
    >>> result = train(model, data.load("digits:A@20", size=8), epochs=1)
    >>> result.history[0]["epoch"]
    1
    """
    record, penalty, before_step = running.record, hooks.penalty, hooks.before_step
    checkpoint = running.checkpoint
    if record and running.compile:
        raise RequestError("a recorded step cannot be compiled as well; leave one of them out.")
    if running.metrics is not None:
        try:
            check_file(running.metrics, force=True)  # known now, not after the first epoch
        except RequestError as error:
            raise RequestError(error.template.replace("`out`", "`metrics`")) from error
    images, labels, classes, source = _taken(data, labels, classes)
    origin = origin_of(model)
    settings = resolve(options, origin.arch, len(images), source)
    if settings.precision == "bf16" and precision_of(model) == torch.float64:
        raise RequestError(
            "`precision` is 'bf16' and the network is in float64; give model.float(), or leave it at 'auto'."
        )
    processes = join_processes(pick(device, of=model), settings.batch_size)
    pixels, prepared = _pixels(images, preprocessing or origin.preprocessing)
    size = (pixels.shape[1], pixels.shape[2])
    targets, areas, kind = _targets(labels, masks, len(images), size, own_loss=hooks.loss is not None)
    plain = several_labels if kind == "several" else cross_entropy
    if kind == "numbers" and targets is not None:
        targets = targets.to(precision_of(model) or targets.dtype)  # NumPy's are float64 unless one says otherwise
    named = (data.name, classes) if isinstance(data, ImageData) and classes is not None else None
    if areas is None and (named is not None or hooks.loss is None):
        _check_outputs(model, _two(pixels, prepared, model), named, kind if hooks.loss is None else None)
    shape = (pixels.shape[3], *pixels.shape[1:3])
    attach(
        model,
        replace(
            origin,
            preprocessing=prepared,
            input_shape=shape,
            classes=tuple(classes) if classes is not None else origin.classes,
        ),
    )
    facts = {"settings": settings.to_dict(), "data": ""}
    stored = None
    if checkpoint is not None:
        facts["data"] = checkpoints.fingerprint(pixels, targets, areas)
        stored = checkpoints.read_facts(checkpoint) if running.resume else None
        if stored is not None:
            checkpoints.refuse_other_run(checkpoint, stored, facts)

    model.to(processes.device)
    channels_last = running.channels_last
    if channels_last is None:
        channels_last = processes.device.type == "cuda" and works_channels_last(model, _two(pixels, prepared, model))
    if channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise BadModel("every parameter of the model is frozen; there is nothing to train.")
    updater = make_optimizer(parameters, settings, processes.device)
    history: list[dict[str, Any]] = []
    if stored is not None and checkpoint is not None:
        checkpoints.restore(checkpoint, model, updater)
        history = stored["history"]
    start = len(history)

    run = Run(
        settings=settings,
        processes=processes,
        batches=Batches(
            pixels if isinstance(pixels, StreamedImages) else pixels.to(processes.device),
            None if targets is None else targets.to(processes.device),
            None if areas is None else areas.to(processes.device),
            augment=settings.augment,
            device=processes.device,
        ),
        preprocessing=prepared,
        memory_format=torch.channels_last if channels_last else torch.contiguous_format,
        loss=hooks.loss or plain(settings.label_smoothing),
        kind=kind,
        half=settings.precision == "bf16" or (settings.precision == "auto" and processes.device.type == "cuda"),
        precision=precision_of(model),
        penalty=penalty,
        before_step=before_step,
        record=record and processes.device.type == "cuda" and processes.size == 1,
    )
    began = time.perf_counter()
    journal = Journal(running.metrics, running.tensorboard, history) if processes.rank == 0 else None
    modes = [(module, module.training) for module in model.modules()]
    try:
        with (
            tuned(processes.device),
            bar("training", settings.epochs, show=progress and processes.rank == 0) as advance,
        ):
            advance(start)
            wrapped, stepper = processes.wrap(torch.compile(model) if running.compile else model, updater)  # type: ignore[arg-type]
            for epoch in range(start, settings.epochs):
                model.train()
                row = run.epoch(epoch, wrapped, stepper)
                if hooks.validation is not None:
                    row |= _validate(model, hooks.validation)
                history = [*history, row]
                if processes.rank == 0:
                    if journal is not None:
                        journal.add(row)
                    if checkpoint is not None:
                        checkpoints.save(checkpoint, model, updater, {**facts, "history": history})
                processes.wait()
                hits = f", accuracy {row['accuracy']:.1%}" if "accuracy" in row else ""
                advance(1, f"loss {row['loss']:.4f}{hits}")
    finally:
        for module, mode in modes:
            module.training = mode
        if journal is not None:
            journal.close()
    if settings.epochs:  # a run that was refused or stopped says nothing of the model
        _set_aside(model, settings, data.name if isinstance(data, ImageData) else None)
    return TrainingResult(model, settings, history, time.perf_counter() - began, start)


def _taken(data: Any, labels: Any, classes: Sequence[str] | None) -> tuple[Any, Any, Sequence[str] | None, str | None]:
    """Images, labels, class names, and the name of the data set where it has one."""
    if data is None:
        raise BadData("there are no images; give an ImageData, images with `labels`, or a Dataset of both.")
    if not isinstance(data, ImageData):
        return *unpacked(data, labels, classes), None
    if labels is not None:
        raise BadData(f"{data.name} brings its own labels; leave `labels` out, or give arrays.")
    return data.train_images, data.train_labels, classes or data.classes, data.source


def _set_aside(model: nn.Module, settings: TrainOptions, data: str | None) -> None:
    """What was said of the model before (its accuracy, say) moves aside; a brick stays one, and is said to be trained."""
    brick = origin_of(model).provenance.get("brick")
    record_step(model, "train", settings.to_dict())
    if data is not None:
        origin = origin_of(model)
        attach(model, replace(origin, provenance={**origin.provenance, "data": data}))
    if isinstance(brick, dict):
        trained = {**brick, "used": {**brick.get("used", {}), "trained": True}}
        origin = origin_of(model)
        attach(model, replace(origin, provenance={**origin.provenance, "brick": trained}))


def _check_outputs(model: nn.Module, images: Tensor, named: tuple[str, Sequence[str]] | None, kind: str | None) -> None:
    """Refuse a classifier with other outputs than there are classes, or than its loss takes.

    named: the data set, and its classes. kind: of the labels; None: the loss is the caller's own.
    """
    with eval_mode(model), torch.no_grad(), explained():
        given = logits_of(model(images))
    logits = in_rows(given)
    if kind == "several" and given.ndim == 1:
        raise BadModel(
            "the network answers one number an image without an axis for it; let its forward keep that (no squeeze), or give "
            "a `loss` of your own."
        )
    if logits.ndim == 2 and named is not None and logits.shape[1] != len(named[1]):
        data, classes = named
        raise BadModel(
            f"the network has {counted(logits.shape[1], 'output')} and {data} {counted(len(classes), 'class')} "
            f"({some_of(classes, 5)}); build it with as many outputs, or select as many classes, as in digits:0-4."
        )
    if kind == "classes" and logits.shape[1:] == (1,):
        raise BadModel(
            "the network has one output, and cross-entropy teaches it nothing: there is no other class; give the labels as "
            "(N, 1) of 0 and 1, as in labels[:, None], or the network two outputs."
        )
    if kind == "classes" and are_probabilities(logits):
        raise BadModel(
            "the network's outputs sum to 1, as behind a softmax, and cross-entropy takes logits; take the softmax away "
            "(nn.Identity() in its place), or give a `loss` of your own."
        )


def _pixels(
    images: Images, preprocessing: Preprocessing | None
) -> tuple[Tensor | StreamedImages, Preprocessing | None]:
    """Images as (N, H, W, C): uint8 with the preprocessing they still need, or floating with None."""
    given = unread(images)
    if len(given) == 0:
        raise BadData("there are no images to train on.")
    if given.is_floating_point():
        if given.ndim != 4:
            raise BadData(f"images are {tuple(given.shape)}; network input is (N, C, H, W).")
        return _changed(given, lambda tensor: tensor.permute(0, 2, 3, 1)), None
    check_raw(given)
    if preprocessing is None:
        measured = measure(given if isinstance(given, StreamedImages) else given.cpu().numpy())
        return _changed(given, lambda tensor: tensor), measured
    prepared = preprocessing
    return _changed(given, lambda t: fitted(t.permute(0, 3, 1, 2), prepared).permute(0, 2, 3, 1)), preprocessing


def _changed(images: Tensor | StreamedImages, change: Callable[[Tensor], Tensor]) -> Tensor | StreamedImages:
    """Every image changed: now, or when it is read."""
    if isinstance(images, StreamedImages):
        return images.mapped(lambda part: change(torch.from_numpy(part)).contiguous().numpy())
    return change(images).contiguous()


def _two(pixels: Tensor | StreamedImages, preprocessing: Preprocessing | None, model: nn.Module) -> Tensor:
    """Two of the images as the network is given them."""
    planes = tensor_of(pixels[:2]).permute(0, 3, 1, 2).contiguous().to(device_of(model))
    given = planes if preprocessing is None else normalise(planes, preprocessing)
    return given.to(precision_of(model) or given.dtype)


def _targets(
    labels: Any, masks: Any, count: int, size: tuple[int, int], *, own_loss: bool
) -> tuple[Tensor | None, Tensor | None, str]:
    """Labels and masks as tensors, checked against the images, and what kind of labels they are (`Run.kind`)."""
    if labels is None and masks is None:
        raise BadData("training needs labels or masks.")
    given = None if labels is None else tensor_of(labels)
    kind = "classes" if masks is not None else _kind(given, own_loss)
    if kind == "classes" and given is not None and (given.is_floating_point() or given.is_complex()):
        raise BadData(
            f"labels are {str(given.dtype).removeprefix('torch.')}; they must be whole numbers, one class an image from 0, or "
            "(N, classes) of 0 and 1 for several labels an image. For what is to be regressed give a `loss` of your own, "
            "which gets them as they are."
        )
    if kind == "classes":
        targets = None if given is None else given.long()
    else:
        assert given is not None
        targets = given.float() if kind == "several" else given
        if len(targets) != count:
            raise BadData(f"labels are {tuple(targets.shape)} for {count} images.")
    if targets is not None and kind == "classes" and (targets.shape != (count,) or int(targets.min()) < 0):
        raise BadData(f"labels are {tuple(targets.shape)} for {count} images; one class number an image, from 0.")
    areas = None if masks is None else tensor_of(masks)
    if areas is not None:
        if areas.ndim != 3 or len(areas) != count:
            raise BadData(f"masks are {tuple(areas.shape)} for {count} images; (N, H, W) class numbers are needed.")
        if tuple(areas.shape[1:]) != size:
            areas = resize_masks(areas, size)
    return targets, areas, kind


def _kind(labels: Tensor | None, own_loss: bool) -> str:
    """ "several": 0 and 1 for every class; "numbers": floating, for the caller's own loss; "classes": all else."""
    if labels is None or labels.is_complex():
        return "classes"
    if labels.ndim == 2 and not own_loss and bool(((labels == 0) | (labels == 1)).all()):
        return "several"
    return "numbers" if labels.is_floating_point() and own_loss else "classes"


def _validate(model: nn.Module, validation: tuple[Any, ...]) -> dict[str, float]:
    images, labels, *masks = validation
    result = evaluate(model, images, labels, masks=masks[0] if masks else None)
    row = {"validation_loss": result.nll, "validation_accuracy": result.accuracy}
    return row if result.mean_iou is None else row | {"validation_iou": result.mean_iou}
