"""Images in folders, a sub-folder a class, decoded by Pillow."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from brickwork.data.images import ImageData, hold_out
from brickwork.data.pixels import middle, scaled_sides
from brickwork.data.streamed import HELD, StreamedImages, keeping, on_all_cores
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
    folder: Path,
    *,
    size: int | Size | None = None,
    channels: int = 3,
    framing: Framing | None = None,
    skip_bad: bool = False,
) -> ImageData:
    """FOLDER/CLASS/image, or FOLDER/train/CLASS/image with FOLDER/test/CLASS/image (or val, valid, validation).

    A folder that holds images and no folder is one class, called by its name.
    Without a folder of test images, a fifth of every class is held out for testing. Images of different sizes need
    `size`: the shorter side is scaled to it and the middle is kept, unless `framing` says otherwise. skip_bad: files
    that cannot be read are left out, with a warning, instead of refused.
    """
    target = (size, size) if isinstance(size, int) else size
    tests = [folder / name for name in TEST_NAMES if (folder / name).is_dir()]
    if not (folder / "train").is_dir():
        classes, images, labels = _read(folder, _Decoder(target, channels, framing), skip_bad)
        train, test = hold_out(labels)
        held = images[test], labels[test]
        return ImageData(str(folder), tuple(classes), images[train], labels[train], *held, piled=True)
    classes, images, labels = _read(folder / "train", _Decoder(target, channels, framing), skip_bad)
    if not tests:
        train, test = hold_out(labels)
        return ImageData(str(folder), tuple(classes), images[train], labels[train], images[test], labels[test])
    shape = (images.shape[1], images.shape[2])
    test_classes, test_images, test_labels = _read(tests[0], _Decoder(shape, channels, framing), skip_bad)
    new = sorted(set(test_classes) - set(classes))
    if new:
        raise BadData(f"{tests[0]} has classes that {folder}/train has not: {', '.join(new)}.")
    number = np.array([classes.index(name) for name in test_classes], np.int64)
    return ImageData(str(folder), tuple(classes), images, labels, test_images, number[test_labels])


def _read(folder: Path, decoder: _Decoder, skip_bad: bool) -> tuple[list[str], Any, np.ndarray]:
    """Names of the classes, images and labels; images of more than 128 MB stay on the disk until they are wanted."""
    files = {path.name: _files(path) for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] != "."}
    if not files:
        files = {folder.resolve().name: _files(folder)}
    for name in files:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise BadFile(f"{folder} has a class folder {os.fsencode(name)!r}, which is no UTF-8; rename it.") from None
    files = {name: own for name, own in files.items() if own}
    if not files:
        raise BadData(f"{folder} holds no images; expected one sub-folder a class, with the images in it.")
    paths = [path for own in files.values() for path in own]
    labels = np.repeat(np.arange(len(files)), [len(own) for own in files.values()])
    sides: list[Any] = on_all_cores(decoder.sides, paths)
    good = [k for k, found in enumerate(sides) if not isinstance(found, BadFile)]
    one = (*(decoder.size or (sides[good[0]] if good else (0, 0))), decoder.channels)
    small = len(good) * math.prod(one) <= HELD
    images: list[Any] = []
    if small or skip_bad:
        # All of them now: what is skipped must be known before images are counted.
        images = on_all_cores(decoder.decoded if small else decoder.broken, [paths[k] for k in good])
        for k, found in zip(good, images, strict=True):
            sides[k] = found if isinstance(found, BadFile) else sides[k]
        images = [image for image in images if not isinstance(image, BadFile)]
    bad = [error for error in sides if isinstance(error, BadFile)]
    if bad:
        _tell_bad(bad, folder, skip_bad)
        good = [k for k, found in enumerate(sides) if not isinstance(found, BadFile)]
        missing = [name for k, name in enumerate(files) if not (labels[good] == k).any()]
        if missing:
            raise BadFile(f"no image of {', '.join(map(repr, missing[:10]))} in {folder} can be read.")
    odd = next((k for k in good if sides[k] != sides[good[0]]), None)
    if decoder.size is None and odd is not None:
        (height, width), (first_height, first_width) = sides[odd], sides[good[0]]
        raise BadData(
            f"{paths[odd]} is {height}×{width} and {paths[good[0]]} {first_height}×{first_width}"
            "; give one `size` for all, as in 64."
        )
    if small:
        return list(files), np.stack(images), labels[good]
    reader = keeping(partial(decoder.read, np.array([str(paths[k]) for k in good], object)))
    return list(files), StreamedImages(reader, np.arange(len(good)), one), labels[good]


MOST_SHOWN = 50  # unreadable files in one message


def _tell_bad(bad: list[BadFile], folder: object, skip_bad: bool) -> None:
    shown = "; ".join(str(error) for error in bad[:MOST_SHOWN])
    more = f"; and {len(bad) - MOST_SHOWN} more" if len(bad) > MOST_SHOWN else ""
    text = f"{counted(len(bad), 'file')} of {folder} cannot be read: {shown}{more}."
    if not skip_bad:
        raise BadFile(f"{text} Remove or mend them, or leave them out with `skip_bad`.")
    warnings.warn(f"{text} They are left out.", stacklevel=2)


@dataclass(frozen=True)
class _Decoder:
    """How the files of a folder become arrays. What cannot be read is returned as the error, so that all are told."""

    size: Size | None
    channels: int
    framing: Framing | None

    def sides(self, path: Path) -> Size | BadFile:
        """Height and width by the head of the file; a file whose end is not that of its kind is decoded to see."""
        try:
            with Image.open(path) as image:
                sides = image.height, image.width
        except UNREADABLE as error:
            return _bad(path, error)
        return sides if _complete(path) else self.broken(path) or sides

    def decoded(self, path: Path) -> np.ndarray | BadFile:
        try:
            with Image.open(path) as image:
                return picture_array(image, self.size, self.channels, self.framing)
        except UNREADABLE as error:
            return _bad(path, error)

    def broken(self, path: Path) -> BadFile | None:
        """The error of a file that cannot be decoded."""
        found = self.decoded(path)
        return found if isinstance(found, BadFile) else None

    def read(self, paths: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Some of the files, decoded on all cores."""
        images = on_all_cores(self.decoded, [Path(path) for path in paths[index]])
        if any(isinstance(image, BadFile) for image in images):  # a file is damaged inside: which are, all of them?
            every = filter(None, on_all_cores(self.broken, map(Path, paths)))
            _tell_bad(list(every), Path(paths[0]).parent.parent, skip_bad=False)
        return np.stack(images)  # type: ignore[arg-type]


