"""The images a part is scored on, matched on and judged by: all of them source training data, drawn with a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brickwork.data.datasets import TorchData, images_of, pair_of_dataset
from brickwork.data.images import IGNORE, ImageData, hold_out
from brickwork.data.pixels import as_input
from brickwork.data.spec import class_indices
from brickwork.data.streamed import Images, StreamedImages, tensor_of, unread
from brickwork.errors import BadData, RequestError, UnknownName
from brickwork.evaluation import which_to_select
from brickwork.origin import Preprocessing
from brickwork.outputs import places_for

Data = tuple[Images, np.ndarray | Tensor] | ImageData | TorchData
DataOrImages = Data | Images  # of images alone, the network's own answers stand for labels


@dataclass(frozen=True)
class Samples:
    """Raw images and labels (numbers of the model's classes), and which of them are held out."""

    images: Tensor | StreamedImages
    labels: np.ndarray
    use: np.ndarray  # indices to score and match on
    held: np.ndarray  # indices to judge on
    preprocessing: Preprocessing | None
    device: torch.device
    dtype: torch.dtype
    answers: bool = False  # whether the labels are what the network answers
    outputs: int = 0  # of a network that answers with maps: numbers per place
    masks: Tensor | None = None  # and the class of every place, where it is known

    def places(self, images: int) -> int:
        """At how many places the maps of so many images are looked at."""
        return places_for(images, self.outputs)

    def inputs(self, index: np.ndarray) -> Tensor:
        """Network input of these images."""
        tensor = as_input(self.raw(index), self.preprocessing, self.device)
        return tensor.to(self.dtype)

    def raw(self, index: np.ndarray) -> Tensor | StreamedImages:
        """These images as they came."""
        return self.images[index if isinstance(self.images, StreamedImages) else torch.from_numpy(index)]

    def lazy(self, index: np.ndarray) -> LazyInputs:
        """Network input of these images, made slice by slice."""
        return LazyInputs(self, index)

    def some(self, count: int, seed: int) -> np.ndarray:
        """At most `count` of the usable images, of whatever class."""
        drawn = np.random.default_rng([seed, 1]).permutation(self.use)[:count]
        return np.sort(drawn)

    def of_classes(self, classes: Sequence[int], count: int, seed: int) -> np.ndarray:
        """At most `count` of the usable images, as many of each class; classes that have fewer leave room to the others."""
        by_class = [self.use[self.labels[self.use] == label] for label in classes]
        share = max(1, _share([len(own) for own in by_class], count))
        chosen = []
        for label, own in zip(classes, by_class, strict=True):
            chosen.append(np.random.default_rng([seed, 2, label]).permutation(own)[:share])
        return np.sort(np.concatenate(chosen))


def _share(sizes: Sequence[int], count: int) -> int:
    """How many of each class, so that all together are at most `count` and as many as can be.

    >>> _share([50, 50], 20), _share([2, 50, 0], 20), _share([2, 3], 20)
    (10, 18, 20)
    """
    left, room = sorted(sizes), count
    while left and left[0] < room // len(left):
        room -= left.pop(0)
    return room // len(left) if left else count


@dataclass(frozen=True)
class LazyInputs:
    """Network input of many images, of which only a slice at a time is made."""

    samples: Samples
    index: np.ndarray

    @property
    def shape(self) -> torch.Size:
        return torch.Size([len(self.index), *self[0:1].shape[1:]])

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, which: slice) -> Tensor:
        return self.samples.inputs(self.index[which])


def find_classes(asked: Sequence[str | int] | str | int, known: Sequence[str]) -> list[int]:
    """Names, numbers, or the text of a data spec ("0-2,cat") as numbers of the model's classes, in the order asked.

    >>> find_classes(["dog", 0], ["cat", "dog"]), find_classes("0-1", ["cat", "dog"])
    ([1, 0], [0, 1])
    """
    if isinstance(asked, str):
        return class_indices(asked, known)
    result: list[int] = []
    for item in [asked] if isinstance(asked, int | np.integer) else list(asked):
        if isinstance(item, str):
            if item not in known:
                raise UnknownName("class of the model", item, known)
            result.append(list(known).index(item))
        elif isinstance(item, int | np.integer) and not isinstance(item, bool) and 0 <= item < len(known):
            result.append(int(item))
        else:
            raise RequestError(f"the model has no class {item!r}; it has {len(known)}, 0 to {len(known) - 1}.")
    if not result:
        raise RequestError(f"no classes were asked for; the model has {', '.join(known[:40])}.")
    twice = [known[k] for k in result if result.count(k) > 1]
    if twice:
        raise RequestError(f"class {twice[0]!r} is asked for twice.")
    return result


def load_samples(
    data: Data,
    known: Sequence[str],
    named: bool,
    *,
    preprocessing: Preprocessing | None,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    answers: bool = False,
) -> tuple[Samples, Samples]:
    """What to choose and repair on, and what to judge on: the data's test split, or a fifth of the rest held out.

    named: the model itself names its classes. answers: the labels are its own answers.
    """
    images, _ = pair_of(data)
    labels = class_numbers(data, known, named)
    if isinstance(data, ImageData) and len(data.test_labels):
        none, every = np.arange(0), np.arange(len(data.test_labels))
        numbers = _renumbered(data, known, named)[data.test_labels].astype(np.int64)
        judged = Samples(unread(data.test_images), numbers, none, every, preprocessing, device, dtype, answers)
        return Samples(images, labels, np.arange(len(labels)), none, preprocessing, device, dtype, answers), judged
    use, held = hold_out(labels, key=(seed, 0))
    samples = Samples(images, labels, use, held, preprocessing, device, dtype, answers)
    return samples, samples


