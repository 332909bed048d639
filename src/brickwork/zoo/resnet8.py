"""The residual network of paper 1 (gradient assignment), section 5: eight conv blocks, two shortcuts."""

import torch
from torch import nn

from brickwork.zoo.layers import conv_bn_relu
from brickwork.zoo.registry import architecture


class ResNet8(nn.Module):
    """Blocks of conv + batch norm + ReLU; shortcuts around blocks 3-4 and 7-8; max-pool; linear."""

    def __init__(self, num_classes: int, in_channels: int, width: int) -> None:
        super().__init__()
        w = width
        self.conv1 = conv_bn_relu(in_channels, w)
        self.conv2 = conv_bn_relu(w, 2 * w, pool=True)
        self.res1 = nn.Sequential(conv_bn_relu(2 * w, 2 * w), conv_bn_relu(2 * w, 2 * w))
        self.conv3 = conv_bn_relu(2 * w, 4 * w, pool=True)
        self.conv4 = conv_bn_relu(4 * w, 8 * w, pool=True)
        self.res2 = nn.Sequential(conv_bn_relu(8 * w, 8 * w), conv_bn_relu(8 * w, 8 * w))
        self.pool = nn.AdaptiveMaxPool2d(1)
        self.fc = nn.Linear(8 * w, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv2(self.conv1(x))
        x = self.res1(x) + x
        x = self.conv4(self.conv3(x))
        x = self.res2(x) + x
        return self.fc(self.pool(x).flatten(1))


@architecture("resnet8")
def resnet8(num_classes: int = 10, in_channels: int = 3, width: int = 64) -> nn.Module:
    """Paper 1's eight conv blocks with two shortcuts, max-pool and a linear layer."""
    return ResNet8(num_classes, in_channels, width)
