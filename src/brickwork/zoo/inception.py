"""A small network of inception blocks (Szegedy et al. 2014): four branches side by side, concatenated."""

import torch
from torch import nn

from brickwork.zoo.layers import conv_bn_relu
from brickwork.zoo.registry import architecture


class Inception(nn.Module):
    """1×1; 1×1 then 3×3; 1×1 then two 3×3 (a 5×5 view); 3×3 max-pool then 1×1; all concatenated."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.branch1 = conv_bn_relu(inputs, 2 * width, 1)
        self.branch2 = nn.Sequential(conv_bn_relu(inputs, 2 * width, 1), conv_bn_relu(2 * width, 3 * width))
        self.branch3 = nn.Sequential(
            conv_bn_relu(inputs, width, 1), conv_bn_relu(width, 2 * width), conv_bn_relu(2 * width, 2 * width)
        )
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_bn_relu(inputs, width, 1))
        self.outputs = 8 * width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], dim=1)


class InceptionSmall(nn.Module):
    """A stem, four inception blocks with pools between, average pool, linear."""

    def __init__(self, num_classes: int, in_channels: int, width: int) -> None:
        super().__init__()
        self.stem = conv_bn_relu(in_channels, 2 * width)
        self.block1 = Inception(2 * width, width)
        self.block2 = Inception(self.block1.outputs, width)
        self.block3 = Inception(self.block2.outputs, 2 * width)
        self.block4 = Inception(self.block3.outputs, 2 * width)
        self.pool = nn.MaxPool2d(2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(self.block4.outputs, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.block1(self.stem(x)))
        x = self.pool(self.block3(self.block2(x)))
        x = self.block4(x)
        return self.fc(self.avgpool(x).flatten(1))


@architecture("inception_small")
def inception_small(num_classes: int = 10, in_channels: int = 3, width: int = 16) -> nn.Module:
    """Four inception blocks: parallel branches joined by concatenation."""
    return InceptionSmall(num_classes, in_channels, width)
