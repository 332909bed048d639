"""Which of the things that a model returns holds the logits."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from brickwork.errors import BadModel

PLACES = 1024  # of a map of answers, at most, that are looked at,
NUMBERS = 2**24  # and numbers of all maps together
NAMES = ("logits", "out")  # what classifiers and torchvision's segmenters call them


def accuracy_of(logits: Tensor, labels: Any) -> float:
    """The share of rows whose largest logit is that of their label.

    >>> accuracy_of(torch.eye(4), [0, 1, 2, 0])
    0.75
    """
    return float((logits.argmax(1).cpu() == torch.as_tensor(labels)).double().mean())


def logits_of(output: Any, which: str | int | None = None, *, guess: bool = True) -> Tensor:
    """The output of that name or number; without one: a tensor itself, `logits` or `out`, or the only tensor.

    Of several tensors in a tuple the first is taken, unless nothing may be guessed: surgery asks for `output` then.

    >>> import torch
    >>> logits_of((torch.ones(2, 3), "more")).shape
    torch.Size([2, 3])
    >>> logits_of({"aux": torch.zeros(1), "logits": torch.ones(2, 3)}).shape
    torch.Size([2, 3])
    """
    named = {"0": output} if isinstance(output, Tensor) else _named_tensors(output)
    if which is not None:
        if str(which) not in named:
            raise BadModel(
                f"the model has no output {which!r}; it returns {', '.join(map(repr, named)) or 'no tensor'}"
            )
        return named[str(which)]
    for name in NAMES:
        if name in named:
            return named[name]
    if not named:
        raise BadModel(
            f"the model returned no tensor (a {type(output).__name__}) to read logits from; return them from forward."
        )
    if len(named) > 1 and not (guess and isinstance(output, tuple | list)):
        raise BadModel(
            f"the model returns several tensors ({', '.join(map(repr, named))}) and none is called 'logits'; name the one "
            "that matters with `output`, or let its forward return the logits alone, or under that name."
        )
    return next(iter(named.values()))


def in_rows(logits: Tensor) -> Tensor:
    """Logits as (images, outputs): a network of one output may answer one number an image, without an axis for it.

    >>> in_rows(torch.zeros(5)).shape, in_rows(torch.zeros(5, 2)).shape
    (torch.Size([5, 1]), torch.Size([5, 2]))
    """
    return logits[:, None] if logits.ndim == 1 else logits


def of_classes(logits: Tensor, axis: int = 1) -> Tensor:
    """The logits; BadModel where there is one output, of which the largest, and a softmax, say nothing.

    >>> of_classes(torch.zeros(5, 2)).shape
    torch.Size([5, 2])
    """
    if logits.ndim <= axis or logits.shape[axis] == 1:
        raise BadModel(
            "the model has one output, and what is asked for compares classes: accuracies, entropies and distillation say "
            "nothing of one; give its last layer two rows, one of zeros and its own: their softmax is the sigmoid of the one."
        )
    return logits


def places_for(images: int, outputs: int) -> int:
    """At how many places maps of so many images are looked at, so that all numbers together stay bounded.

    >>> places_for(100, 20), places_for(3000, 150)
    (1024, 37)
    """
    return max(16, min(PLACES, NUMBERS // max(1, images * outputs)))


def place_rows(logits: Tensor, most: int = PLACES) -> Tensor:
    """Logits as (rows, outputs): a row per image, or of maps (images, outputs, …) one per place, image by image.

    >>> place_rows(torch.zeros(5)).shape, place_rows(torch.zeros(5, 3, 8, 8)).shape, place_rows(torch.zeros(5, 3, 64, 64)).shape
    (torch.Size([5, 1]), torch.Size([320, 3]), torch.Size([5120, 3]))
    """
    return in_rows(logits) if logits.ndim < 3 else drawn_places(logits, 2, most).movedim(1, -1).flatten(0, -2)


def drawn_places(maps: Tensor, first: int, most: int = PLACES) -> Tensor:
    """Maps at so many places at most, the same for all maps of a size; first: the axis from which on the axes are places.

    They are drawn: every second or fourth place would be the same corner of what an upsampling layer writes.
    """
    sizes = maps.shape[first:]
    share = min(1.0, (most / max(1, math.prod(sizes))) ** (1 / len(sizes)))
    for number, size in enumerate(sizes):
        count = max(1, int(share * size + 1e-9))
        if count < size:
            draw = torch.Generator().manual_seed(1000 * size + number)
            drawn = torch.randperm(size, generator=draw)[:count].sort().values
            maps = maps.index_select(first + number, drawn.to(maps.device))
    return maps


def are_probabilities(logits: Tensor) -> bool:
    """Whether every row is what a softmax gives: none below 0, and a sum of 1.

    >>> are_probabilities(torch.tensor([[1.0, -2.0]]).softmax(1)), are_probabilities(torch.tensor([[1.0, -2.0]]))
    (True, False)
    """
    if logits.ndim != 2 or logits.shape[1] < 2 or not len(logits):
        return False
    return bool((logits >= 0).all()) and bool(((logits.double().sum(1) - 1).abs() < 1e-2).all())


def _named_tensors(result: Any) -> dict[str, Tensor]:
    if isinstance(result, Mapping):  # transformers' ModelOutput is a mapping too
        items = [(str(k), v) for k, v in result.items()]
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        items = [(f.name, getattr(result, f.name)) for f in dataclasses.fields(result)]
    elif isinstance(result, tuple) and hasattr(result, "_fields"):
        items = list(zip(result._fields, result, strict=True))
    elif isinstance(result, Sequence) and not isinstance(result, str):
        items = [(str(i), v) for i, v in enumerate(result)]
    else:
        items = []
    return {k: v for k, v in items if isinstance(v, Tensor)}
