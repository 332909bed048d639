"""LeNet-5 (LeCun et al. 1998), with ReLU and max-pooling as everybody trains it today."""

import torch
from torch import nn

from brickwork.zoo.registry import architecture


class LeNet(nn.Module):
    """Two 5×5 convolutions of 6 and 16 channels, then linear layers of 120, 84 and `num_classes`."""

    def __init__(self, num_classes: int, in_channels: int) -> None:
        super().__init__()
        # Padding 2 instead of none, and a second pool that always leaves 4×4: the same module takes any
        # image from 8 px (nothing left to pool) over 16 px (the plain 2×2 pool) to 32 px and beyond.
        self.conv1 = nn.Conv2d(in_channels, 6, 5, padding=2)
        self.pool1 = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(6, 16, 5, padding=2)
        self.pool2 = nn.AdaptiveMaxPool2d(4)
        self.fc1 = nn.Linear(16 * 4 * 4, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool1(torch.relu(self.conv1(x)))
        x = self.pool2(torch.relu(self.conv2(x)))
        x = torch.relu(self.fc1(x.flatten(1)))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


@architecture("lenet")
def lenet(num_classes: int = 10, in_channels: int = 3) -> nn.Module:
    """LeNet-5: two convolutions, three linear layers; images from 8 px up."""
    return LeNet(num_classes, in_channels)