UNREADABLE = (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError)
ENDS = {b"\xff\xd8": b"\xff\xd9", b"\x89P": b"IEND"}  # what is found at the end of a JPEG, of a PNG


def _complete(path: Path) -> bool:
    """Whether a file ends as its kind does: a copy that was cut short does not, and is the commonest damage."""
    with open(path, "rb") as file:
        start = file.read(2)
        file.seek(-min(64, path.stat().st_size), os.SEEK_END)
        return ENDS.get(start, b"") in file.read()


def _bad(path: Path, error: Exception) -> BadFile:
    text = str(error).replace(f"'{path}'", "it").removesuffix(".")
    return BadFile(f"{path} is not an image Pillow can read ({text})")


def _files(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:  # passed over, its images would be missing without a word
        raise BadFile(f"{error.filename} cannot be opened: {error.strerror}; mend its permissions, or move it away.")

    found = [Path(root) / name for root, _, names in os.walk(folder, onerror=refuse) for name in names]
    return [
        path
        for path in sorted(found)
        if path.is_file()
        and path.name[0] != "."
        and path.name.lower() not in SYSTEM_FILES
        and path.suffix.lower() not in OTHER_KINDS
    ]


def picture_array(image: Image.Image, size: Size | None, channels: int, framing: Framing | None = None) -> np.ndarray:
    """A Pillow image as (H, W, C) uint8, the middle kept when it is scaled to `size`."""
    framing = framing or Framing()
    if image.mode.startswith("I;16"):  # 0..65535, which converting would cut off at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        low, high = image.getextrema()
        if image.format == "PNG" and image.mode == "I":
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        elif low < 0 or high > 255:  # type: ignore[operator]
            raise ValueError(
                f"its pixels run from {low:g} to {high:g}, and their scale is not known; save it as 8 or 16 bit"
            )
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
