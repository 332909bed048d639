"""FCN-8s (Long et al. 2015) on a VGG-16 trunk: paper 3's segmentation network."""

import torch
from torch import nn

from brickwork.zoo.layers import he_init
from brickwork.zoo.registry import architecture
from brickwork.zoo.vgg import vgg_features


def bilinear_upsampling(channels: int, factor: int) -> nn.ConvTranspose2d:
    """A transposed convolution that starts as bilinear up-sampling by `factor` and can learn from there."""
    layer = nn.ConvTranspose2d(channels, channels, 2 * factor, factor, factor // 2, bias=False)
    ramp = 1 - (torch.arange(2 * factor) - factor + 0.5).abs() / factor
    with torch.no_grad():
        layer.weight.copy_(torch.eye(channels)[:, :, None, None] * torch.outer(ramp, ramp))
    return layer


class FCN8s(nn.Module):
    """Scores at 1/32, added to scores at 1/16 and 1/8 on the way up; (N, classes, H, W) out."""

    def __init__(
        self, num_classes: int, in_channels: int, batch_norm: bool, head: int, dropout: float, width: int
    ) -> None:
        super().__init__()
        trunk = list(vgg_features(in_channels, batch_norm, width))
        pools = [i for i, layer in enumerate(trunk) if isinstance(layer, nn.MaxPool2d)]
        self.to_8 = nn.Sequential(*trunk[: pools[2] + 1])
        self.to_16 = nn.Sequential(*trunk[pools[2] + 1 : pools[3] + 1])
        self.to_32 = nn.Sequential(*trunk[pools[3] + 1 :])
        # The paper's fc6 is 7×7 with 4096 channels for 500 px photographs; at 32 to 96 px there are one to
        # nine positions at 1/32, so 3×3 sees them all and `head` defaults to the trunk's width.
        self.head = nn.Sequential(
            nn.Conv2d(8 * width, head, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Dropout2d(dropout),
            nn.Conv2d(head, head, 1),
            nn.ReLU(inplace=True),
            nn.Dropout2d(dropout),
        )
        he_init(self)
        self.score_32 = nn.Conv2d(head, num_classes, 1)
        self.score_16 = nn.Conv2d(8 * width, num_classes, 1)
        self.score_8 = nn.Conv2d(4 * width, num_classes, 1)
        for score in (self.score_16, self.score_8):  # as in the paper: the skips start silent
            nn.init.zeros_(score.weight)
            nn.init.zeros_(score.bias)  # type: ignore[arg-type]
        self.up_32 = bilinear_upsampling(num_classes, 2)
        self.up_16 = bilinear_upsampling(num_classes, 2)
        self.up_8 = bilinear_upsampling(num_classes, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        at_8 = self.to_8(x)
        at_16 = self.to_16(at_8)
        scores = self.score_32(self.head(self.to_32(at_16)))
        # Cropping matters only where the side is no multiple of 32; the pools round up, nothing is missing.
        skip = self.score_16(at_16)
        scores = self.up_32(scores)[:, :, : skip.shape[2], : skip.shape[3]] + skip
        skip = self.score_8(at_8)
        scores = self.up_16(scores)[:, :, : skip.shape[2], : skip.shape[3]] + skip
        return self.up_8(scores)[:, :, : x.shape[2], : x.shape[3]]


@architecture("fcn8s", task="segment")
def fcn8s(
    num_classes: int = 21,
    in_channels: int = 3,
    batch_norm: bool = False,
    head: int = 512,
    dropout: float = 0.0,
    width: int = 64,
) -> nn.Module:
    """FCN-8s on a VGG-16 trunk: one score a class and pixel."""
    return FCN8s(num_classes, in_channels, batch_norm, head, dropout, width)
