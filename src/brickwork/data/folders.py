"""Images in folders, a sub-folder a class, decoded by Pillow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from brickwork.data.images import ImageData, hold_out
from brickwork.data.pixels import middle, scaled_sides
from brickwork.errors import BadData, BadFile
from brickwork.origin import Framing
from brickwork.words import counted

SYSTEM_FILES = {"thumbs.db", "desktop.ini"}  # what file managers leave behind
#: by what a file is passed over: it says itself that it is no image
OTHER_KINDS = {
    *(
        ".txt",
        ".md",
        ".rst",
        ".csv",
        ".tsv",
        ".json",
        ".jsonl",
        ".xml",
        ".yaml",
        ".yml",
        ".toml",
        ".ini",
        ".cfg",
        ".log",
    ),
    *(".html", ".htm", ".pdf", ".doc", ".docx", ".xls", ".xlsx", ".py", ".ipynb", ".sh", ".bat", ".db", ".lock"),
    *(".zip", ".tar", ".gz", ".tgz", ".7z", ".rar", ".npy", ".npz", ".mat", ".pkl", ".pt", ".pth", ".safetensors"),
    *(".mp4", ".avi", ".mov", ".mkv", ".mp3", ".wav"),
}
TEST_NAMES = ("test", "val", "valid", "validation")  # the first that is there
RESAMPLING = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "nearest": Image.Resampling.NEAREST,
}
Size = tuple[int, int]


def load_folder(
    folder: Path, *, size: int | Size | None = None, channels: int = 3, framing: Framing | None = None
) -> ImageData:
    """FOLDER/CLASS/image, or FOLDER/train/CLASS/image with FOLDER/test/CLASS/image (or val, valid, validation).

    Without a folder of test images, a fifth of every class is held out for testing. Images of different sizes need
    `size`: the shorter side is scaled to it and the middle is kept, unless `framing` says otherwise.
    """
    target = (size, size) if isinstance(size, int) else size
    tests = [folder / name for name in TEST_NAMES if (folder / name).is_dir()]
    if not (folder / "train").is_dir():
        classes, images, labels = _read(folder, target, channels, framing)
        train, test = hold_out(labels)
        held = images[test], labels[test]
        return ImageData(str(folder), tuple(classes), images[train], labels[train], *held, piled=True)
    classes, images, labels = _read(folder / "train", target, channels, framing)
    if not tests:
        train, test = hold_out(labels)
        return ImageData(str(folder), tuple(classes), images[train], labels[train], images[test], labels[test])
    test_classes, test_images, test_labels = _read(tests[0], images.shape[1:3], channels, framing)
    new = sorted(set(test_classes) - set(classes))
    if new:
        raise BadData(f"{tests[0]} has classes that {folder}/train has not: {', '.join(new)}.")
    number = np.array([classes.index(name) for name in test_classes], np.int64)
    return ImageData(str(folder), tuple(classes), images, labels, test_images, number[test_labels])


def _read(
    folder: Path, size: Size | None, channels: int, framing: Framing | None
) -> tuple[list[str], np.ndarray, np.ndarray]:
    result = {path.name: _files(path) for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] != "."}
    result = {name: files for name, files in result.items() if files}
    if not result:
        raise BadData(f"{folder} holds no images; expected one sub-folder a class, with the images in it.")
    images, labels, first, bad = [], [], None, []
    for label, files in enumerate(result.values()):
        for path in files:
            try:
                image = _decode(path, size, channels, framing)
            except BadFile as error:
                bad.append(error)  # all of them are told at once
                continue
            first = first or (path, image.shape)
            if image.shape != first[1]:
                raise BadData(
                    f"{path} is {image.shape[0]}×{image.shape[1]} and {first[0]} {first[1][0]}×{first[1][1]}"
                    "; give one `size` for all, as in 64."
                )
            images.append(image)
            labels.append(label)
    if bad:
        shown = "; ".join(str(error) for error in bad[:MOST_SHOWN])
        more = f"; and {len(bad) - MOST_SHOWN} more" if len(bad) > MOST_SHOWN else ""
        raise BadFile(f"{counted(len(bad), 'file')} of {folder} cannot be read: {shown}{more}. Remove or mend them.")
    return list(result), np.stack(images), np.array(labels, np.int64)


MOST_SHOWN = 50  # unreadable files in one message


def _files(folder: Path) -> list[Path]:
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.name[0] != "."
        and path.name.lower() not in SYSTEM_FILES
        and path.suffix.lower() not in OTHER_KINDS
    ]


def _decode(path: Path, size: Size | None, channels: int, framing: Framing | None) -> np.ndarray:
    try:
        with Image.open(path) as image:
            return picture_array(image, size, channels, framing)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        text = str(error).replace(f"'{path}'", "it").removesuffix(".")
        raise BadFile(f"{path} is not an image Pillow can read ({text})") from error


def picture_array(image: Image.Image, size: Size | None, channels: int, framing: Framing | None = None) -> np.ndarray:
    """A Pillow image as (H, W, C) uint8, the middle kept when it is scaled to `size`."""
    framing = framing or Framing()
    if image.mode.startswith("I;16"):  # 0..65535, which converting would cut off at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    image = image.convert("L" if channels == 1 else "RGB")
    resampling = RESAMPLING[framing.interpolation]
    if size is not None and framing.resize is not None:
        height, width = scaled_sides((image.height, image.width), framing.resize)
        image = image.resize((width, height), resampling)
        top, left = middle((height, width), size)
        image = image.crop((left, top, left + size[1], top + size[0]))
    elif size is not None and (image.height, image.width) != tuple(size):
        scale = max(size[0] / image.height, size[1] / image.width)
        width, height = max(size[1], round(image.width * scale)), max(size[0], round(image.height * scale))
        image = image.resize((width, height), resampling)
        left, top = (width - size[1]) // 2, (height - size[0]) // 2
        image = image.crop((left, top, left + size[1], top + size[0]))
    array = np.asarray(image, np.uint8)
    return array[..., None] if array.ndim == 2 else array
