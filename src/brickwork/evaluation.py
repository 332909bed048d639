"""How good a classifier or segmenter is: accuracy, calibration, ranking, overlap."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from brickwork import data as data_sets
from brickwork.data.datasets import TorchData, class_names_of, is_dataset, pair_of_dataset
from brickwork.data.images import IGNORE, ImageData
from brickwork.data.streamed import Images, tensor_of, unread
from brickwork.devices import DeviceLike
from brickwork.errors import BadData, RequestError
from brickwork.html_table import rows_table
from brickwork.measures import auroc, average_precision, calibration_error, confusion_of, overlaps, shares
from brickwork.model_options import EvalOptions
from brickwork.options import takes
from brickwork.origin import check_module, origin_of
from brickwork.outputs import are_probabilities, in_rows
from brickwork.prediction import logit_batches, predict
from brickwork.words import counted, some_of, table

__all__ = ["Evaluation", "auroc", "calibration_error", "evaluate", "evaluate_data", "measure_logits", "predict"]


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found. Rows of `confusion` are the true classes, columns the predicted ones."""

    classes: tuple[str, ...]
    images: int
    accuracy: float  # of images; for segmentation, of pixels
    per_class: dict[str, float | None]  # accuracy on each class's own images (or pixels); None: it has none
    confusion: list[list[int]] = field(repr=False)
    nll: float
    calibration_error: float
    auroc: dict[str, float | None]  # one against the rest; None: all or no images are of the class
    iou: dict[str, float | None] | None = None  # segmentation only
    mean_iou: float | None = None
    note: str = ""  # what a reader of the numbers must know

    def to_dict(self) -> dict[str, Any]:
        """JSON values only; the segmentation entries only where there were masks."""
        result = {key: list(value) if isinstance(value, tuple) else value for key, value in self.__dict__.items()}
        if self.iou is None:
            del result["iou"], result["mean_iou"]
        else:
            result["pixel_accuracy"] = self.accuracy
            del result["auroc"]
        if not self.note:
            del result["note"]
        return result

    def _summary(self) -> list[tuple[str, str]]:
        rows = [("pixel accuracy" if self.iou else "accuracy", f"{self.accuracy:.2%}")]
        if self.mean_iou is not None:
            rows.append(("mean IoU", f"{self.mean_iou:.2%}"))
        return [*rows, ("NLL", f"{self.nll:.4f}"), ("calibration error", f"{self.calibration_error:.2%}")]

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        last = self.iou if self.iou is not None else self.auroc
        head = ["class", "count", "accuracy", "IoU" if self.iou is not None else "AUROC"]
        counts = [sum(row) for row in self.confusion]
        return head, [
            [name, str(count), _percent(self.per_class[name]), _percent(last[name])]
            for name, count in zip(self.classes, counts, strict=True)
        ]

    def __str__(self) -> str:
        head, rows = self._rows()
        width = max(len(row[0]) for row in [head, *rows])
        lines = [f"{row[0]:<{width}} {row[1]:>8} {row[2]:>9} {row[3]:>8}" for row in [head, *rows]]
        summary = ", ".join(f"{name} {value}" for name, value in self._summary())
        return "\n".join([f"{counted(self.images, 'image')}: {summary}", *lines, *self._notes()])

    def _notes(self) -> list[str]:
        return [f"note: {self.note}."] if self.note else []

    def confusion_table(self) -> str:
        """How often each class (a row) was taken for each (a column), as text."""
        rows = [[name, *row] for name, row in zip(self.classes, self.confusion, strict=True)]
        return table(["true \\ answered", *self.classes], rows)

    def plot(self, axes: Any = None) -> Any:
        """The confusion matrix, each row as shares of its class, drawn with matplotlib; the axes are returned."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(5, 4)).subplots()
        counts = np.array(self.confusion, float)
        drawn = axes.imshow(counts / np.maximum(counts.sum(1, keepdims=True), 1), vmin=0, vmax=1)
        axes.figure.colorbar(drawn, ax=axes)
        for set_ticks in (axes.set_xticks, axes.set_yticks):
            set_ticks(range(len(self.classes)), self.classes)
        axes.set(xlabel="answered", ylabel="true")
        return axes

    def _repr_html_(self) -> str:
        head, rows = self._rows()
        summary = ", ".join(f"{name} {value}" for name, value in self._summary())
        return rows_table(head, rows, lines=[f"{counted(self.images, 'image')}: {summary}", *self._notes()])


@dataclass(frozen=True)
class LabelsEvaluation(Evaluation):
    """What `evaluate` found where images have several labels. A label is answered where its logit is above 0.

    accuracy counts labels; rows of `confusion` are classes, columns: rightly not, wrongly, missed, rightly answered.
    """

    exact_match: float = 0.0  # share of the images of which every label is right
    average_precision: dict[str, float | None] = field(default_factory=dict)  # None: no image has the label
    mean_average_precision: float | None = None

    def _summary(self) -> list[tuple[str, str]]:
        rows = [("labels right", f"{self.accuracy:.2%}"), ("images all right", f"{self.exact_match:.2%}")]
        rows.append(("mean average precision", _percent(self.mean_average_precision)))
        return [*rows, *super()._summary()[1:]]

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        rows = zip(self.classes, self.confusion, strict=True)
        return ["class", "count", "AP", "AUROC"], [
            [name, str(row[2] + row[3]), _percent(self.average_precision[name]), _percent(self.auroc[name])]
            for name, row in rows
        ]

    def confusion_table(self) -> str:
        """Rightly not, wrongly, missed and rightly answered, for every class."""
        rows = [[name, *row] for name, row in zip(self.classes, self.confusion, strict=True)]
        return table(["class", "rightly not", "wrongly", "missed", "rightly"], rows)

    def plot(self, axes: Any = None) -> Any:
        """Average precision of every class, drawn with matplotlib; the axes are returned."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(5, 4)).subplots()
        axes.bar(self.classes, [value or 0.0 for value in self.average_precision.values()])
        axes.set(ylabel="average precision", ylim=(0, 1))
        return axes


