"""What commands about models do alike: read folders and images, judge, save."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from brickwork.data import DataSpec, ImageData


def hash_of(folder: Path) -> str:
    """The hash of a model folder's weights, as its config.json records it."""
    from brickwork.store import read_config

    return read_config(folder).weights.state_hash


def images_for(model: nn.Module, spec: str | DataSpec, seed: int, split: str | None = None) -> ImageData:
    """The images a spec names, in the size and channels the model was trained on."""
    from brickwork import data
    from brickwork.origin import origin_of

    return data.load_for(origin_of(model).preprocessing, spec, seed=seed, split=split)


def accuracy(model: nn.Module, images: ImageData) -> float | None:
    """On the test split; None where there is none, or where the model does not know its classes."""
    from brickwork.evaluation import evaluate_data
    from brickwork.origin import origin_of

    known = origin_of(model).classes
    if len(images.test_images) == 0 or (known is not None and not set(images.classes) <= set(known)):
        return None
    return evaluate_data(model, images).accuracy


def save(model: nn.Module, out: Path, *, force: bool, command: str, **facts: Any) -> None:
    """Write the folder with what the command knows of it; facts that are None are left out."""
    from brickwork import store

    known = {name: value for name, value in facts.items() if value is not None}
    store.save(model, out, force=force, provenance={"command": command, **known})


def check_classes(folder: Path, classes: str | None) -> None:
    """Refuse classes that the folder's model does not have, before its weights are read."""
    from brickwork.bricks.samples import find_classes
    from brickwork.store import read_config

    known = read_config(folder).classes
    if known is not None and classes is not None:
        find_classes(classes, known)
