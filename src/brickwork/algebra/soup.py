"""Greedy soup: the mean of those networks that do not make it worse on labelled images (Wortsman 2022, arXiv 2203.05482)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.algebra.alignment import recalibrated
from brickwork.algebra.data_methods import find
from brickwork.algebra.inputs import ModelTask, tasks_of
from brickwork.algebra.merging import merge
from brickwork.errors import BadData
from brickwork.outputs import logits_of, of_classes
from brickwork.prediction import evaluating
from brickwork.progress import bar


@dataclass(frozen=True)
class Soup:
    """The mean of the models in `used`, in the order they were added; `alone` is every model's own accuracy.

    tried: (model, accuracy of the mean with it, whether it was kept) for every model but the first one used.
    """

    model: nn.Module = field(repr=False)
    used: tuple[int, ...]
    accuracy: float
    alone: tuple[float, ...]
    tried: tuple[tuple[int, float, bool], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        tried = [{"model": k, "accuracy": value, "kept": kept} for k, value, kept in self.tried]
        return {"used": list(self.used), "accuracy": self.accuracy, "alone": list(self.alone), "tried": tried}

    def __str__(self) -> str:
        return (
            f"{len(self.used)} of {len(self.alone)} models ({', '.join(map(str, self.used))}): {self.accuracy:.2%}; "
            f"the best alone {max(self.alone):.2%}"
        )


def greedy_soup(
    models: Sequence[nn.Module],
    data: Sequence[tuple[Any, Any]],
    *,
    by: str = "mean",
    bn: str = "linear",
    progress: bool = True,
) -> Soup:
    """Add models to the mean, best first, as long as its accuracy does not fall; the models are left unchanged.

    data: sets of (images, labels), label k is output k; best not the images the models were trained on. by: accuracy
    is the mean over the sets, or that of the "worst". bn: the mean's batch-norm statistics are the models' mean
    ("linear"), or are taken anew on the images for every mean that is tried ("recalibrate").

    >>> import torch
    >>> good, bad = nn.Linear(4, 3), nn.Linear(4, 3)
    >>> x = torch.randn(200, 4)
    >>> greedy_soup([bad, good, good], [(x, good(x).argmax(1))], progress=False).used
    (1, 2)
    """
    chosen = find("greedy_soup")
    chosen.check(len(models), len(data), base=False, options={"by": by, "bn": bn})
    return _soup(list(models), tasks_of(models, data, pairs=False, labels=True), by, bn, progress)


def merge_greedy_soup(
    models: list[nn.Module], tasks: list[ModelTask], *, progress: bool, by: str = "mean", bn: str = "linear"
) -> tuple[nn.Module, dict[str, Any]]:
    """As `merge_on` calls it."""
    result = _soup(models, tasks, by, bn, progress)
    return result.model, result.to_dict()


def _soup(models: list[nn.Module], tasks: list[ModelTask], by: str, bn: str, progress: bool) -> Soup:
    score = min if by == "worst" else lambda found: sum(found) / len(found)

    def judged(model: nn.Module) -> float:
        return round(score([judge(model, t, k)[0] for k, t in enumerate(tasks)]), 6)

    with bar("stirring", 2 * len(models) - 1, show=progress) as advance:
        alone = []
        for model in models:
            alone.append(judged(model))
            advance()
        order = sorted(range(len(models)), key=lambda k: -alone[k])  # of equals the first given first
        used, best = [order[0]], alone[order[0]]
        soup = merge([models[order[0]]])
        tried = []
        for number in order[1:]:
            mean = merge([models[k] for k in (*used, number)])
            mean = recalibrated(mean, tasks) if bn == "recalibrate" else mean
            accuracy = judged(mean)
            kept = accuracy >= best
            tried.append((number, accuracy, kept))
            if kept:
                used, best, soup = [*used, number], accuracy, mean
            advance()
    return Soup(soup, tuple(used), best, tuple(alone), tuple(tried))


def judge(model: nn.Module, task: ModelTask, number: int, batch_size: int = 512) -> tuple[float, float]:
    """The share of a set's images that is right, and the sum of their cross-entropy."""
    assert isinstance(task.labels, Tensor)
    right, loss = 0, 0.0
    with evaluating(model):
        for x, y in zip(task.images.split(batch_size), task.labels.split(batch_size), strict=True):
            logits = of_classes(logits_of(model(x)))
            if logits.ndim != 2 or not 0 <= int(y.min()) <= int(y.max()) < logits.shape[1]:
                raise BadData(
                    f"the labels of set {number} run from {int(y.min())} to {int(y.max())}, and the models give "
                    f"{tuple(logits.shape[1:])} outputs an image."
                )
            right += int((logits.argmax(1) == y).sum())
            loss += float(F.cross_entropy(logits.float(), y, reduction="sum"))
    return right / len(task.labels), loss
