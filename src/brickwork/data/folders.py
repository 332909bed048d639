"""Images in folders, a sub-folder a class, decoded by Pillow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from brickwork.data.images import ImageData, hold_out
from brickwork.errors import BadData, BadFile

SYSTEM_FILES = {"thumbs.db", "desktop.ini"}  # what file managers leave behind
Size = tuple[int, int]


def load_folder(folder: Path, *, size: int | Size | None = None, channels: int = 3) -> ImageData:
    """FOLDER/CLASS/image, or FOLDER/train/CLASS/image with FOLDER/test/CLASS/image.

    Without train/ and test/, a fifth of every class is held out for testing. Images of different sizes need
    `size`: the shorter side is scaled to it and the middle is kept.
    """
    target = (size, size) if isinstance(size, int) else size
    split = {name: folder / name for name in ("train", "test") if (folder / name).is_dir()}
    if "train" not in split:
        classes, images, labels = _read(folder, target, channels)
        train, test = hold_out(labels)
        parts = images[train], labels[train], images[test], labels[test]
    else:
        classes, images, labels = _read(split["train"], target, channels)
        if "test" in split:
            target = images.shape[1:3]
            test_classes, test_images, test_labels = _read(split["test"], target, channels)
            new = sorted(set(test_classes) - set(classes))
            if new:
                raise BadData(f"{folder}/test has classes that {folder}/train has not: {', '.join(new)}.")
            number = np.array([classes.index(name) for name in test_classes], np.int64)
            parts = images, labels, test_images, number[test_labels]
        else:
            train, test = hold_out(labels)
            parts = images[train], labels[train], images[test], labels[test]
    return ImageData(str(folder), tuple(classes), *parts)


def _read(folder: Path, size: Size | None, channels: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    result = {path.name: _files(path) for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] != "."}
    result = {name: files for name, files in result.items() if files}
    if not result:
        raise BadData(f"{folder} holds no images; expected one sub-folder a class, with the images in it.")
    images, labels, first = [], [], None
    for label, files in enumerate(result.values()):
        for path in files:
            image = _decode(path, size, channels)
            first = first or (path, image.shape)
            if image.shape != first[1]:
                raise BadData(
                    f"{path} is {image.shape[0]}×{image.shape[1]} and {first[0]} {first[1][0]}×{first[1][1]}"
                    "; give one `size` for all, as in 64."
                )
            images.append(image)
            labels.append(label)
    return list(result), np.stack(images), np.array(labels, np.int64)


def _files(folder: Path) -> list[Path]:
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name[0] != "." and path.name.lower() not in SYSTEM_FILES
    ]


def _decode(path: Path, size: Size | None, channels: int) -> np.ndarray:
    try:
        with Image.open(path) as image:
            return picture_array(image, size, channels)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadFile(f"{path} is not an image Pillow can read ({error}); remove it or mend it.") from error


def picture_array(image: Image.Image, size: Size | None, channels: int) -> np.ndarray:
    """A Pillow image as (H, W, C) uint8, the middle kept when it is scaled to `size`."""
    image = image.convert("L" if channels == 1 else "RGB")
    if size is not None and (image.height, image.width) != tuple(size):
        scale = max(size[0] / image.height, size[1] / image.width)
        width, height = max(size[1], round(image.width * scale)), max(size[0], round(image.height * scale))
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = (width - size[1]) // 2, (height - size[0]) // 2
        image = image.crop((left, top, left + size[1], top + size[0]))
    array = np.asarray(image, np.uint8)
    return array[..., None] if array.ndim == 2 else array
