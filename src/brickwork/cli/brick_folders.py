"""What verbs about bricks do alike: check what is asked, read folders and images, judge, save."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brickwork.errors import BadFile, BadModel, RequestError

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from brickwork.data import DataSpec, ImageData


def check_numbers(**given: float | None) -> None:
    """Everything that must be 0 or more, checked at once; None was not given."""
    wrong = [
        f"{name} is {value:g}; it must be 0 or more"
        for name, value in given.items()
        if value is not None and not (value >= 0 and math.isfinite(value))
    ]
    if wrong:
        raise RequestError("; ".join(wrong) + ".")


def check_training(arch: str | None, **training: Any) -> dict[str, Any]:
    """The options of a fine-tuning, refused here if they cannot be right."""
    from brickwork.training import settings_for

    settings_for(arch, 1000, **training)
    return training


def check_calibration(calibrate: str, target: str | None) -> None:
    """Target images and the calibration that needs them come together."""
    from brickwork import data as images_of

    if (calibrate == "target") != (target is not None):
        raise RequestError("--target images go with --calibrate target, and it needs some; give both or neither.")
    if target is not None:
        images_of.check(target)


def check_bricks(folders: Sequence[Path], first: Path | None = None) -> None:
    """Refuse folders that cannot be joined (to a whole model `first`), by what their config.json says."""
    from brickwork import store
    from brickwork.bricks.brick import PROVENANCE

    owner: dict[str, Path] = {}
    shapes: dict[tuple[int, ...], Path] = {}
    for folder in [*([first] if first else []), *folders]:
        config = store.read_config(folder)
        if folder is not first and not isinstance(config.provenance.get(PROVENANCE), dict):
            raise BadFile(f"{folder} is a model, not a brick; cut one out of it with: brickwork disassemble {folder}")
        for name in config.classes or ():
            if name in owner:
                raise RequestError(
                    f"class {name!r} is in {owner[name]} and in {folder}; cut bricks of different classes."
                )
            owner[name] = folder
        if config.input_shape is not None:
            shapes.setdefault(tuple(config.input_shape), folder)
    if len(shapes) > 1:
        (one, a), (two, b) = list(shapes.items())[:2]
        sides = ["×".join(map(str, shape)) for shape in (one, two)]
        raise BadModel(f"{a} takes inputs of {sides[0]} and {b} of {sides[1]}; bricks must share one input size.")


def images_for(model: nn.Module, spec: str | DataSpec, seed: int) -> ImageData:
    """The images a spec names, in the size and channels the model was trained on."""
    from brickwork import data as images_of
    from brickwork.origin import origin_of

    return images_of.load_for(origin_of(model).preprocessing, spec, seed=seed)


def some_of(images: np.ndarray, count: int, seed: int) -> np.ndarray:
    """At most so many of the images, drawn with the seed, in their order; the same places for every array."""
    import numpy as np

    drawn = np.random.default_rng([seed, 3]).permutation(len(images))[:count]
    return images[np.sort(drawn)]


def accuracy(model: nn.Module, images: ImageData) -> float | None:
    """On the test split; None where there is none, or where the model does not know its classes."""
    from brickwork.evaluation import evaluate_data
    from brickwork.origin import origin_of

    known = origin_of(model).classes
    if len(images.test_images) == 0 or (known is not None and not set(images.classes) <= set(known)):
        return None
    return evaluate_data(model, images).accuracy


def save(model: nn.Module, out: Path, *, force: bool, command: str, **facts: Any) -> None:
    """Write the folder with what the command knows of it."""
    from brickwork import store

    store.save(model, out, force=force, provenance={"command": command, **facts})


def before_and_after(before: float | None, after: float | None) -> str:
    """One line for people."""
    if before is None or after is None:
        return "no test images of the model's classes to judge by"
    return f"accuracy on the test images: {before:.2%} before, {after:.2%} after"
