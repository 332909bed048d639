"""Images from .npz files and .npy pairs. Nothing is ever unpickled."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from brickwork.atomic import check_file, write_file
from brickwork.data.images import IGNORE, SPLITS, ImageData, hold_out
from brickwork.data.pixels import check_raw
from brickwork.data.streamed import StreamedImages
from brickwork.errors import BadData, BadFile
from brickwork.limits import read_npy, read_npz


def load_npz(path: Path, name: str) -> ImageData:
    """An .npz of train_images, train_labels, test_images, test_labels, classes; or of images and labels."""
    arrays = read_npz(path)
    classes = tuple(str(c) for c in arrays["classes"]) if "classes" in arrays else None
    if "images" in arrays and "labels" in arrays:
        return from_arrays(arrays["images"], arrays["labels"], name=name, classes=classes, masks=arrays.get("masks"))
    needed = [f"{split}_{kind}" for split in ("train", "test") for kind in ("images", "labels")]
    missing = [key for key in needed if key not in arrays]
    if missing:
        raise BadFile(
            f"{path} holds {', '.join(arrays) or 'nothing'}; missing: {', '.join(missing)} "
            "(or images and labels alone)."
        )
    masks: dict[str, Any] = {f"{split}_masks": arrays.get(f"{split}_masks") for split in ("train", "test")}
    mask_classes: tuple[str, ...] = ()
    if name == "pets" and all(m is not None for m in masks.values()):
        # Its trimaps count 1 animal, 2 background, 3 border; the border is nobody's.
        table = np.array([IGNORE, 1, 0, IGNORE], np.uint8)
        masks = {key: table[value] for key, value in masks.items()}
        mask_classes = ("background", "animal")
    elif masks["train_masks"] is not None:
        mask_classes = _mask_classes(masks["train_masks"])
    labels = {split: _labels(arrays[f"{split}_labels"], f"{path}: {split}_labels") for split in ("train", "test")}
    return ImageData(
        name=name,
        classes=classes or _numbered(np.concatenate(list(labels.values()))),
        train_images=_images(arrays["train_images"]),
        train_labels=labels["train"],
        test_images=_images(arrays["test_images"]),
        test_labels=labels["test"],
        mask_classes=mask_classes,
        **masks,
    )


def save_npz(images: ImageData, path: str | Path, *, force: bool = False) -> None:
    """Write images as the .npz that `load_npz` reads, whole or not at all."""
    check_file(path, force=force)
    arrays: dict[str, Any] = {"classes": np.array(images.classes)}
    for split in SPLITS:
        pixels, labels, masks = images.split(split)
        arrays |= {f"{split}_images": np.asarray(pixels[:]), f"{split}_labels": labels}
        arrays |= {} if masks is None else {f"{split}_masks": masks}
    with write_file(path, force=force) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load_npy_pair(source: str) -> ImageData:
    """Two files, IMAGES.npy+LABELS.npy; a fifth of every class is held out for testing."""
    parts = source.split("+")
    if len(parts) != 2:
        raise BadFile(f"{source!r}: .npy files come as a pair, images+labels, as in 'x.npy+y.npy'.")
    images = _images(read_npy(Path(parts[0]), mapped=True))
    # mapped anew for every batch: a map that stays keeps every page that was looked at
    rows = StreamedImages(partial(_rows, Path(parts[0])), np.arange(len(images)), images.shape[1:])
    return from_arrays(rows.kept(), read_npy(Path(parts[1])), name=source)


def _rows(path: Path, index: np.ndarray) -> np.ndarray:
    return _images(np.asarray(read_npy(path, mapped=True)))[index]


def from_arrays(
    images: np.ndarray | StreamedImages,
    labels: np.ndarray,
    *,
    name: str = "arrays",
    classes: tuple[str, ...] | None = None,
    masks: np.ndarray | None = None,
) -> ImageData:
    """ImageData of one pile of images; a fifth of every class is held out for testing.

    >>> from_arrays(np.zeros((10, 8, 8), np.uint8), np.arange(10) % 2).classes
    ('0', '1')
    """
    images, labels = _images(images), _labels(labels, name)
    if len(images) != len(labels):
        raise BadData(f"{name}: {len(images)} images and {len(labels)} labels.")
    train, test = hold_out(labels)
    return ImageData(
        name=name,
        classes=classes or _numbered(labels),
        train_images=images[train],
        train_labels=labels[train],
        test_images=images[test],
        test_labels=labels[test],
        train_masks=None if masks is None else masks[train],
        test_masks=None if masks is None else masks[test],
        mask_classes=() if masks is None else _mask_classes(masks),
        piled=True,
    )


def _images(images: Any) -> Any:
    if images.ndim == 3:  # grey, without a channel axis
        images = images[..., None]
    check_raw(images)
    return images


def _labels(labels: np.ndarray, where: str) -> np.ndarray:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise BadData(f"{where}: labels are {labels.shape} {labels.dtype}; they must be one whole number an image.")
    return labels.astype(np.int64)


def _numbered(labels: np.ndarray) -> tuple[str, ...]:
    return tuple(str(i) for i in range(int(labels.max()) + 1)) if len(labels) else ()


def _mask_classes(masks: np.ndarray) -> tuple[str, ...]:
    counted = masks[masks != IGNORE]
    return tuple(str(i) for i in range(int(counted.max()) + 1)) if counted.size else ()
