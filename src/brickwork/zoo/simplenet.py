"""SimpleNet v1 (HasanPour et al. 2016): thirteen plain convolutions, one of paper 2's three networks."""

import torch
from torch import nn

from brickwork.zoo.registry import architecture

# (channels, kernel, pool after it?) of the thirteen layers, as published for CIFAR.
PLAN = (
    (64, 3, False),
    (128, 3, False),
    (128, 3, False),
    (128, 3, True),
    (128, 3, False),
    (128, 3, False),
    (256, 3, True),
    (256, 3, False),
    (256, 3, True),
    (512, 3, True),
    (2048, 1, False),
    (256, 1, True),
    (256, 3, False),
)


class SimpleNetV1(nn.Module):
    """`features` is the list of thirteen convolutions with batch norms and pools; then a linear layer."""

    def __init__(self, num_classes: int, in_channels: int, dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = in_channels
        for outputs, kernel, pool in PLAN:
            layers += [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)]
            layers += [nn.BatchNorm2d(outputs, momentum=0.05), nn.ReLU(inplace=True)]
            if pool:
                # ceil_mode: the same at 32 px, and an 8 px image survives five pools.
                layers += [nn.MaxPool2d(2, ceil_mode=True), nn.Dropout2d(dropout)]
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveMaxPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(inputs, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.xavier_uniform_(module.weight, gain=nn.init.calculate_gain("relu"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.features(x)).flatten(1)
        return self.classifier(self.dropout(x))


@architecture("simplenetv1")
def simplenetv1(num_classes: int = 10, in_channels: int = 3, dropout: float = 0.1) -> nn.Module:
    """The 13-layer SimpleNet of HasanPour et al., as trained on CIFAR."""
    return SimpleNetV1(num_classes, in_channels, dropout)
