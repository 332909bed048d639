"""Two LeNets on the halves of the digits, trained once."""

from __future__ import annotations

import pytest

from brickwork import data, zoo
from brickwork.training import train


@pytest.fixture(scope="session")
def digits():
    return {half: data.load(f"digits:{half}", size=16, channels=1) for half in "AB"}


@pytest.fixture(scope="session")
def nets(digits):
    """{half: network}; both prepare images in the same way."""
    common = data.load("digits", size=16, channels=1).preprocessing()
    found = {}
    for seed, (half, images) in enumerate(digits.items()):
        model = zoo.build("lenet", num_classes=5, in_channels=1, seed=seed)
        train(
            model,
            images.train_images,
            images.train_labels,
            epochs=6,
            classes=images.classes,
            seed=seed,
            preprocessing=common,
            device="cpu",
            progress=False,
        )
        found[half] = model.eval()
    return found
