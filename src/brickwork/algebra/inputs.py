"""Images as the networks to be merged take them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.data.datasets import images_of, pair_of_dataset
from brickwork.data.streamed import HELD, Images, StreamedImages, concatenated
from brickwork.errors import BadData, BadModel
from brickwork.moments.batches import ImageBatches
from brickwork.origin import Preprocessing, origin_of
from brickwork.prediction import StreamedInput, input_of
from brickwork.words import counted, sides


@dataclass(frozen=True)
class ModelTask:
    """The images of one task. A merged network prepares raw images as the first network does."""

    images: Tensor | StreamedInput  # as the merged network will take them
    own: Tensor | StreamedInput  # as the network of this task takes them
    labels: Tensor | None = None
    given: Images | None = None  # as they were given


def tasks_of(models: Sequence[nn.Module], sets: Sequence[Any], *, pairs: bool, labels: bool) -> list[ModelTask]:
    """Every set of images, or (images, labels), prepared; the k-th belongs to the k-th network if `pairs`."""
    first = models[0]
    refuse_other_sizes([origin_of(model).preprocessing for model in models])
    result = []
    for number, given in enumerate(sets):
        named: Any = pair_of_dataset(given, origin_of(first).classes) if labels else images_of(given)
        images, answers = named if labels and _is_pair(named) else (named, None)
        if labels and answers is None:
            raise BadData(f"set {number} has no labels; give (images, labels).")
        task = inputs_of(first, images)
        owner = models[number] if pairs else first
        own = task if _prepare_alike(owner, first) else inputs_of(owner, images)
        if not len(task):
            raise BadData(f"set {number} has no images; give some hundred.")
        if isinstance(task, Tensor) and not bool(torch.isfinite(task).all()):
            raise BadData(f"the images of set {number} hold NaN or infinite values.")
        labelled = None if answers is None else _labels(answers, task, number)
        result.append(ModelTask(task, own, labelled, images))
    return result


def inputs_of(model: nn.Module, images: Images) -> Tensor | StreamedInput:
    """Images as this network takes them: on its device, in its precision; made by batches if they are read so."""
    if next(model.parameters(), None) is None:
        raise BadModel("a network without parameters cannot be merged.")
    large = isinstance(images, StreamedImages) and images.nbytes > HELD
    return StreamedInput(model, images) if large else input_of(model, images)  # type: ignore[arg-type]


def batches_of(images: Tensor | StreamedInput, batch_size: int) -> Iterable[Tensor]:
    """Batches of about equal size, so that no last one is too small for statistics.

    >>> [len(batch) for batch in batches_of(torch.zeros(501, 2), 250)]
    [167, 167, 167]
    """
    if isinstance(images, StreamedInput):
        return ImageBatches(images, batch_size, images[0:1])
    return images.tensor_split(-(-len(images) // batch_size))


def seen_by(model: nn.Module, first: nn.Module, tasks: Sequence[ModelTask]) -> Tensor | StreamedInput:
    """The images of all tasks, one set after the other, as this network takes them."""
    same = _prepare_alike(model, first)
    sets = [t.images if same or t.given is None else inputs_of(model, t.given) for t in tasks]
    return sets[0] if len(sets) == 1 else mixed(sets, torch.arange(sum(map(len, sets))))


def _prepare_alike(model: nn.Module, first: nn.Module) -> bool:
    return model is first or origin_of(model).preprocessing == origin_of(first).preprocessing


def mixed(sets: Sequence[Tensor | StreamedInput], order: Tensor) -> Tensor | StreamedInput:
    """All sets as one, in another order."""
    if all(isinstance(one, Tensor) for one in sets):
        return torch.cat(sets)[order.to(sets[0].device)]  # type: ignore[arg-type]
    parts = [one.images if isinstance(one, StreamedInput) else one.cpu().numpy() for one in sets]
    model = next(one.model for one in sets if isinstance(one, StreamedInput))
    return StreamedInput(model, concatenated(parts)[order.numpy()])


def refuse_other_sizes(prepared: Sequence[Preprocessing | None], names: Sequence[object] | None = None) -> None:
    """Networks that take images of different sizes cannot look at the same ones."""
    names = names or [f"model {k}" for k in range(len(prepared))]
    shapes = {(p.size, p.channels): k for k, p in reversed(list(enumerate(prepared))) if p is not None}
    if len(shapes) > 1:
        (one, a), (two, b) = sorted(shapes.items(), key=lambda item: item[1])[:2]
        raise BadModel(f"{names[a]} takes images of {_shown(one)} and {names[b]} of {_shown(two)}.")


def _shown(shape: tuple[tuple[int, int] | None, int]) -> str:
    size, channels = shape
    return f"{sides(size or (), 'any size')} with {counted(channels, 'channel')}"


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple | list) and len(given) == 2


def _labels(labels: Any, images: Tensor | StreamedInput, number: int) -> Tensor:
    answers = torch.as_tensor(labels).to(images.device).long()
    if answers.shape != (len(images),):
        raise BadData(f"set {number}: {len(images)} images and labels of shape {tuple(answers.shape)}.")
    return answers
