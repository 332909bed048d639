"""Two things several networks of the zoo share: conv + batch norm + ReLU, and He's initialisation."""

from torch import nn


def conv_bn_relu(inputs: int, outputs: int, kernel: int = 3, *, groups: int = 1, pool: bool = False) -> nn.Sequential:
    """Convolution that keeps the image size, batch norm, ReLU, and a 2×2 max-pool if asked."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    ]
    if pool:
        # ceil_mode changes nothing at 32 px, and lets an 8 px digit through a network with five pools.
        layers.append(nn.MaxPool2d(2, ceil_mode=True))
    return nn.Sequential(*layers)


def he_init(model: nn.Module) -> None:
    """He et al. 2015 for convolutions: deep networks without batch norm do not start to learn without it."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
