"""A small ShuffleNet (Zhang et al. 2017): grouped 1×1 convolutions with a channel shuffle between them."""

import torch
from torch import nn

from brickwork.errors import RequestError
from brickwork.zoo.layers import conv_bn_relu
from brickwork.zoo.registry import architecture


def channel_shuffle(x: torch.Tensor, groups: int) -> torch.Tensor:
    """Interleave the channels of the groups, so that the next grouped convolution sees all of them.

    >>> channel_shuffle(torch.arange(6.0).view(1, 6, 1, 1), 2).flatten().tolist()
    [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    """
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


class ShuffleUnit(nn.Module):
    """Grouped 1×1, shuffle, depthwise 3×3, grouped 1×1; added to the input, or concatenated when halving."""

    def __init__(self, inputs: int, outputs: int, groups: int, stride: int) -> None:
        super().__init__()
        self.groups, self.stride = groups, stride
        grown = outputs - inputs if stride == 2 else outputs  # the pooled input brings the other channels
        hidden = outputs // 4
        self.reduce = conv_bn_relu(inputs, hidden, 1, groups=groups)
        self.depthwise = nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False)
        self.bn1 = nn.BatchNorm2d(hidden)
        self.expand = nn.Conv2d(hidden, grown, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(grown)
        self.pool = nn.AvgPool2d(3, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = channel_shuffle(self.reduce(x), self.groups)
        out = self.bn2(self.expand(self.bn1(self.depthwise(out))))
        if self.stride == 2:
            return torch.relu(torch.cat([self.pool(x), out], dim=1))
        return torch.relu(x + out)


class ShuffleSmall(nn.Module):
    """A stem, three stages of shuffle units (the first of each halves the image), average pool, linear."""

    def __init__(self, num_classes: int, in_channels: int, width: int, groups: int, depth: int) -> None:
        super().__init__()
        if width % (4 * groups):
            raise RequestError(f"width must be a multiple of 4 × groups = {4 * groups}, not {width}.")
        self.stem = conv_bn_relu(in_channels, width)
        units: list[nn.Module] = []
        for stage in range(3):
            inputs = width * 2**stage
            units.append(ShuffleUnit(inputs, 2 * inputs, groups, stride=2))
            units += [ShuffleUnit(2 * inputs, 2 * inputs, groups, stride=1) for _ in range(depth - 1)]
        self.units = nn.Sequential(*units)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.avgpool(self.units(self.stem(x))).flatten(1))


@architecture("shuffle_small")
def shuffle_small(
    num_classes: int = 10, in_channels: int = 3, width: int = 48, groups: int = 4, depth: int = 2
) -> nn.Module:
    """A small ShuffleNet: grouped and depthwise convolutions with channel shuffles."""
    return ShuffleSmall(num_classes, in_channels, width, groups, depth)