@takes(EvalOptions)
def evaluate(
    model: nn.Module,
    data: ImageData | Images | TorchData | tuple[Images, Any],
    labels: np.ndarray | Tensor | None = None,
    *,
    classes: Sequence[str] | None = None,
    device: DeviceLike | None = None,
    masks: np.ndarray | Tensor | None = None,
    options: EvalOptions,
) -> Evaluation:
    """Measure a model on a data set, or on images and labels; with `masks` (N, H, W), a segmenter against them.

    data: an ImageData, a torch Dataset or DataLoader of images and labels, or images (N, H, W, C) with `labels` (or the pair of
    both): a class number an image, or (N, classes) of 0 and 1 where an image has several, which gives a LabelsEvaluation.

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
    >>> found = evaluate(nn.Identity(), logits, torch.tensor([0, 1, 1]), classes=["cat", "dog"])
    >>> round(found.accuracy, 3), found.confusion
    (0.667, [[1, 0], [1, 1]])
    """
    check_module(model)
    if isinstance(data, ImageData):
        if labels is not None or masks is not None or classes is not None:
            raise BadData(f"{data.name} brings its own labels, masks and classes; leave them out, or give arrays.")
        split = options.split or judged_split(model, data)
        return evaluate_data(model, data, split=split, device=device, options=options)
    named = None
    if is_dataset(data):
        if labels is not None or masks is not None:
            raise BadData("a Dataset brings its own labels; leave labels and masks out, or give arrays.")
        named = class_names_of(data)
        data, labels = pair_of_dataset(data, classes or origin_of(model).classes)
    elif labels is None and isinstance(data, tuple) and len(data) == 2:  # a pair, as what cuts networks takes it
        data, labels = data
    images, batch_size = cast(Images, data), options.batch_size
    if len(images) == 0:
        raise BadData("there are no images to evaluate on.")
    if labels is None and masks is None:
        raise BadData("images alone cannot be evaluated on; give labels, masks or an ImageData.")
    if masks is not None:
        if options.restrict is not None:
            raise RequestError("`restrict` is for classifiers, and there are masks; leave it out.")
        return _evaluate_masks(model, images, tensor_of(masks), classes, batch_size, device)
    given = tensor_of(cast(Images, labels)).cpu()
    if given.ndim == 2 and options.restrict is None:
        logits = in_rows(predict(model, images, batch_size=batch_size, device=device))
        return evaluate_labels(logits, given, classes or origin_of(model).classes)
    if given.is_floating_point() and not bool((given == given.round()).all()):
        raise BadData("labels are fractions; an accuracy needs class numbers, or (N, classes) of 0 and 1.")
    truth = given.long()
    if truth.shape != (len(images),):
        raise BadData(f"{len(images)} images and labels of shape {tuple(truth.shape)}.")
    if options.restrict is not None:
        images, truth = _of_classes(images, truth, options.restrict, classes or origin_of(model).classes)
    logits = in_rows(predict(model, images, batch_size=batch_size, device=device))
    if logits.ndim != 2:
        raise BadData(
            f"the model gives {tuple(logits.shape)}, not one row of logits an image; a segmenter needs masks."
        )
    if logits.shape[1] == 1 and len(truth) and int(truth.max()) == 1:
        raise BadData(
            "the model has one output, and class numbers name its one class, 0; where 1 says that an image is of it, and 0 "
            "that it is not, give the labels as (N, 1), as in labels[:, None]."
        )
    if named is not None and len(named) != logits.shape[1]:
        named = None
    names = _names(classes or origin_of(model).classes or named, logits.shape[1])
    softmax = are_probabilities(logits)
    if softmax:  # restricted to some classes they are those of these alone, too
        logits = logits.clamp(min=torch.finfo(logits.dtype).tiny).log()
    if options.restrict is not None:
        among = data_sets.class_indices(options.restrict, names)
        truth = torch.tensor([among.index(label) for label in truth.tolist()])
        logits, names = logits[:, among], tuple(names[k] for k in among)
    unsaid = origin_of(model).preprocessing is None and not unread(images[:1]).is_floating_point()
    notes = [UNPREPARED] if unsaid else []
    notes += [PROBABILITIES] if softmax else []
    notes += [f"the model has one output, {names[0]!r}, and every image is of it; its accuracy says nothing"] * (
        logits.shape[1] == 1
    )
    if broken := int(logits.isnan().any(1).sum()):
        notes.append(
            f"the logits of {counted(broken, 'image')} are no numbers (NaN), and what is said of these means nothing"
        )
    return replace(measure_logits(logits, truth, names), note="; ".join(notes))


