"""Images from a Hugging Face data set: a name on the hub, or a folder written by `save_to_disk`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from brickwork.data.folders import picture_array
from brickwork.data.images import ImageData, hold_out
from brickwork.data.streamed import StreamedImages
from brickwork.errors import BadData, BadFile, MissingExtra
from brickwork.origin import Framing


def load_hugging_face(
    source: str, *, size: int | tuple[int, int] | None = None, channels: int = 3, framing: Framing | None = None
) -> ImageData:
    """The first image column and the first class-label column; split names train and test (or validation)."""
    try:
        import datasets
    except ImportError:
        raise MissingExtra("hf", "Hugging Face data sets") from None
    path = Path(source)
    try:
        loaded: Any = datasets.load_from_disk(source) if path.is_dir() else datasets.load_dataset(source)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise BadFile(f"hfds:{source} cannot be loaded: {error}") from error
    parts = dict(loaded) if hasattr(loaded, "keys") else {"train": loaded}
    train = parts.get("train") or next(iter(parts.values()))
    test = next((parts[name] for name in ("test", "validation", "valid") if name in parts), None)
    if test is train:
        test = None
    image_column, label_column, classes = _columns(train.features, datasets, source)
    target = (size, size) if isinstance(size, int) else size
    columns = image_column, label_column
    images, labels = _arrays(train, columns, target, channels, framing, source)
    if test is None:
        keep, held = hold_out(labels)
        return ImageData(f"hfds:{source}", classes, images[keep], labels[keep], images[held], labels[held], piled=True)
    tested = _arrays(test, columns, (images.shape[1], images.shape[2]), channels, framing, source)
    return ImageData(f"hfds:{source}", classes, images, labels, *tested)


def _columns(features: Any, datasets: Any, source: str) -> tuple[str, str, tuple[str, ...]]:
    image = next((name for name, kind in features.items() if isinstance(kind, datasets.Image)), None)
    label = next((name for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)), None)
    if image is None or label is None:
        raise BadData(f"hfds:{source} has columns {dict(features)}; an Image and a ClassLabel column are needed.")
    return image, label, tuple(features[label].names)


def _arrays(
    rows: Any,
    columns: tuple[str, str],
    size: tuple[int, int] | None,
    channels: int,
    framing: Framing | None,
    source: str,
) -> tuple[np.ndarray | StreamedImages, np.ndarray]:
    if len(rows) == 0:
        raise BadData(f"hfds:{source} holds no images.")
    image, label = columns
    if size is None:
        size = _one_size(rows, image, source)

    def read(index: np.ndarray) -> np.ndarray:
        return np.stack([picture_array(row[image], size, channels, framing) for row in rows.select(index)])

    images = StreamedImages(read, np.arange(len(rows)), (*size, channels))
    return images.kept(), np.array(rows[label], np.int64)


def _one_size(rows: Any, image: str, source: str) -> tuple[int, int]:
    sizes = {(row[image].height, row[image].width) for row in rows}
    if len(sizes) > 1:
        raise BadData(f"hfds:{source} holds images of different sizes; give one `size` for all, as in 64.")
    return sizes.pop()
