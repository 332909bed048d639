"""Images that are read when they are wanted: files, rows of an array on the disk, items of a torch Dataset."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from brickwork.errors import BadData

HELD = 2**27  # bytes of images that are read once and kept; beyond, they are read whenever they are wanted
BATCH = 256  # images that are looked at together where all of them are

RAW = np.dtype(np.uint8)
One = TypeVar("One")
Result = TypeVar("Result")


@dataclass(frozen=True)
class StreamedImages:
    """Looks like an array of images, (N, H, W, C) uint8 or network input, and holds none of them.

    An index or a slice gives fewer images, still unread; one number, `np.asarray` or `tensor` reads them.

    >>> squares = StreamedImages(lambda index: index[:, None] ** 2, np.arange(100), (1,), np.dtype(np.int64))
    >>> squares[10:20][[0, 3]].shape, np.asarray(squares[10:20][[0, 3]]).ravel().tolist()
    ((2, 1), [100, 169])
    """

    read: Callable[[np.ndarray], np.ndarray]  # numbers of images to the images
    index: np.ndarray
    one: tuple[int, ...]  # shape of one image
    dtype: np.dtype[Any] = RAW

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.index), *self.one)

    @property
    def ndim(self) -> int:
        return 1 + len(self.one)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """As of a tensor."""
        return self.dtype.kind == "f"

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, tuple):
            return np.asarray(self)[which]
        if isinstance(which, int | np.integer):
            return self.read(self.index[[int(which)]])[0]
        which = which if isinstance(which, slice) else np.asarray(which)
        return StreamedImages(self.read, self.index[which], self.one, self.dtype)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (image for start in range(0, len(self), BATCH) for image in np.asarray(self[start : start + BATCH]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        images = self.read(self.index) if len(self.index) else np.zeros(self.shape, self.dtype)
        return images if dtype is None else images.astype(dtype, copy=False)

    def tensor(self) -> Tensor:
        """The images, read."""
        return torch.from_numpy(np.asarray(self))

    def mapped(self, change: Callable[[np.ndarray], np.ndarray]) -> StreamedImages:
        """The same images, changed whenever they are read; `change` is tried on the first."""
        like = change(np.asarray(self[:1]))
        return StreamedImages(lambda index: change(self.read(index)), self.index, like.shape[1:], like.dtype)

    def kept(self) -> np.ndarray | StreamedImages:
        """As an array, where it is small enough to be read once and kept."""
        return np.asarray(self) if self.nbytes <= HELD else self


Images = np.ndarray | Tensor | StreamedImages


def keeping(read: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """The same reader, which keeps the first images it reads, up to 128 MB: repair and judging look at the same again."""
    kept: dict[int, np.ndarray] = {}
    room = HELD

    def reading(index: np.ndarray) -> np.ndarray:
        nonlocal room
        new = [k for k in dict.fromkeys(index.tolist()) if k not in kept]
        fresh = dict(zip(new, read(np.array(new)), strict=True)) if new else {}
        for k, image in fresh.items():
            if image.nbytes <= room:
                kept[k] = image.copy()
                room -= image.nbytes
        return np.stack([fresh[k] if k in fresh else kept[k] for k in index.tolist()])

    return reading


def tensor_of(images: Images) -> Tensor:
    """Images as a tensor, read if they are not yet."""
    return images.tensor() if isinstance(images, StreamedImages) else _tensor(images)


def _tensor(array: Any) -> Tensor:
    """An array as a tensor that shares its memory; one that runs backwards (`images[::-1]`), which torch has none for, copied."""
    backwards = isinstance(array, np.ndarray) and any(step < 0 for step in array.strides)
    try:
        return torch.as_tensor(array.copy() if backwards else array)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(array).__name__
        raise BadData(
            f"images and labels are an array or tensor each; of this {kind} torch makes none ({error})."
        ) from None


def unread(images: Images) -> Tensor | StreamedImages:
    """The same images as something with tensor-like slices, of which none is read yet."""
    return images if isinstance(images, StreamedImages) else _tensor(images)


def concatenated(parts: Sequence[Any]) -> Any:
    """One array after another; not read where one of them is not."""
    if not any(isinstance(part, StreamedImages) for part in parts):
        return np.concatenate(parts)
    ends = np.cumsum([len(part) for part in parts])
    begins = ends - [len(part) for part in parts]

    def read(index: np.ndarray) -> np.ndarray:
        owner = np.searchsorted(ends, index, side="right")
        result = np.empty((len(index), *parts[0].shape[1:]), parts[0].dtype)
        for k in np.unique(owner):
            result[owner == k] = np.asarray(parts[k][index[owner == k] - begins[k]])
        return result

    return StreamedImages(read, np.arange(ends[-1]), tuple(parts[0].shape[1:]), np.dtype(parts[0].dtype))


def on_all_cores(work: Callable[[One], Result], items: Iterable[One]) -> list[Result]:
    """The work on every item in threads: Pillow and numpy let others run while they decode and copy."""
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(work, items))


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ahead(batches: Iterable[Result]) -> Iterator[Result]:
    """The same, each read in a thread while the one before is worked on."""
    source = iter(batches)
    end = object()
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, source, end)
        while (batch := coming.result()) is not end:
            coming = pool.submit(next, source, end)
            yield batch  # type: ignore[misc]
