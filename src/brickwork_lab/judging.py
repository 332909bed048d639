"""How the networks of a study are judged, and the numbers that stand beside an accuracy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork.bricks.brick import Brick
from brickwork.data.images import ImageData
from brickwork.evaluation import evaluate_data
from brickwork.measures import auroc
from brickwork.origin import origin_of
from brickwork.outputs import accuracy_of
from brickwork.prediction import predict


def accuracy(model: nn.Module, images: ImageData) -> float:
    """Per cent of the test images, classes found by name."""
    return round(100 * evaluate_data(model, images).accuracy, 2)


def side_by_side(models: Sequence[nn.Module], images: ImageData) -> float:
    """Per cent if the networks may answer these classes only, each class judged by the network that knows it."""
    names = [name for model in models for name in origin_of(model).classes or ()]
    logits = torch.cat([predict(model, images.test_images) for model in models], 1)
    answers = logits[:, [names.index(name) for name in images.classes]].argmax(1).numpy()
    return round(100 * float((answers == images.test_labels).mean()), 2)


def one_against_rest(model: nn.Module, name: str, images: ImageData) -> float:
    """Per cent AUROC of a class's logit on the test images of all classes: a part of one class is always `right`."""
    known = origin_of(model).classes or ()
    logits = predict(model, images.test_images)[:, known.index(name)]
    area = auroc(logits, torch.from_numpy(images.test_labels == images.classes.index(name)))
    return round(100 * float(area or 0), 2)


def share_right(model: nn.Module, images: np.ndarray, labels: np.ndarray, batch_size: int = 512) -> float:
    """The share of images that a network gets right, label k being output k."""
    return accuracy_of(predict(model, images, batch_size=batch_size), labels)


def mean(values: Sequence[float], digits: int = 2) -> float:
    return round(float(np.mean(values)), digits)


def mean_facts(bricks: Sequence[Brick]) -> dict[str, Any]:
    """What stands beside every accuracy: the share of parameters and multiply-adds that was kept, over all bricks."""
    shares = {"parameters": [b.parameters for b in bricks], "flops": [b.macs for b in bricks]}
    return {name: mean(values, 4) for name, values in shares.items()}


def facts_of(brick: Brick) -> dict[str, Any]:
    """The same of one brick, and its widths."""
    return {**mean_facts([brick]), "widths": {name: len(ids) for name, ids in brick.kept.items()}}
