"""A torch Dataset or DataLoader as the images and labels that every operation takes, read when they are wanted."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)
from torch.utils.data import default_collate as collate

from brickwork.data.folders import picture_array
from brickwork.data.images import ImageData
from brickwork.data.streamed import Images, StreamedImages
from brickwork.errors import BadData
from brickwork.words import some_of

TorchData = Dataset[Any] | DataLoader[Any]
ASKED = 100  # labels of which an item is looked at
IMAGE_KEYS, LABEL_KEYS = ("pixel_values", "image", "images", "img"), ("labels", "label", "target", "targets")


def is_dataset(data: object) -> bool:
    """Whether this is a torch Dataset or DataLoader."""
    return isinstance(data, Dataset | DataLoader)


def images_of(data: Any) -> Images:
    """The images alone, of whatever has them: an ImageData's training split, a Dataset's items, (images, labels)."""
    if isinstance(data, ImageData):
        return data.train_images
    if isinstance(data, tuple | list) and len(data) == 2:
        data = data[0]
    return _items(data)[0] if is_dataset(data) else data


def pair_of_dataset(data: Any, known: Sequence[str] | None = None) -> tuple[Images, Any]:
    """Images and labels of a torch Dataset or DataLoader; anything else is returned as it is.

    known: names of a network's classes. A Dataset that names its own (`classes`, as torchvision's do) is renumbered by them.

    >>> import torch
    >>> pairs = TensorDataset(torch.rand(6, 3, 8, 8), torch.arange(6) % 2)
    >>> images, labels = pair_of_dataset(DataLoader(pairs, batch_size=4, shuffle=True))
    >>> images.shape, labels.tolist()
    (torch.Size([6, 3, 8, 8]), [0, 1, 0, 1, 0, 1])
    """
    if not is_dataset(data):
        return data
    images, labels = _items(data)
    if labels is None:
        source = _indexed(data)
        assert source is not None
        labels = _labels(source)
    names = class_names_of(data)
    if names and known and labels.dtype.kind in "iu" and labels.ndim == 1 and tuple(names) != tuple(known):
        foreign = [name for name in names if name not in known]
        if foreign:
            raise BadData(
                f"the model does not know {some_of([repr(n) for n in foreign], 10)} of the data; its classes are "
                f"{some_of(known, 40)}. Leave those images out, or give the model these names: "
                "brickwork.origin.attach(model, Origin(classes=…))."
            )
        if labels.min() < 0 or labels.max() >= len(names):
            raise BadData(f"labels run from {labels.min()} to {labels.max()}; the data name {len(names)} classes.")
        labels = np.array([list(known).index(name) for name in names])[labels]
    return images, labels


def unpacked(data: Any, labels: Any, classes: Sequence[str] | None) -> tuple[Any, Any, Sequence[str] | None]:
    """Data, labels and class names as an operation is given them, a Dataset as the arrays it stands for, a pair as both."""
    if labels is None and isinstance(data, tuple) and len(data) == 2:
        return *data, classes
    if not is_dataset(data):
        return data, labels, classes
    if labels is not None:
        raise BadData("a Dataset brings its own labels; leave `labels` out, or give arrays.")
    return *pair_of_dataset(data, classes), classes or class_names_of(data)


def class_names_of(data: Any) -> tuple[str, ...] | None:
    """The names that a Dataset gives its classes (`classes`), also behind a DataLoader or a Subset."""
    while isinstance(data, DataLoader | Subset):
        data = data.dataset
    names = getattr(data, "classes", None)
    return tuple(names) if isinstance(names, list | tuple) and all(isinstance(n, str) for n in names) else None


def from_dataset(train: Any, test: Any, *, name: str = "dataset", classes: Sequence[str] | None = None) -> ImageData:
    """ImageData of two torch Datasets (or DataLoaders) of pictures: Pillow images or uint8 arrays, all of one size.

    classes: their names; else those of the training set, else numbers.
    """
    pairs = [pair_of_dataset(one) for one in (train, test)]
    for (images, labels), which in zip(pairs, ("train", "test"), strict=True):
        if images.dtype != np.uint8:
            raise BadData(
                f"{which} gives {images.dtype} images; leave its transform out, so that they come as pictures."
            )
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise BadData(f"{which} gives labels {labels.shape} {labels.dtype}; one whole number an image is needed.")
    top = max(int(labels.max()) + 1 for _, labels in pairs)
    names = tuple(classes or class_names_of(train) or map(str, range(top)))
    return ImageData(name, names, *pairs[0], *pairs[1])


def _items(data: Any) -> tuple[Any, np.ndarray | None]:
    """Images of a Dataset, unread where they can be had by number; then the labels are still to be read (None)."""
    source = _indexed(data)
    if source is None:
        return _spooled(data)
    if isinstance(source, TensorDataset) and source.tensors[0].is_floating_point():
        return source.tensors[0], None
    if len(source) == 0:
        raise BadData("there are no images in the data.")
    first = _picture(_parts(source[0])[0])
    # In this thread, one after another: a Dataset may keep a file open, and its transforms may draw random numbers.
    workers = data.num_workers if isinstance(data, DataLoader) else 0

    def read(index: np.ndarray) -> np.ndarray:
        size = -(-len(index) // max(1, workers))
        loader = DataLoader(Subset(source, index.tolist()), size, num_workers=workers, collate_fn=_stacked)
        return np.concatenate(list(loader))

    return StreamedImages(read, np.arange(len(source)), first.shape, first.dtype), None


def _stacked(items: list[Any]) -> np.ndarray:
    images = [_picture(_parts(item)[0]) for item in items]
    other = next((image.shape for image in images if image.shape != images[0].shape), None)
    if other is not None:
        raise BadData(
            f"images of the data are {images[0].shape} and {other}; resize them to one size in its transform."
        )
    return np.stack(images)


def _indexed(data: Any) -> Any:
    """The Dataset whose items can be asked for by number; None: it, or its loader, only gives one after another."""
    if isinstance(data, DataLoader):
        if (
            not _takes_all(data)
            or data.batch_size is None
            or data.collate_fn is not collate
            or isinstance(data.dataset, IterableDataset)
        ):
            return None
        return data.dataset
    return None if isinstance(data, IterableDataset) else data


def _takes_all(data: DataLoader[Any]) -> bool:
    """Whether a loader gives every item of its Dataset once, in whatever order."""
    sampler = data.sampler
    if isinstance(sampler, RandomSampler) and (sampler.replacement or sampler.num_samples != len(sampler.data_source)):
        return False
    return isinstance(sampler, SequentialSampler | RandomSampler) and sampler.data_source is data.dataset


def _parts(item: Any) -> tuple[Any, Any]:
    """Image and label of an item: of a pair, of a dictionary, or an image alone (None)."""
    if isinstance(item, dict):
        found = [next((item[key] for key in keys if key in item), None) for keys in (IMAGE_KEYS, LABEL_KEYS)]
        if found[0] is None:
            raise BadData(
                f"items of the data have {', '.join(map(str, item))}; an image is looked for as pixel_values or image."
            )
        return found[0], found[1]
    if isinstance(item, tuple | list):
        if len(item) < 2:
            return item[0], None
        return item[0], item[1]
    return item, None


def _picture(image: Any) -> np.ndarray:
    """One item's image: network input if floating, else raw (H, W, C) uint8."""
    if isinstance(image, Image.Image):
        return picture_array(image, None, 1 if image.mode in ("1", "L", "I;16", "LA") else 3)
    if isinstance(image, Tensor):
        image = image.detach().cpu()
        array = (image.float() if image.dtype == torch.bfloat16 else image).numpy()  # numpy has no bfloat16
        if array.dtype == np.uint8 and array.ndim == 3 and array.shape[0] in (1, 3):  # torch's order is (C, H, W)
            array = array.transpose(1, 2, 0)
    elif isinstance(image, np.ndarray):
        array = image
    else:
        raise BadData(f"an item's image is a {type(image).__name__}; it must be a tensor, an array or a Pillow image.")
    if array.dtype == np.uint8 and array.ndim == 2:
        array = array[..., None]
    if array.dtype.kind != "f" and array.dtype != np.uint8:
        raise BadData(f"an item's image is {array.dtype}; it must be uint8 or floating.")
    return array


