"""The 1,797 handwritten digits that come with scikit-learn: real images, no download."""

from __future__ import annotations

import functools
import gzip
import importlib.util
from pathlib import Path

import numpy as np
import torch

from brickwork.data.images import ImageData, hold_out
from brickwork.data.pixels import resize
from brickwork.errors import RequestError

SIZES = (8, 32)


@functools.cache
def load_digits(size: int = 32, channels: int = 3) -> ImageData:
    """The digits at 8×8 (as they are) up to 32×32 (LeNet's size), grey or RGB, with a mask of the ink.

    >>> digits = load_digits(16, channels=1)
    >>> digits.train_images.shape, digits.mask_classes
    ((1438, 16, 16, 1), ('background', 'digit'))
    """
    if not SIZES[0] <= size <= SIZES[1]:
        raise RequestError(f"digits of size {size}; it must be {SIZES[0]} to {SIZES[1]}.")
    if channels not in (1, 3):
        raise RequestError(f"digits with {channels} channels; it must be 1 (grey) or 3 (RGB).")
    counts, labels = _embedded()
    ink = np.round(counts * (255 / 16)).astype(np.uint8)
    grey = resize(torch.from_numpy(ink)[:, None], (size, size)).numpy()[:, 0] if size != 8 else ink
    images = np.repeat(grey[..., None], channels, axis=3)
    masks = (grey >= 128).astype(np.uint8)
    train, test = hold_out(labels)
    return ImageData(
        name="digits",
        classes=tuple(str(i) for i in range(10)),
        train_images=images[train],
        train_labels=labels[train],
        test_images=images[test],
        test_labels=labels[test],
        train_masks=masks[train],
        test_masks=masks[test],
        mask_classes=("background", "digit"),
    )


def _embedded() -> tuple[np.ndarray, np.ndarray]:
    """Ink of 0 to 16, (1797, 8, 8), and labels, from scikit-learn's file: its code takes seconds to import."""
    result = importlib.util.find_spec("sklearn")
    for folder in (result.submodule_search_locations or ()) if result else ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            with gzip.open(file, "rt") as lines:
                table = np.loadtxt(lines, delimiter=",")
            return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits as embedded  # a version that keeps the file elsewhere

    raw = embedded()
    return raw.images, raw.target.astype(np.int64)
