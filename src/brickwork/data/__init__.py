"""Images to train and test on: the embedded digits, named sets, folders, arrays, Hugging Face data sets."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from brickwork.data.datasets import from_dataset
from brickwork.data.images import IGNORE, SPLITS, ImageData
from brickwork.data.spec import HUGGING_FACE, DataSpec, class_indices, parse
from brickwork.errors import BadFile, RequestError
from brickwork.origin import Framing, Preprocessing

__all__ = [
    "IGNORE",
    "SPLITS",
    "DataSpec",
    "ImageData",
    "check",
    "class_indices",
    "from_dataset",
    "load",
    "load_for",
    "parse",
]

SKIP_BAD = "BRICKWORK_SKIP_BAD"  # of the environment, so that the processes of a job inherit it


def load(
    spec: str | DataSpec,
    *,
    root: str | os.PathLike[str] | None = None,
    seed: int = 0,
    split: str | None = None,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    framing: Framing | None = None,
    mirror: str | None = None,
    skip_bad: bool | None = None,
    progress: bool = True,
) -> ImageData:
    """The images that SOURCE[:CLASSES][@AMOUNT] names, labels renumbered in the order asked.

    `root` is the folder of named sets (else $BRICKWORK_DATA, else the user's cache). `size` and `channels` (1 or 3) bring
    every image to one shape, `framing` says how (the middle, by default). `@AMOUNT` limits the training images, or those
    of `split` if given, to so many a class, drawn with `seed`. `mirror` (else $BRICKWORK_MIRROR) replaces the official
    download address. skip_bad: unreadable files of a folder are left out with a warning, not refused (the default, unless
    $BRICKWORK_SKIP_BAD is 1, as --skip-bad sets it).

    >>> small = load("digits:3,1@10", size=8, channels=1)
    >>> small.classes, small.train_images.shape
    (('3', '1'), (20, 8, 8, 1))
    """
    parsed = check(spec, root=root, split=split, size=size, channels=channels)
    shape: dict[str, Any] = {"size": size, "channels": channels, "framing": framing}
    skip = os.environ.get(SKIP_BAD) == "1" if skip_bad is None else skip_bad
    images = _source(parsed.source, root=root, mirror=mirror, skip_bad=skip, progress=progress, **shape)
    images = images.select(class_indices(parsed.classes, images.classes))
    if parsed.amount is not None:
        images = images.take(parsed.amount, split=split or "train", seed=seed)
    return replace(images.fit(**shape), name=str(parsed))


def load_for(prepared: Preprocessing | None, spec: str | DataSpec, **options: Any) -> ImageData:
    """The images a spec names, in the size and channels that a model prepares; as they are where it does not say.

    >>> load_for(Preprocessing((8, 8), 1, (0.0,), (1.0,)), "digits:3@2").train_images.shape
    (2, 8, 8, 1)
    """
    if prepared is None:
        return load(spec, **options)
    return load(spec, size=prepared.size, channels=prepared.channels, framing=prepared.framing, **options)


def check(
    spec: str | DataSpec,
    *,
    root: str | os.PathLike[str] | None = None,
    split: str | None = None,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
) -> DataSpec:
    """Refuse a request that cannot be right, before any image is read or downloaded."""
    from brickwork.data.named import OFFICIAL, data_folder, find

    parsed = parse(spec)
    if split is not None and split not in SPLITS:
        raise RequestError(f"split is {split!r}; it must be 'train' or 'test'.")
    if channels not in (None, 1, 3):
        raise RequestError(f"channels is {channels}; it must be 1 (grey) or 3 (RGB).")
    for side in (size,) if isinstance(size, int) else size or ():
        if not 1 <= side <= 4096:
            raise RequestError(f"size is {size}; it must be 1 to 4096.")
    source = parsed.source
    if source == "digits":
        if parsed.classes is not None:
            class_indices(parsed.classes, [str(i) for i in range(10)])
    elif _is_path(source):
        for part in source.split("+") if source.endswith(".npy") else [source]:
            if not Path(part).exists():
                raise BadFile(f"{part} does not exist; expected a folder of images, an .npz, or a pair of .npy files.")
            if Path(part).is_dir() == part.endswith((".npz", ".npy")):
                kind = "a folder" if Path(part).is_dir() else "a file"
                raise BadFile(f"{part} is {kind}; expected a folder of images, an .npz, or a pair of .npy files.")
    elif not (source.startswith(HUGGING_FACE) or source in OFFICIAL or (data_folder(root) / f"{source}.npz").exists()):
        find(source, root=root)  # raises UnknownName with the nearest names
    return parsed


def _source(
    source: str,
    *,
    root: str | os.PathLike[str] | None,
    size: int | tuple[int, int] | None,
    channels: int | None,
    framing: Framing | None,
    mirror: str | None,
    skip_bad: bool,
    progress: bool,
) -> ImageData:
    if source == "digits":
        from brickwork.data.digits import SIZES, load_digits

        sides = {size} if isinstance(size, int) else set(size or ())
        side = sides.pop() if len(sides) == 1 else SIZES[1]
        return load_digits(side if SIZES[0] <= side <= SIZES[1] else SIZES[1], channels or 3)
    if source.startswith(HUGGING_FACE):
        from brickwork.data.huggingface import load_hugging_face

        return load_hugging_face(source[len(HUGGING_FACE) :], size=size, channels=channels or 3, framing=framing)
    if source.endswith(".npy"):
        from brickwork.data.arrays import load_npy_pair

        return load_npy_pair(source)
    if source.endswith(".npz"):
        from brickwork.data.arrays import load_npz

        return load_npz(Path(source), Path(source).stem)
    if _is_path(source):
        from brickwork.data.folders import load_folder

        return load_folder(Path(source), size=size, channels=channels or 3, framing=framing, skip_bad=skip_bad)
    from brickwork.data.arrays import load_npz
    from brickwork.data.named import find

    return load_npz(find(source, root=root, mirror=mirror, progress=progress), source)


def _is_path(source: str) -> bool:
    """A path has a slash or a known ending; a bare word is a name, unless only a folder goes by it."""
    from brickwork.data.named import known_names

    if source.startswith(HUGGING_FACE):
        return False
    return (
        "/" in source
        or os.sep in source
        or source.endswith((".npz", ".npy"))
        or (Path(source).is_dir() and source not in known_names())
    )
