"""The images of the two tasks that `cancel` trains on, batch by batch, the same in every run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.data.datasets import pair_of_dataset
from brickwork.data.images import ImageData
from brickwork.data.pixels import as_input, measure
from brickwork.errors import BadData
from brickwork.origin import Preprocessing, origin_of

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class TaskImages:
    """Images as the network takes them, in float64, and the order in which steps take them (None: all, every step)."""

    name: str
    images: Tensor
    labels: Tensor
    whole: tuple[Batch, ...]  # all of them, in pieces of at most a batch
    order: tuple[Tensor, ...] | None

    def step(self, number: int) -> Sequence[Batch]:
        """What step `number` (from 0) is trained on."""
        if self.order is None:
            return self.whole
        index = self.order[number]
        return [(self.images[index], self.labels[index])]


def tasks_for(
    base: nn.Module, first: Any, second: Any, where: torch.device, steps: int, batch_size: int | None, seed: int
) -> list[TaskImages]:
    """Both tasks, prepared alike: as the network does, or, where it does not say, by their common mean and spread."""
    given = [_unpacked(one, which) for one, which in ((first, "first"), (second, "second"))]
    prepared = origin_of(base).preprocessing or _common([images for _, images, _ in given])
    result = []
    for number, (name, images, labels) in enumerate(given):
        x = as_input(images, prepared, where).double()
        y = torch.as_tensor(labels).to(where)
        y = y.double() if y.is_floating_point() else y.long()
        if len(y) != len(x) or not len(x):
            raise BadData(f"{name}: {len(x)} images and {len(y)} labels; there must be as many, and some.")
        if not bool(torch.isfinite(x).all()):
            raise BadData(f"{name} holds NaN or infinite values.")
        size = min(batch_size or len(x), len(x))
        pieces = -(-len(x) // size)
        whole = tuple(zip(x.tensor_split(pieces), y.tensor_split(pieces), strict=True))
        order = None if batch_size is None else _order(len(x), size, steps, [seed, number], where)
        result.append(TaskImages(name, x, y, whole, order))
    return result


def _unpacked(given: Any, which: str) -> tuple[str, Any, Any]:
    if isinstance(given, ImageData):
        return given.name, given.train_images, given.train_labels
    given = pair_of_dataset(given)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise BadData(
            f"the {which} task is a {type(given).__name__}; it must be ImageData, (images, labels) or a Dataset."
        )
    return which, *given


def _common(sets: Sequence[Any]) -> Preprocessing | None:
    raw = [images for images in sets if str(images.dtype).removeprefix("torch.") == "uint8"]
    if len(raw) < len(sets) or len({tuple(images.shape[1:]) for images in raw}) > 1:
        return None
    return measure(np.concatenate([np.asarray(images) for images in raw]))


def _order(count: int, size: int, steps: int, seed: list[int], where: torch.device) -> tuple[Tensor, ...]:
    """Batches of whole rounds through the images, each round in an order of its own; what is left over is left out."""
    rng = np.random.default_rng(seed)
    result: list[Tensor] = []
    while len(result) < steps:
        drawn = torch.from_numpy(rng.permutation(count)).to(where)
        result += list(drawn[: count // size * size].split(size))
    return tuple(result[:steps])
