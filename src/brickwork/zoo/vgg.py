"""VGG-16 (Simonyan & Zisserman 2014), with the small head that CIFAR-sized images are given."""

import torch
from torch import nn

from brickwork.zoo.layers import he_init
from brickwork.zoo.registry import architecture

VGG16 = (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M")


def vgg_features(in_channels: int, batch_norm: bool, width: int = 64) -> nn.Sequential:
    """The convolutional trunk; layer numbers as in torchvision's vgg16 and vgg16_bn. width: of the first stage."""
    layers: list[nn.Module] = []
    inputs = in_channels
    for step in VGG16:
        if isinstance(step, str):
            # ceil_mode: the same at 32, 96 and 224 px, and an 8 px image survives five pools.
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
            continue
        outputs = step * width // 64
        layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
        if batch_norm:
            layers.append(nn.BatchNorm2d(outputs))
        layers.append(nn.ReLU(inplace=True))
        inputs = outputs
    return nn.Sequential(*layers)


class VGG(nn.Module):
    """Thirteen 3×3 convolutions, five max-pools, three linear layers 512-hidden-hidden-n."""

    def __init__(self, num_classes: int, in_channels: int, batch_norm: bool, dropout: float, hidden: int) -> None:
        super().__init__()
        self.features = vgg_features(in_channels, batch_norm)
        self.avgpool = nn.AdaptiveAvgPool2d(1)  # nothing to average at 32 px; larger images fit the head too
        self.classifier = nn.Sequential(
            nn.Linear(512, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )
        he_init(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


@architecture("vgg16")
def vgg16(
    num_classes: int = 10, in_channels: int = 3, batch_norm: bool = True, dropout: float = 0.0, hidden: int = 512
) -> nn.Module:
    """VGG-16 with a 512-hidden-hidden-n head, with or without batch norm."""
    return VGG(num_classes, in_channels, batch_norm, dropout, hidden)
