"""The adapter between a category module and a task module: reorder, rescale, n convolutions with ReLU."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.errors import RequestError
from brickwork.transplant.options import STARTS
from brickwork.transplant.transposes import conv_back


class Adapter(nn.Module):
    """h(x) = ReLU(conv(… β·x[order] …)); the channels go from what the category module gives to what the task reads.

    layers, kernel: the convolutions; 1×1, or 3×3 with padding: maps keep their size. order: channels are taken in this
    order first (the paper reorders at random, for a fair test). scale: the paper's β. start: "identity" begins as a copy
    of the channels where both sides have as many, with biases at zero, which pseudo-gradients cannot see; "random" as
    convolutions begin.

    >>> adapter = Adapter(4, 4)
    >>> x = torch.rand(2, 4, 5, 5)
    >>> torch.equal(adapter(x), x)
    True
    """

    order: Tensor
    scale: Tensor

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        layers: int = 1,
        kernel: int = 1,
        order: Tensor | None = None,
        scale: float = 1.0,
        start: str = "identity",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if min(channels, outputs, layers, kernel) < 1 or kernel % 2 == 0:
            raise RequestError(
                f"an adapter from {channels} to {outputs} channels with {layers} layers of {kernel}×{kernel} cannot be; "
                "give 1 or more of each, and an odd kernel."
            )
        if start not in STARTS:
            raise RequestError(f"start is {start!r}; it must be {' or '.join(STARTS)}.")
        self.register_buffer("order", torch.arange(channels) if order is None else order.long())
        self.register_buffer("scale", torch.tensor(float(scale)))
        if sorted(self.order.tolist()) != list(range(channels)):
            raise RequestError(f"order must name each of the {channels} channels once.")
        widths = [channels, *[outputs] * layers]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.convs = nn.ModuleList(nn.Conv2d(a, b, kernel, padding=kernel // 2) for a, b in pairwise(widths))
        for conv in self.convs:
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]  # no pseudo-gradient sees one, so it would stay
            if start == "identity":
                nn.init.dirac_(conv.weight)  # type: ignore[arg-type]

    @property
    def channels(self) -> tuple[int, int]:
        """Channels read and made."""
        return len(self.order), int(self.convs[-1].out_channels)  # type: ignore[arg-type]

    def prepared(self, x: Tensor) -> Tensor:
        """What the first convolution reads."""
        return x.index_select(1, self.order) * self.scale.to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        x = self.prepared(x)
        for conv in self.convs:
            x = F.relu(conv(x))
        return x

    def back(self, gradient: Tensor) -> Tensor:
        """The pseudo-gradient at the category module's output, ReLUs passed as by the first dummy."""
        size = gradient.shape[2:]
        for conv in reversed(self.convs):
            gradient = conv_back(gradient, conv, size)  # type: ignore[arg-type]
        scattered = torch.empty_like(gradient)
        scattered[:, self.order] = gradient
        return scattered * self.scale.to(gradient.dtype)

    def extra_repr(self) -> str:
        return f"{self.channels[0]} → {self.channels[1]} channels, scale {float(self.scale):.4g}"


def balance(wanted: Tensor, given: Tensor) -> float:
    """The paper's β: the mean norm of what the task module is used to over that of what the category module gives."""
    means = [t.flatten(1).norm(dim=1).mean() for t in (wanted, given)]
    return float(means[0] / means[1].clamp(min=1e-30))
