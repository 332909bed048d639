"""A tiny network that knows four digits, and the other six as three tasks."""

from __future__ import annotations

import pytest

from brickwork import continual, data, zoo
from brickwork.training import train


@pytest.fixture(scope="session")
def digits():
    return data.load("digits@40", size=8, channels=1)


@pytest.fixture(scope="session")
def start(digits):
    known = digits.select([0, 1, 2, 3])
    model = zoo.build("resnet8", num_classes=4, in_channels=1, width=4, seed=0)
    train(
        model,
        known.train_images,
        known.train_labels,
        classes=known.classes,
        epochs=8,
        batch_size=16,
        lr=0.05,
        augment="none",
        device="cpu",
        progress=False,
    )
    return model.eval()


@pytest.fixture(scope="session")
def scenario(digits):
    return continual.split_classes(digits.select([4, 5, 6, 7, 8, 9]), tasks=3, per=2)
