"""How much a network's features tell of a task before it is learned: a linear layer in closed form."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.continual.networks import head_of
from brickwork.data.images import ImageData
from brickwork.data.pixels import as_input
from brickwork.moments import Moments, solve_ridge
from brickwork.origin import origin_of
from brickwork.prediction import evaluating

BATCH = 512


def readout(model: nn.Module, task: ImageData, device: torch.device, *, ridge: float = 1e-2) -> float:
    """Share right on the test images by ridge regression from the features of the training images to their labels."""
    model = model.to(device)
    count = len(task.classes)
    found: Moments | None = None
    for start in range(0, len(task.train_labels), BATCH):
        part = slice(start, start + BATCH)
        x = features_of(model, task.train_images[part], device)
        y = F.one_hot(torch.as_tensor(task.train_labels[part]).to(device), count).double()
        found = (found or Moments.empty(x.shape[1], count, device)).add(x, y)
    assert found is not None  # a scenario has no task without images
    fit = solve_ridge(found, ridge=ridge)  # with a bias
    right = 0
    for start in range(0, len(task.test_labels), BATCH):
        part = slice(start, start + BATCH)
        x = features_of(model, task.test_images[part], device)
        guess = (x @ fit.weight + fit.bias).argmax(1)  # type: ignore[operator]
        right += int((guess.cpu() == torch.as_tensor(task.test_labels[part])).sum())
    return right / len(task.test_labels)


def features_of(model: nn.Module, images: object, device: torch.device) -> Tensor:
    """What arrives at the head, (N, features) in float64."""
    came: list[Tensor] = []
    hook = model.get_submodule(head_of(model)).register_forward_pre_hook(lambda _, x: came.append(x[0]))
    try:
        with evaluating(model):
            model(as_input(images, origin_of(model).preprocessing, device))  # type: ignore[arg-type]
    finally:
        hook.remove()
    return came[0].double()
