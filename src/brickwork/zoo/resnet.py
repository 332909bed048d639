"""ResNet-18 and ResNet-50 (He et al. 2015). Tensors are named as in torchvision: published weights load."""

import torch
from torch import nn

from brickwork.errors import UnknownName
from brickwork.zoo.layers import he_init
from brickwork.zoo.registry import architecture

STEMS = ("cifar", "imagenet")


def _downsample(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """The 1×1 shortcut of a block that changes width or size; None where the shortcut is the identity."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and the shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _downsample(inputs, width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1×1 down, 3×3 (which carries the stride, as in torchvision), 1×1 up, and the shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _downsample(inputs, 4 * width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


def _stage(
    block: type[BasicBlock] | type[Bottleneck], inputs: int, width: int, depth: int, stride: int
) -> nn.Sequential:
    """Blocks of one width; the first may halve the image."""
    rest = [block(width * block.expansion, width, 1) for _ in range(depth - 1)]
    return nn.Sequential(block(inputs, width, stride), *rest)


class ResNet(nn.Module):
    """Stem, four stages of blocks, average pool, linear."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, int, int, int],
        num_classes: int,
        in_channels: int,
        stem: str,
    ) -> None:
        super().__init__()
        if stem not in STEMS:
            raise UnknownName("stem", stem, STEMS)
        self.maxpool: nn.Module
        if stem == "imagenet":
            self.conv1 = nn.Conv2d(in_channels, 64, 7, 2, 3, bias=False)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
        else:  # small images: keep the resolution
            self.conv1 = nn.Conv2d(in_channels, 64, 3, 1, 1, bias=False)
            self.maxpool = nn.Identity()
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = _stage(block, 64, 64, depths[0], stride=1)
        self.layer2 = _stage(block, 64 * block.expansion, 128, depths[1], stride=2)
        self.layer3 = _stage(block, 128 * block.expansion, 256, depths[2], stride=2)
        self.layer4 = _stage(block, 256 * block.expansion, 512, depths[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        he_init(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


@architecture("resnet18")
def resnet18(num_classes: int = 10, in_channels: int = 3, stem: str = "cifar") -> nn.Module:
    """ResNet-18; stem "cifar" (3×3, no pool) or "imagenet" (7×7, pool); torchvision's tensor names."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, in_channels, stem)


@architecture("resnet50")
def resnet50(num_classes: int = 10, in_channels: int = 3, stem: str = "cifar") -> nn.Module:
    """ResNet-50; stem "cifar" (3×3, no pool) or "imagenet" (7×7, pool); torchvision's tensor names."""
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, in_channels, stem)
