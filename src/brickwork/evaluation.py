"""How good a classifier or segmenter is: accuracy, calibration, ranking, overlap."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork import data as data_sets
from brickwork.data.images import IGNORE, ImageData
from brickwork.data.pixels import Images
from brickwork.errors import BadData, RequestError
from brickwork.html_table import rows_table
from brickwork.model_options import EvalOptions
from brickwork.options import takes
from brickwork.origin import origin_of
from brickwork.prediction import logit_batches, predict
from brickwork.words import counted

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

    def to_dict(self) -> dict[str, Any]:
        """JSON values only; the segmentation entries only where there were masks."""
        result = {key: list(value) if isinstance(value, tuple) else value for key, value in self.__dict__.items()}
        if self.iou is None:
            del result["iou"], result["mean_iou"]
        else:
            result["pixel_accuracy"] = self.accuracy
            del result["auroc"]
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
        return "\n".join([f"{counted(self.images, 'image')}: {summary}", *lines])

    def _repr_html_(self) -> str:
        head, rows = self._rows()
        summary = ", ".join(f"{name} {value}" for name, value in self._summary())
        return rows_table(head, rows, lines=[f"{counted(self.images, 'image')}: {summary}"])


@takes(EvalOptions)
def evaluate(
    model: nn.Module,
    data: ImageData | Images,
    labels: np.ndarray | Tensor | None = None,
    *,
    classes: Sequence[str] | None = None,
    device: torch.device | str | None = None,
    masks: np.ndarray | Tensor | None = None,
    options: EvalOptions,
) -> Evaluation:
    """Measure a model on a data set, or on images and labels; with `masks` (N, H, W), a segmenter against them.

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
    >>> found = evaluate(nn.Identity(), logits, torch.tensor([0, 1, 1]), classes=["cat", "dog"])
    >>> round(found.accuracy, 3), found.confusion
    (0.667, [[1, 0], [1, 1]])
    """
    if isinstance(data, ImageData):
        if labels is not None or masks is not None or classes is not None:
            raise BadData(f"{data.name} brings its own labels, masks and classes; leave them out, or give arrays.")
        split = options.split or judged_split(model, data)
        return evaluate_data(model, data, split=split, batch_size=options.batch_size, device=device)
    images, batch_size = data, options.batch_size
    if len(images) == 0:
        raise BadData("there are no images to evaluate on.")
    if labels is None and masks is None:
        raise BadData("images alone cannot be evaluated on; give labels, masks or an ImageData.")
    if masks is not None:
        return _evaluate_masks(model, images, torch.as_tensor(masks), classes, batch_size, device)
    truth = torch.as_tensor(labels).long().cpu()
    if truth.shape != (len(images),):
        raise BadData(f"{len(images)} images and labels of shape {tuple(truth.shape)}.")
    logits = predict(model, images, batch_size=batch_size, device=device)
    if logits.ndim != 2:
        raise BadData(
            f"the model gives {tuple(logits.shape)}, not one row of logits an image; a segmenter needs masks."
        )
    return measure_logits(logits, truth, classes or origin_of(model).classes)


def evaluate_data(
    model: nn.Module,
    images: ImageData,
    *,
    split: str = "test",
    batch_size: int = 512,
    device: torch.device | str | None = None,
) -> Evaluation:
    """Measure a model on a data set whose classes are found among the model's by name.

    A segmenter (its classes are the data set's mask classes) is measured on the masks.
    """
    if split == "all":
        images, split = images.pooled(), "test"
    raw, labels, masks = images.split(split)
    known = origin_of(model).classes
    if masks is not None and known == images.mask_classes:
        return evaluate(model, raw, labels, classes=known, batch_size=batch_size, masks=masks, device=device)
    if known is not None and known != images.classes:
        foreign = [name for name in images.classes if name not in known]
        if foreign:
            raise BadData(
                f"the model does not know {', '.join(map(repr, foreign[:10]))} of {images.name}; its classes "
                f"are {', '.join(known[:40])}. {which_to_select(images, known)}"
            )
        labels = np.array([known.index(name) for name in images.classes])[labels]
    return evaluate(model, raw, labels, classes=known, batch_size=batch_size, device=device)


def judged_split(model: nn.Module, images: ImageData) -> str:
    """Which images a model is judged on where nobody says: the test split, or all of a pile that has no splits.

    A model that was made from the pile (trained on it, cut with it) is judged on the part that is always held out.
    """
    return "all" if images.piled and not _sources(images.name) & _sources(origin_of(model).provenance) else "test"


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
    confusion = _confusion(labels, predicted, count)
    right = predicted == labels
    return Evaluation(
        classes=names,
        images=len(labels),
        accuracy=right.double().mean().item(),
        per_class=dict(zip(names, _shares(confusion), strict=True)),
        confusion=confusion.tolist(),
        nll=abs(log_probabilities.gather(1, labels[:, None]).mean().item()),  # not −0.0
        calibration_error=calibration_error(confidence, right),
        # one output has no probability to compare by; its logit ranks all the same
        auroc={
            name: auroc((log_probabilities if count > 1 else logits)[:, i], labels == i) for i, name in enumerate(names)
        },
    )


def calibration_error(confidence: Tensor, right: Tensor, bins: int = 15) -> float:
    """Expected calibration error: |accuracy − confidence| over equal-width bins, weighted by their size."""
    bin_of = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gap = torch.zeros(bins, dtype=torch.float64).index_add_(0, bin_of, right.double() - confidence.double())
    return (gap.abs().sum() / len(confidence)).item()


def auroc(scores: Tensor, positive: Tensor) -> float | None:
    """Area under the ROC curve, exact with ties (they count half); None without both kinds.

    >>> auroc(torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([False, False, True, True]))
    0.875
    """
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return None
    _, group, size = torch.unique(scores.double(), return_inverse=True, return_counts=True)
    last = size.cumsum(0).double()
    rank = (last - (size - 1) / 2)[group]  # tied scores share their mean rank
    return float((rank[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _evaluate_masks(
    model: nn.Module,
    images: Images,
    masks: Tensor,
    classes: Sequence[str] | None,
    batch_size: int,
    device: torch.device | str | None,
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
        part = _confusion(labels.cpu(), predicted.cpu(), logits.shape[1])
        confusion = part if confusion is None else confusion + part
        nll -= log_probabilities.gather(1, labels[:, None]).sum().item()
        pixels += len(labels)
        confidences.append(confidence.float().cpu())
        rights.append((predicted == labels).cpu())
    if confusion is None or not pixels:
        raise BadData("every pixel of the masks is ignored; there is nothing to evaluate.")
    names = _names(classes, len(confusion))
    hit = confusion.diagonal()
    union = confusion.sum(0) + confusion.sum(1) - hit
    iou = [(h / u).item() if u else None for h, u in zip(hit.double(), union, strict=True)]
    present = [value for value in iou if value is not None]
    return Evaluation(
        classes=names,
        images=start,
        accuracy=(hit.sum() / pixels).item(),
        per_class=dict(zip(names, _shares(confusion), strict=True)),
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


def _confusion(truth: Tensor, predicted: Tensor, count: int) -> Tensor:
    return torch.bincount(truth * count + predicted, minlength=count * count).reshape(count, count)


def _shares(confusion: Tensor) -> list[float | None]:
    totals = confusion.sum(1)
    return [(h / t).item() if t else None for h, t in zip(confusion.diagonal().double(), totals, strict=True)]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
