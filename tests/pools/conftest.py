"""Small networks and their pools, shared by the tests of pools."""

import pytest
import torch
from torch import nn

from brickwork import data, zoo
from brickwork.pools import KernelPool
from brickwork.training import train


@pytest.fixture(scope="package")
def digits():
    """Two tasks of three digits each, 8×8."""
    return [data.load(spec, size=8, channels=1) for spec in ("digits:0-2@40", "digits:3-5@40")]


@pytest.fixture(scope="package")
def network(digits):
    """A small residual network that knows the first task."""
    model = zoo.build("resnet8", num_classes=3, in_channels=1, width=4, seed=0)
    first = digits[0]
    train(
        model,
        first.train_images,
        first.train_labels,
        classes=first.classes,
        epochs=6,
        lr=0.1,
        batch_size=20,
        device="cpu",
        progress=False,
    )
    return model


@pytest.fixture(scope="package")
def pool(network):
    return KernelPool.cluster([network], size=24)


class Tied(nn.Module):
    """Two linear layers that share a weight, a depthwise and a grouped convolution, no norm."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.grouped = nn.Conv2d(4, 8, 1, groups=2)
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)
        self.two.weight = self.one.weight
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.grouped(self.depthwise(x)).relu().mean((2, 3))
        return self.head(self.two(self.one(x).relu()))


@pytest.fixture
def tied():
    torch.manual_seed(0)
    return Tied().eval()
