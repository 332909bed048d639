"""Images as the networks to be merged take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.data.pixels import Images
from brickwork.errors import BadData, BadModel
from brickwork.origin import Preprocessing, origin_of
from brickwork.prediction import input_of


@dataclass(frozen=True)
class ModelTask:
    """The images of one task. A merged network prepares raw images as the first network does."""

    images: Tensor  # as the merged network will take them
    own: Tensor  # as the network of this task takes them
    labels: Tensor | None = None


def tasks_of(models: Sequence[nn.Module], sets: Sequence[Any], *, pairs: bool, labels: bool) -> list[ModelTask]:
    """Every set of images, or (images, labels), prepared; the k-th belongs to the k-th network if `pairs`."""
    first = models[0]
    refuse_other_sizes([origin_of(model).preprocessing for model in models])
    result = []
    for number, given in enumerate(sets):
        images, answers = given if labels and _is_pair(given) else (given, None)
        if labels and answers is None:
            raise BadData(f"set {number} has no labels; give (images, labels).")
        owner = models[number] if pairs else first
        task = inputs_of(first, images)
        same = owner is first or origin_of(owner).preprocessing == origin_of(first).preprocessing
        own = task if same else inputs_of(owner, images)
        if not len(task):
            raise BadData(f"set {number} has no images; give some hundred.")
        if not bool(torch.isfinite(task).all()):
            raise BadData(f"the images of set {number} hold NaN or infinite values.")
        result.append(ModelTask(task, own, None if answers is None else _labels(answers, task, number)))
    return result


def inputs_of(model: nn.Module, images: Images) -> Tensor:
    """Images as this network takes them: on its device, in its precision."""
    if next(model.parameters(), None) is None:
        raise BadModel("a network without parameters cannot be merged.")
    return input_of(model, images)


def batches_of(images: Tensor, batch_size: int) -> tuple[Tensor, ...]:
    """Batches of about equal size, so that no last one is too small for statistics.

    >>> [len(batch) for batch in batches_of(torch.zeros(501, 2), 250)]
    [167, 167, 167]
    """
    return images.tensor_split(-(-len(images) // batch_size))


def refuse_other_sizes(prepared: Sequence[Preprocessing | None], names: Sequence[object] | None = None) -> None:
    """Networks that take images of different sizes cannot look at the same ones."""
    names = names or [f"model {k}" for k in range(len(prepared))]
    shapes = {(p.size, p.channels): k for k, p in reversed(list(enumerate(prepared))) if p is not None}
    if len(shapes) > 1:
        (one, a), (two, b) = sorted(shapes.items(), key=lambda item: item[1])[:2]
        raise BadModel(f"{names[a]} takes images of {_shown(one)} and {names[b]} of {_shown(two)}.")


def _shown(shape: tuple[tuple[int, int] | None, int]) -> str:
    size, channels = shape
    return f"{'×'.join(map(str, size)) if size else 'any size'} with {channels} channel{'s' * (channels > 1)}"


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple | list) and len(given) == 2


def _labels(labels: Any, images: Tensor, number: int) -> Tensor:
    answers = torch.as_tensor(labels).to(images.device).long()
    if answers.shape != (len(images),):
        raise BadData(f"set {number}: {len(images)} images and labels of shape {tuple(answers.shape)}.")
    return answers
