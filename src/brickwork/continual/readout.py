"""How much a network's features tell of a task before it is learned: a linear layer in closed form."""

import torch
from torch import nn

from brickwork.continual.networks import head_of
from brickwork.data.images import ImageData
from brickwork.moments.readout import linear_answers, read_features
from brickwork.outputs import accuracy_of


def readout(model: nn.Module, task: ImageData, device: torch.device, head: str | None = None) -> float:
    """Share right on the test images by ridge regression from the features of the training images to their labels.

    head: the layer whose inputs the features are; without a name it is looked for.
    """
    model, head = model.to(device), head or head_of(model)
    train, test = (read_features(model, head, images) for images in (task.train_images, task.test_images))
    answers = linear_answers(train, torch.as_tensor(task.train_labels), len(task.classes), test)
    return accuracy_of(answers, task.test_labels)
