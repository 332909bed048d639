"""Measures of answers against the truth, of tensors alone: ranking, calibration, overlap."""

import torch
from torch import Tensor


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


def mean_overlap(predicted: Tensor, truth: Tensor, classes: int) -> float | None:
    """Mean IoU over the classes that are there or said; None: nothing is.

    >>> round(mean_overlap(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1]), 3), 3)
    0.583
    """
    present = [value for value in overlaps(confusion_of(truth, predicted, classes)) if value is not None]
    return sum(present) / len(present) if present else None


def overlaps(confusion: Tensor) -> list[float | None]:
    """IoU of every class; None: it is neither there nor said."""
    hit = confusion.diagonal()
    union = confusion.sum(0) + confusion.sum(1) - hit
    return [(h / u).item() if u else None for h, u in zip(hit.double(), union, strict=True)]


def average_precision(scores: Tensor, positive: Tensor) -> float | None:
    """Mean precision at every positive, from the best score down; equal scores share their threshold."""
    if not bool(positive.any()):
        return None
    _, group, size = torch.unique(-scores, return_inverse=True, return_counts=True)
    hits = torch.zeros(len(size), dtype=torch.float64).index_add_(0, group, positive.double())
    return float((hits * hits.cumsum(0) / size.cumsum(0)).sum() / hits.sum())


def confusion_of(truth: Tensor, predicted: Tensor, count: int) -> Tensor:
    """How often each class (rows) is answered with each (columns)."""
    return torch.bincount(truth * count + predicted, minlength=count * count).reshape(count, count)


def shares(confusion: Tensor) -> list[float | None]:
    """Of every class the share that is right; None: there is none of it."""
    totals = confusion.sum(1)
    return [(h / t).item() if t else None for h, t in zip(confusion.diagonal().double(), totals, strict=True)]
