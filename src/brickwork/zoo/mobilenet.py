"""MobileNetV2 (Sandler et al. 2018): inverted residuals with depthwise convolutions; torchvision's names."""

import torch
from torch import nn

from brickwork.errors import UnknownName
from brickwork.zoo.layers import he_init
from brickwork.zoo.registry import architecture
from brickwork.zoo.resnet import STEMS

# (expansion, channels, blocks, stride of the first block), table 2 of the paper.
PLAN = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """1×1 up (unless expansion is 1), 3×3 depthwise, 1×1 down without activation, shortcut where it fits."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        layers: list[nn.Module] = [] if expansion == 1 else [_conv(inputs, hidden, 1)]
        layers.append(_conv(hidden, hidden, 3, stride, groups=hidden))
        layers += [nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.conv = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x) if self.shortcut else self.conv(x)


class MobileNetV2(nn.Module):
    """Stem, seventeen inverted residuals, a 1×1 convolution to 1280 channels, average pool, linear."""

    def __init__(self, num_classes: int, in_channels: int, stem: str, dropout: float) -> None:
        super().__init__()
        if stem not in STEMS:
            raise UnknownName("stem", stem, STEMS)
        small = stem == "cifar"  # two strides fewer: 32 px images reach the end at 4×4 instead of 1×1
        layers: list[nn.Module] = [_conv(in_channels, 32, 3, 1 if small else 2)]
        inputs = 32
        for stage, (expansion, outputs, depth, stride) in enumerate(PLAN):
            for i in range(depth):
                first = 1 if small and stage == 1 else stride
                layers.append(InvertedResidual(inputs, outputs, first if i == 0 else 1, expansion))
                inputs = outputs
        layers.append(_conv(inputs, 1280, 1))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(1280, num_classes))
        he_init(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


@architecture("mobilenetv2")
def mobilenetv2(num_classes: int = 10, in_channels: int = 3, stem: str = "cifar", dropout: float = 0.0) -> nn.Module:
    """MobileNetV2 with depthwise convolutions; stem "cifar" or "imagenet"; torchvision's tensor names."""
    return MobileNetV2(num_classes, in_channels, stem, dropout)
