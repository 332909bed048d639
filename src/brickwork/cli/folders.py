"""What commands about models do alike: read images for them, judge them, look into their folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import brickwork
from brickwork import store
from brickwork.origin import origin_of

if TYPE_CHECKING:
    from torch import nn

    from brickwork.data import ImageData


def hash_of(folder: Path) -> str:
    """The hash of a model folder's weights, as its config.json records it."""
    return store.read_config(folder).weights.state_hash


def images_for(model: nn.Module, spec: Any, seed: int, split: str | None = None) -> Any:
    """The images a spec names, in the size and channels the model was trained on; none for None."""
    if spec is None:
        return None
    return brickwork.data.load_for(origin_of(model).preprocessing, spec, seed=seed, split=split)


def accuracy(model: nn.Module, images: ImageData | None) -> float | None:
    """On the test split; None where there is none, or where the model does not know its classes."""
    from brickwork.evaluation import evaluate_data

    known = origin_of(model).classes
    if images is None or len(images.test_images) == 0:
        return None
    if known is not None and not set(images.classes) <= set(known):
        return None
    return evaluate_data(model, images).accuracy


def check_classes(folder: Path, classes: str | None) -> None:
    """Refuse classes that the folder's model does not have, before its weights are read."""
    from brickwork.bricks.samples import find_classes

    known = store.read_config(folder).classes
    if known is not None and classes is not None:
        find_classes(classes, known)