def evaluate_labels(logits: Tensor, truth: Tensor, classes: Sequence[str] | None = None) -> LabelsEvaluation:
    """Measures of logits (N, classes) against several labels an image (N, classes) of 0 and 1.

    >>> found = evaluate_labels(torch.tensor([[2.0, -1.0], [1.0, 3.0]]), torch.tensor([[1, 0], [0, 1]]))
    >>> found.accuracy, found.exact_match, found.mean_average_precision
    (0.75, 0.5, 1.0)
    """
    if truth.shape != logits.shape or not bool(((truth == 0) | (truth == 1)).all()):
        raise BadData(
            f"labels are {tuple(truth.shape)} for outputs of {tuple(logits.shape)}; several labels an image are (N, classes) "
            "of 0 and 1."
        )
    names, wanted = _names(classes, logits.shape[1]), truth > 0.5
    answered, chances = logits > 0, logits.double().sigmoid()
    right = answered == wanted
    sigmoid = bool(((logits >= 0) & (logits <= 1)).all())
    counts = [wanted, answered & wanted, answered & ~wanted]
    true, hit, false = (part.sum(0).tolist() for part in counts)
    confusion = [[len(truth) - t - f, f, t - h, h] for t, h, f in zip(true, hit, false, strict=True)]
    precision = {name: average_precision(chances[:, k], wanted[:, k]) for k, name in enumerate(names)}
    known = [value for value in precision.values() if value is not None]
    sure = torch.where(answered, chances, 1 - chances)
    return LabelsEvaluation(
        classes=names,
        images=len(truth),
        accuracy=right.double().mean().item(),
        per_class=dict(zip(names, right.double().mean(0).tolist(), strict=True)),
        confusion=confusion,
        nll=nn.functional.binary_cross_entropy_with_logits(logits.double(), wanted.double()).item(),
        calibration_error=calibration_error(sure.flatten(), right.flatten()),
        auroc={name: auroc(logits[:, k], wanted[:, k]) for k, name in enumerate(names)},
        exact_match=right.all(1).double().mean().item(),
        average_precision=precision,
        mean_average_precision=sum(known) / len(known) if known else None,
        note="all outputs lie in 0..1 and were read as logits; if a sigmoid makes them, take it away, or only AUROC and "
        "average precision tell"
        if sigmoid
        else "",
    )


