"""ImageData: training and test images of one data set, as plain arrays or read when wanted."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brickwork.data.pixels import as_input, change_channels, check_raw, measure, resize, resize_masks
from brickwork.data.streamed import StreamedImages, concatenated
from brickwork.devices import DeviceLike
from brickwork.errors import BadData, RequestError
from brickwork.origin import Framing, Preprocessing
from brickwork.words import counted

SPLITS = ("train", "test")
IGNORE = 255  # a mask value that neither trains nor counts


@dataclass(frozen=True)
class ImageData:
    """Images (N, H, W, C) uint8 and labels (N,) int64, for training and for testing.

    Images of more than 128 MB from files are StreamedImages: indexed like arrays, read when they are wanted.

    >>> from brickwork import data
    >>> data.load("digits:A@20")
    ImageData(digits:A@20: 100 training, 180 test images, 32×32×3, 5 classes)
    """

    name: str
    classes: tuple[str, ...]
    train_images: Any  # an array, or StreamedImages, which are indexed like one
    train_labels: np.ndarray
    test_images: Any
    test_labels: np.ndarray
    train_masks: np.ndarray | None = None  # (N, H, W) uint8 class numbers; 255: ignored
    test_masks: np.ndarray | None = None
    mask_classes: tuple[str, ...] = ()
    piled: bool = False  # the images came as one pile, of which the test split is a part drawn by us

    def __post_init__(self) -> None:
        for split in SPLITS:
            images, labels, masks = self.split(split)
            check_raw(images)
            if labels.shape != (len(images),):
                raise BadData(f"{self.name}: {len(images)} {split} images and labels of shape {labels.shape}.")
            if len(labels) and not (labels.min() >= 0 and labels.max() < len(self.classes)):
                raise BadData(
                    f"{self.name}: {split} labels run from {labels.min()} to {labels.max()}, "
                    f"but there are {len(self.classes)} classes, numbered from 0."
                )
            if masks is not None and masks.shape != images.shape[:3]:
                raise BadData(f"{self.name}: {split} masks are {masks.shape}, images {images.shape}.")

    @property
    def source(self) -> str:
        """The name of the data set, without the classes and amount that were chosen of it."""
        return re.split("[:@]", self.name, maxsplit=1)[0]

    def __repr__(self) -> str:
        height, width, channels = self.shape
        return (
            f"ImageData({self.name}: {len(self.train_labels)} training, {len(self.test_labels)} test images"
            f", {height}×{width}×{channels}, {counted(len(self.classes), 'class')})"
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of one image."""
        height, width, channels = self.train_images.shape[1:]
        return height, width, channels

    def split(self, split: str) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """Images, labels and masks (None without) of 'train' or 'test'."""
        if split not in SPLITS:
            raise RequestError(f"split is {split!r}; it must be 'train' or 'test'.")
        if split == "train":
            return self.train_images, self.train_labels, self.train_masks
        return self.test_images, self.test_labels, self.test_masks

    def preprocessing(self) -> Preprocessing:
        """Size, channels, mean and standard deviation of the training images."""
        return measure(self.train_images)

    def tensors(
        self, split: str = "test", preprocessing: Preprocessing | None = None, device: DeviceLike = "cpu"
    ) -> tuple[Tensor, Tensor]:
        """Network input (N, C, H, W) float32 and labels (N,) of a split; its own preprocessing by default."""
        images, labels, _ = self.split(split)
        prepared = as_input(images, preprocessing or self.preprocessing(), device)
        return prepared.contiguous(), torch.as_tensor(labels).to(device)

    def select(self, classes: Sequence[int]) -> ImageData:
        """Only some classes, renumbered 0..k-1 in the order given."""
        if list(classes) == list(range(len(self.classes))):
            return self
        number = np.full(len(self.classes), -1, np.int64)
        number[list(classes)] = np.arange(len(classes))
        kept = self._where({split: np.flatnonzero(number[self.split(split)[1]] >= 0) for split in SPLITS})
        return replace(
            kept,
            classes=tuple(self.classes[i] for i in classes),
            train_labels=number[kept.train_labels],
            test_labels=number[kept.test_labels],
        )

    def take(self, amount: int, *, split: str = "train", seed: int = 0) -> ImageData:
        """So many images a class of one split. The draw depends on the seed and the class's name alone."""
        labels = self.split(split)[1]
        chosen = []
        for index, name in enumerate(self.classes):
            own = np.flatnonzero(labels == index)
            if len(own) < amount:
                raise BadData(f"{self.name}: {amount} {split} images a class asked for, {name!r} has {len(own)}.")
            # By name, not by number: cifar10:B@4 then holds the same images as that half of cifar10@4.
            draw = np.random.default_rng([seed, zlib.crc32(name.encode())])
            chosen.append(np.sort(draw.permutation(own)[:amount]))
        return self._where({split: np.sort(np.concatenate(chosen))})

    def pooled(self) -> ImageData:
        """All images as test images: a pile that none of them was trained on is judged on whole."""
        parts = [
            None if one is None or two is None else concatenated([one, two])
            for one, two in zip(self.split("train"), self.split("test"), strict=True)
        ]
        none = self._where({"train": np.zeros(0, np.int64)})
        return replace(none, test_images=parts[0], test_labels=parts[1], test_masks=parts[2], piled=False)  # type: ignore[arg-type]

    def fit(
        self, *, size: int | tuple[int, int] | None = None, channels: int | None = None, framing: Framing | None = None
    ) -> ImageData:
        """Every image brought to a height and width, and to 1 (grey) or 3 (RGB) channels."""
        target = (size, size) if isinstance(size, int) else size or self.shape[:2]
        target_channels = channels or self.shape[2]
        if (*target, target_channels) == self.shape:
            return self

        def images(array: Any) -> Any:
            if isinstance(array, StreamedImages):
                return array.mapped(images)
            tensor = torch.from_numpy(array).permute(0, 3, 1, 2)
            if target_channels != self.shape[2]:
                tensor = change_channels(tensor, target_channels)
            if target != self.shape[:2] and len(tensor):
                tensor = resize(tensor, target, framing)
            elif target != self.shape[:2]:
                tensor = tensor.new_empty((0, target_channels, *target))
            return tensor.permute(0, 2, 3, 1).contiguous().numpy()

        def masks(array: np.ndarray | None) -> np.ndarray | None:
            if array is None or target == self.shape[:2]:
                return array
            return resize_masks(torch.from_numpy(array), target).numpy()

        return replace(
            self,
            train_images=images(self.train_images),
            test_images=images(self.test_images),
            train_masks=masks(self.train_masks),
            test_masks=masks(self.test_masks),
        )

    def draw(self, count: int, seed: int) -> ImageData:
        """At most so many training images, drawn with the seed, of whatever class."""
        images, labels = (drawn_images(part, count, seed) for part in (self.train_images, self.train_labels))
        return replace(self, train_images=images, train_labels=labels, train_masks=None)

    def _where(self, rows: dict[str, np.ndarray]) -> ImageData:
        changes: dict[str, Any] = {}
        for split, index in rows.items():
            for field, array in zip(("images", "labels", "masks"), self.split(split), strict=True):
                if array is not None:
                    changes[f"{split}_{field}"] = array[index]
        return replace(self, **changes)


HELD_OUT = 0.2  # share of every class that only judges


def hold_out(
    labels: np.ndarray, fraction: float = HELD_OUT, *, key: Sequence[int] | None = None, least: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Indices to use and to judge on: the same share of every class, `least` of them at least, never all of one.

    Without a key always the same ones, on purpose: a model trained with one seed must not be tested, under another, on
    what it has seen. With a key (a seed and a number of the purpose) the draw is that of the key and the class.

    >>> [len(part) for part in hold_out(np.repeat([0, 1], [10, 20]))]
    [24, 6]
    """
    test = []
    for label in np.unique(labels):
        draw = np.random.default_rng(0 if key is None else [*key, int(label)])
        own = draw.permutation(np.flatnonzero(labels == label))
        test.append(own[: min(len(own) - 1, max(least, round(fraction * len(own))))])
    held = np.sort(np.concatenate(test)) if test else np.zeros(0, np.int64)
    return np.setdiff1d(np.arange(len(labels)), held), held


def drawn_images(images: Any, count: int, seed: int) -> Any:
    """At most so many of the images, drawn with the seed, in their order; the same places for every array."""
    drawn = np.random.default_rng([seed, 3]).permutation(len(images))[:count]
    return images[np.sort(drawn)]
