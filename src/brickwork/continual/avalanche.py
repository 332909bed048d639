"""A benchmark of Avalanche (the continual-learning toolkit) as a scenario; Avalanche itself is not imported here."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from brickwork.continual.scenario import Scenario
from brickwork.data.images import ImageData
from brickwork.errors import BadData


def from_avalanche(benchmark: Any, *, name: str = "avalanche") -> Scenario:
    """One task an experience of a benchmark's train_stream, tested on the same place of its test_stream.

    Images are taken as the data sets give them: PIL pictures of 8 bits (or 1, or with a palette), uint8 arrays (H, W, C),
    or floating tensors (C, H, W) from 0 to 1, without a random or normalising transform. Labels are renumbered task by task.
    """
    try:
        streams = list(benchmark.train_stream), list(benchmark.test_stream)
    except AttributeError as error:
        raise BadData(f"{type(benchmark).__name__} is no Avalanche benchmark: {error}.") from error
    if len(streams[0]) != len(streams[1]) or not streams[0]:
        raise BadData(
            f"the benchmark has {len(streams[0])} experiences to train on and {len(streams[1])} to test on; one for each."
        )
    width = len(str(len(streams[0]) - 1))
    tasks = []
    for number, (training, testing) in enumerate(zip(*streams, strict=True)):
        classes = sorted({int(c) for c in training.classes_in_this_experience})
        parts: dict[str, Any] = {}
        for split, experience in (("train", training), ("test", testing)):
            parts[f"{split}_images"], parts[f"{split}_labels"] = _arrays(experience.dataset, classes, number)
        names = tuple(str(c) for c in classes)
        tasks.append(ImageData(name=f"{name}#{number:0{width}d}", classes=names, **parts))
    return Scenario(name, tuple(tasks))


def _arrays(dataset: Iterable[Any], classes: Sequence[int], number: int) -> tuple[np.ndarray, np.ndarray]:
    images, labels = [], []
    for entry in dataset:
        image, label = entry[0], int(entry[1])
        if label not in classes:
            raise BadData(f"experience {number} holds an image of class {label}, which is not among its classes.")
        images.append(_pixels(image))
        labels.append(classes.index(label))
    if not images:
        raise BadData(f"experience {number} has no images.")
    return np.stack(images), np.array(labels, np.int64)


#: how a picture of PIL's is stored, and as what it is taken; None: as it is
MODES = {"L": None, "RGB": None, "F": None, "1": "L", "P": "RGB", "PA": "RGB"}


def _pixels(image: Any) -> np.ndarray:
    """One image as (H, W, C) uint8; numbers that are no grey values from 0 to 255 are refused."""
    mode = getattr(image, "mode", None)
    if mode is not None and hasattr(image, "convert"):
        if mode not in MODES:
            raise BadData(
                f"pictures are of PIL's mode {mode!r}; it must be one of {', '.join(MODES)}. Convert them in the benchmark, "
                "as image.convert('RGB') does."
            )
        image = image if MODES[mode] is None else image.convert(MODES[mode])
    if hasattr(image, "detach"):
        image = image.detach().cpu().numpy()
        image = image.transpose(1, 2, 0) if image.ndim == 3 else image
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.dtype.kind in "fb":
        if not (pixels.min() >= 0 and pixels.max() <= 1):
            raise BadData(
                "images are floating and not from 0 to 1; take the normalising transform out of the benchmark."
            )
        pixels = np.rint(255 * pixels)
    elif pixels.dtype.kind not in "iu" or pixels.min() < 0 or pixels.max() > 255:
        raise BadData(
            f"images are {pixels.dtype} from {pixels.min()} to {pixels.max()}; they must be whole numbers from 0 to 255, "
            "or floating from 0 to 1. Scale them in the benchmark."
        )
    return pixels.astype(np.uint8)