PROBABILITIES = "the model's outputs sum to 1, as behind a softmax; their logarithms were taken for logits"
UNPREPARED = "the model does not say how its images are prepared; they went in as 0..1, as they are"


def _of_classes(images: Any, truth: Tensor, restrict: str, names: Sequence[str] | None) -> tuple[Any, Tensor]:
    """The images of these classes, and their labels."""
    known = names if names is not None else [str(k) for k in range(int(truth.max()) + 1)]
    own = np.flatnonzero(np.isin(truth.numpy(), data_sets.class_indices(restrict, known)))
    if not len(own):
        raise BadData(f"there is no image of {restrict} to evaluate on.")
    return unread(images)[own], truth[own]


@takes(EvalOptions)
def evaluate_data(
    model: nn.Module, images: ImageData, *, split: str = "test", device: DeviceLike | None = None, options: EvalOptions
) -> Evaluation:
    """Measure a model on a data set whose classes are found among the model's by name.

    A segmenter (its classes are the data set's mask classes) is measured on the masks.
    """
    batch_size = options.batch_size
    if split == "all":
        images, split = images.pooled(), "test"
    known = origin_of(model).classes
    restrict = options.restrict
    if restrict is not None:
        among = data_sets.class_indices(restrict, known or images.classes)
        if known is None:  # its outputs have no names but their numbers
            restrict = ",".join(map(str, among))
        else:  # classes of the data that the model does not know do not matter
            wanted = {known[k] for k in among}
            images = images.select([k for k, name in enumerate(images.classes) if name in wanted])
    raw, labels, masks = images.split(split)
    if masks is not None and known == images.mask_classes:
        return evaluate(model, raw, labels, classes=known, batch_size=batch_size, masks=masks, device=device)
    if known is not None and len(known) == 1 and known[0] in images.classes and len(images.classes) > 1:
        own = torch.from_numpy(np.asarray(labels) == images.classes.index(known[0])).long()
        result = evaluate(model, raw, own[:, None], classes=known, batch_size=batch_size, device=device)
        others = [name for name in images.classes if name != known[0]]
        note = f"the one output answers {known[0]!r} where it is above 0; images of {some_of(others, 5)} are without"
        return replace(result, note="; ".join(filter(None, (result.note, note))))
    labels = labels_among(known, images, labels)
    return evaluate(model, raw, labels, classes=known, batch_size=batch_size, restrict=restrict, device=device)


def labels_among(known: Sequence[str] | None, images: ImageData, labels: np.ndarray) -> np.ndarray:
    """Labels of a data set as numbers of a model's outputs: by name, or as they are where the model has no names."""
    if known is None or tuple(known) == images.classes:
        return labels
    foreign = [name for name in images.classes if name not in known]
    if foreign:
        raise BadData(
            f"the model does not know {', '.join(map(repr, foreign[:10]))} of {images.name}; its classes "
            f"are {', '.join(known[:40])}. {which_to_select(images, known)}"
        )
    numbers: np.ndarray = np.array([list(known).index(name) for name in images.classes])[labels]
    return numbers


def judged_split(model: nn.Module, images: ImageData) -> str:
    """Which images a model is judged on where nobody says: the test split, or all of a pile that has no splits.

    A model that was made from the pile (trained on it, cut with it) is judged on the part that is always held out.
    """
    return "all" if images.piled and not made_from(model, images) else "test"


def made_from(model: nn.Module, images: ImageData) -> bool:
    """Whether a model says that it was trained on images of this name, or cut with them."""
    return bool(_sources(images.name) & _sources(origin_of(model).provenance))


def images_of_split(images: ImageData, split: str, amount: int | None, seed: int) -> tuple[ImageData, str]:
    """The images of a split, or so many a class of it, and the split that they lie in then: all of them are test images."""
    images = images.pooled() if split == "all" else images
    where = "train" if split == "train" else "test"
    return images if amount is None else images.take(amount, split=where, seed=seed), where


def _sources(said: Any) -> set[str]:
    """The data sets, without the classes and amount chosen of them, that a name or a record of provenance speaks of."""
    if isinstance(said, str):
        with contextlib.suppress(RequestError):  # a name that is no request
            return {data_sets.parse(said).source.rstrip("/")}
        return {said}
    inner = said.items() if isinstance(said, dict) else []
    return set().union(*(_sources(value) for key, value in inner if key == "data" or isinstance(value, dict)))