def _labels(source: Any) -> np.ndarray:
    """All labels: those a data set keeps as `targets`, if its items bear them out, else read off item after item.

    Asked are the first item of every label and the last one of all: a data set may number classes anew in its items.
    """
    if len(source) == 0:
        raise BadData("there are no images in the data.")
    kept = _kept(source)
    if kept is not None:
        firsts = np.unique(kept, axis=0, return_index=True)[1][:ASKED].tolist()
        if all(np.array_equal(kept[k], _truth([_parts(source[k])[1]])[0]) for k in {0, *firsts, len(source) - 1}):
            return kept
    return _truth([_parts(source[k])[1] for k in range(len(source))])


def _kept(source: Any) -> np.ndarray | None:
    if isinstance(source, Subset):
        whole = _kept(source.dataset)
        return None if whole is None else whole[np.asarray(source.indices, np.int64)]
    if isinstance(source, TensorDataset):
        return np.asarray(source.tensors[1]) if len(source.tensors) > 1 else None
    targets = getattr(source, "targets", None)
    if targets is None or getattr(source, "target_transform", None) is not None or len(targets) != len(source):
        return None
    return _truth(list(targets))


def _truth(labels: list[Any]) -> np.ndarray:
    if any(label is None for label in labels) or not labels:
        raise BadData("items of the data have no label; they must be pairs (image, label).")
    return np.stack([np.asarray(label) for label in labels])


class _Spool:
    """Images in a file that lasts as long as this object."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="brickwork-images-"))
        self.path, self.count = folder / "images", 0
        self.like: np.ndarray | None = None
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def write(self, images: Iterator[np.ndarray]) -> None:
        with open(self.path, "wb") as file:
            for image in images:
                self.like = image if self.like is None else self.like
                if image.shape != self.like.shape or image.dtype != self.like.dtype:
                    raise BadData(
                        f"image {self.count} of the data is {image.shape} and image 0 {self.like.shape}; resize them."
                    )
                file.write(np.ascontiguousarray(image).data)
                self.count += 1

    def read(self, index: np.ndarray) -> np.ndarray:
        assert self.like is not None
        # mapped anew for every batch: a map that stays keeps every page that was looked at
        return np.asarray(np.memmap(self.path, self.like.dtype, "r", shape=(self.count, *self.like.shape)))[index]


def _spooled(data: Any) -> tuple[StreamedImages, np.ndarray]:
    """What comes one after another, written to a file once and read from there: memory holds a batch at a time."""
    spool, labels = _Spool(), []

    def pictures() -> Iterator[np.ndarray]:
        for image, label in _one_by_one(data):
            labels.append(label)
            yield _picture(image)

    spool.write(pictures())
    if spool.like is None:
        raise BadData("there are no images in the data.")
    return StreamedImages(spool.read, np.arange(spool.count), spool.like.shape, spool.like.dtype), _truth(labels)


def _one_by_one(data: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(data, DataLoader) or (data.batch_size is None and data.batch_sampler is None):
        yield from map(_parts, data)
        return
    for batch in data:
        images, labels = _parts(batch)
        if labels is None or len(images) != len(labels):
            raise BadData("a batch of the loader is no pair of as many images as labels.")
        yield from zip(images, labels, strict=True)