def has_masks(data: Any) -> bool:
    """Whether there is more than one label for an image, as in a pair of images and masks."""
    return isinstance(data, tuple | list) and len(data) == 2 and getattr(data[1], "ndim", 1) > 1


def load_maps(
    data: DataOrImages,
    output: Sequence[int],
    names: Sequence[str] | None,
    *,
    masked: bool,
    preprocessing: Preprocessing | None,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
) -> tuple[Samples, Samples]:
    """The same for a network that answers with maps, which no label of an image fits: masks judge, where there are any.

    output: the shape of an image's answers, classes first. names: those that the model itself gives its classes. masked: masks
    judge, where the data has any.
    """
    theirs = data.mask_classes if isinstance(data, ImageData) and data.train_masks is not None else ()
    if masked and names and theirs and tuple(names) != theirs:
        raise BadData(
            f"the masks are of {', '.join(theirs)}, and the model's classes are {', '.join(names)}; give masks of these, or "
            "the images alone (`labels` network)."
        )

    def samples(images: Images, masks: Any, use: np.ndarray, held: np.ndarray) -> Samples:
        known = None if masks is None or not masked or not len(images) else _checked(masks, len(images), output)
        none = np.zeros(len(images), np.int64)
        return Samples(unread(images), none, use, held, preprocessing, device, dtype, True, output[0], known)

    none = np.arange(0)
    if isinstance(data, ImageData) and len(data.test_labels):
        every = [np.arange(len(labels)) for labels in (data.train_labels, data.test_labels)]
        judged = samples(data.test_images, data.test_masks, none, every[1])
        return samples(data.train_images, data.train_masks, every[0], none), judged
    images = images_of(data)
    masks: Any = None
    if isinstance(data, ImageData):
        masks = data.train_masks
    elif isinstance(data, tuple | list):
        masks = data[1]
        if has_masks(data):  # also where they do not judge: the second of a pair may be another input
            _checked(masks, len(images), output)
    one = samples(images, masks, *hold_out(np.zeros(len(images), np.int64), key=(seed, 0)))
    return one, one


def _checked(masks: Any, images: int, output: Sequence[int]) -> Tensor:
    """Masks that have a class for every place of the answers."""
    array = masks.astype(np.int64) if isinstance(masks, np.ndarray) and masks.dtype == np.uint16 else masks
    given = tensor_of(array).cpu()
    if tuple(given.shape) != (images, *output[1:]) or given.is_floating_point():
        kind = str(given.dtype).removeprefix("torch.")
        raise BadData(
            f"the model answers an image with a map of {' × '.join(map(str, output))}, and the labels of {images} images are "
            f"{tuple(given.shape)}, {kind}; give masks of class numbers, {(images, *output[1:])}, or the images alone."
        )
    given = given.long()
    counted = given[given != IGNORE]
    if len(counted) and not 0 <= int(counted.min()) <= int(counted.max()) < output[0]:
        raise BadData(
            f"masks run from {int(counted.min())} to {int(counted.max())}, and the model has {output[0]} classes, numbered "
            f"from 0; {IGNORE} marks a place that does not count. Without masks, `labels` network, the model's own answers judge."
        )
    return given


def class_numbers(data: Data, known: Sequence[str], named: bool) -> np.ndarray:
    """The labels of the data as numbers of the model's classes."""
    _, labels = pair_of(data)
    if isinstance(data, ImageData):
        labels = _renumbered(data, known, named)[labels]
    if labels.min() < 0 or labels.max() >= len(known):
        raise BadData(f"labels run from {labels.min()} to {labels.max()}; the model has {len(known)} classes.")
    return labels.astype(np.int64)


def pair_of(data: Data) -> tuple[Tensor | StreamedImages, np.ndarray]:
    """Images and labels as they come; an ImageData's training split, numbered by its own classes."""
    data = pair_of_dataset(data)
    if isinstance(data, ImageData):
        images, labels = unread(data.train_images), data.train_labels
    else:
        try:
            given, answers = () if isinstance(data, Tensor | np.ndarray | Mapping | str) else data
        except (TypeError, ValueError):
            what = type(data).__name__
            raise BadData(
                f"data is a pair (images, labels), an ImageData, a Dataset or a DataLoader, not this {what}."
            ) from None
        if answers is None:
            raise BadData(
                "the labels are None; give a class number an image, or the images alone where there are none."
            )
        images, labels = unread(given), tensor_of(answers).cpu().numpy()
    if labels.shape != (len(images),) or not np.issubdtype(labels.dtype, np.integer):
        raise BadData(
            f"{len(images)} images and labels of shape {labels.shape}, {labels.dtype}; give one class number an image. "
            "(A network of several inputs is cut by the channels that you name, with brickwork.trace and select.)"
        )
    if len(labels) == 0:
        raise BadData("there are no images in the data.")
    return images, labels


def _renumbered(data: ImageData, known: Sequence[str], named: bool) -> np.ndarray:
    """For each class of the data, its number in the model: by name, or in order where the model has no names."""
    if not named:
        if len(data.classes) != len(known):
            raise BadData(
                f"{data.name} has {len(data.classes)} classes and the model {len(known)} without names; "
                "give (images, labels) with the model's own class numbers."
            )
        return np.arange(len(known))
    foreign = [name for name in data.classes if name not in known]
    if foreign:
        raise BadData(
            f"the model does not know {', '.join(map(repr, foreign[:10]))} of {data.name}; its classes are "
            f"{', '.join(known[:40])}. {which_to_select(data, known)}"
        )
    return np.array([list(known).index(name) for name in data.classes])