def which_to_select(images: ImageData, known: Sequence[str]) -> str:
    """What to ask for instead of a data set that has classes a model does not know."""
    common = [name for name in images.classes if name in known]
    if not common and images.classes == (Path(images.name).name,):
        return "Pictures without a folder per class count as one class, called by their folder; labelled ones lie in CLASS/."
    if not common:
        return f"None of them is in {images.name}; give images of the model's classes."
    return f"Select those it knows: {images.name.split(':')[0]}:{','.join(common[:40])}."


def measure_logits(logits: Tensor, labels: Tensor, classes: Sequence[str] | None = None) -> Evaluation:
    """The same measures from logits (N, classes) that are there already."""
    count = logits.shape[1]
    names = _names(classes, count)
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < count):
        raise BadData(f"labels run from {labels.min()} to {labels.max()}; the model has {count} outputs.")
    log_probabilities = logits.double().log_softmax(1)
    confidence, predicted = log_probabilities.exp().max(1)
    confusion = confusion_of(labels, predicted, count)
    right = predicted == labels
    return Evaluation(
        classes=names,
        images=len(labels),
        accuracy=right.double().mean().item(),
        per_class=dict(zip(names, shares(confusion), strict=True)),
        confusion=confusion.tolist(),
        nll=abs(log_probabilities.gather(1, labels[:, None]).mean().item()),  # not −0.0
        calibration_error=calibration_error(confidence, right),
        # one output has no probability to compare by; its logit ranks all the same
        auroc={
            name: auroc((log_probabilities if count > 1 else logits)[:, i], labels == i) for i, name in enumerate(names)
        },
    )


def _evaluate_masks(
    model: nn.Module,
    images: Images,
    masks: Tensor,
    classes: Sequence[str] | None,
    batch_size: int,
    device: DeviceLike | None,
) -> Evaluation:
    confusion: Tensor | None = None
    nll, pixels, confidences, rights, start = 0.0, 0, [], [], 0
    # Streamed: the logits of all pixels of a test set need not fit into memory.
    for logits in logit_batches(model, images, batch_size, device):
        truth = masks[start : start + len(logits)].to(logits.device).long()
        start += len(logits)
        if logits.ndim != 4 or logits.shape[2:] != truth.shape[1:]:
            raise BadData(f"the model gives {tuple(logits.shape)} for masks {tuple(truth.shape)}: it is no segmenter.")
        counted = truth != IGNORE
        log_probabilities = logits.permute(0, 2, 3, 1)[counted].double().log_softmax(1)
        confidence, predicted = log_probabilities.exp().max(1)
        labels = truth[counted]
        if len(labels) and int(labels.max()) >= logits.shape[1]:
            raise BadData(f"masks hold class {int(labels.max())}; the model has {logits.shape[1]} outputs a pixel.")
        part = confusion_of(labels.cpu(), predicted.cpu(), logits.shape[1])
        confusion = part if confusion is None else confusion + part
        nll -= log_probabilities.gather(1, labels[:, None]).sum().item()
        pixels += len(labels)
        confidences.append(confidence.float().cpu())
        rights.append((predicted == labels).cpu())
    if confusion is None or not pixels:
        raise BadData("every pixel of the masks is ignored; there is nothing to evaluate.")
    names = _names(classes, len(confusion))
    hit, iou = confusion.diagonal(), overlaps(confusion)
    present = [value for value in iou if value is not None]
    return Evaluation(
        classes=names,
        images=start,
        accuracy=(hit.sum() / pixels).item(),
        per_class=dict(zip(names, shares(confusion), strict=True)),
        confusion=confusion.tolist(),
        nll=nll / pixels,
        calibration_error=calibration_error(torch.cat(confidences), torch.cat(rights)),
        auroc=dict.fromkeys(names),
        iou=dict(zip(names, iou, strict=True)),
        mean_iou=sum(present) / len(present),
    )


def _names(classes: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if classes is None:
        return tuple(str(i) for i in range(count))
    if len(classes) != count:
        raise BadData(f"{len(classes)} class names for {count} outputs.")
    return tuple(classes)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
