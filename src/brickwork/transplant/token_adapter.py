"""The adapter where a category module gives tokens, or a task module reads them: a linear map at every place of a grid."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.errors import RequestError
from brickwork.transplant.adapter import Adapter
from brickwork.transplant.layout import Grid, Layout
from brickwork.transplant.options import PREFIXES, RESIZES, STARTS


class TokenAdapter(nn.Module):
    """Features in one layout -> features in another: maps to tokens, tokens to maps, tokens to other tokens.

    A convolution (1×1: a linear map of every token) goes over the places of the grid. Where one side has r×r places for
    each of the other, resize="windows" lets it read or make all of them, which loses nothing; any other change of the
    grid, and resize="interpolate", is a bilinear one. Further layers add h + conv(GELU(h)). Prefix tokens (a class token)
    are linear in the prefix tokens that there are and in the mean of all places; prefix="constant": the same for every
    image. positive: the task is used to features above zero alone, so a ReLU ends the adapter.

    >>> tokens = Layout.of((17, 8), (4, 4))
    >>> x = torch.randn(2, 17, 8)
    >>> torch.equal(TokenAdapter(tokens, tokens)(x), x)
    True
    >>> TokenAdapter(Layout.of((6, 8, 8)), tokens)(torch.rand(2, 6, 8, 8)).shape
    torch.Size([2, 17, 8])
    """

    order: Tensor
    scale: Tensor

    def __init__(
        self,
        source: Layout,
        target: Layout,
        *,
        layers: int = 1,
        kernel: int = 1,
        order: Tensor | None = None,
        scale: float = 1.0,
        start: str = "identity",
        resize: str = "windows",
        prefix: str = "features",
        positive: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        _check(source, target, layers, kernel, start, resize, prefix)
        self.source, self.target = source, target
        self.resize, self.prefix, self.positive = resize, prefix, positive
        self.read, self.made = windows(source.grid, target.grid) if resize == "windows" else ((1, 1), (1, 1))
        self.register_buffer("order", torch.arange(source.channels) if order is None else order.long())
        self.register_buffer("scale", torch.tensor(float(scale)))
        if sorted(self.order.tolist()) != list(range(source.channels)):
            raise RequestError(f"order must name each of the {source.channels} channels once.")
        inputs, outputs = source.channels * _area(self.read), target.channels * _area(self.made)
        widths = [(inputs, outputs), *[(target.channels, target.channels)] * (layers - 1)]
        read = (source.prefix + 1) * source.channels if prefix == "features" and target.prefix else 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.convs = nn.ModuleList(nn.Conv2d(a, b, kernel, padding=kernel // 2) for a, b in widths)
            weight = torch.randn(target.prefix * target.channels, read) / max(1, read) ** 0.5
        self.prefix_weight = nn.Parameter(weight) if read else None
        self.prefix_bias = nn.Parameter(torch.zeros(target.prefix * target.channels)) if target.prefix else None
        for conv in self.convs:
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        if start == "identity":
            self._begin_as_identity()

    @property
    def channels(self) -> tuple[int, int]:
        """Channels read and made."""
        return self.source.channels, self.target.channels

    def prepared(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the first convolution reads, and what the prefix tokens are made of."""
        places, prefix = self.source.apart(x)
        scale = self.scale.to(x.dtype)
        places = places.index_select(1, self.order) * scale
        read = None
        if self.prefix_weight is not None:
            own = (prefix.index_select(2, self.order) * scale).flatten(1)
            read = torch.cat([own, places.mean((2, 3))], 1)
        if self.read != (1, 1):
            places = gathered(places, self.read)
        elif self.made == (1, 1) and self.source.grid != self.target.grid:
            smaller = _area(self.source.grid) > _area(self.target.grid)
            places = F.interpolate(places, self.target.grid, mode="bilinear", align_corners=False, antialias=smaller)
        return places, read

    def wanted(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """What the first convolution and the prefix tokens have to give so that features become y."""
        places, prefix = self.target.apart(y)
        return gathered(places, self.made), prefix.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        places, read = self.prepared(x)
        first, *more = self.convs
        places = scattered(first(places), self.made)
        for conv in more:
            places = places + conv(F.gelu(places))
        result = self.target.together(places, self._prefix(places, read))
        return F.relu(result) if self.positive else result

    def _prefix(self, places: Tensor, read: Tensor | None) -> Tensor:
        shape = (self.target.prefix, self.target.channels)
        if self.prefix_bias is None:
            return places.new_empty(len(places), *shape)
        if read is None or self.prefix_weight is None:
            return self.prefix_bias.expand(len(places), -1).unflatten(1, shape)
        return F.linear(read, self.prefix_weight, self.prefix_bias).unflatten(1, shape)

    @torch.no_grad()
    def _begin_as_identity(self) -> None:
        """Channels one by one, the mean of a window, a copy to every place of one; prefix tokens likewise, or the mean."""
        (a, b), (read, made) = self.channels, (_area(self.read), _area(self.made))
        one = torch.eye(b, a)
        for conv in self.convs:
            nn.init.zeros_(conv.weight)  # type: ignore[arg-type]
        first: Any = self.convs[0]
        centre = first.kernel_size[0] // 2
        first.weight[:, :, centre, centre] = (one / read).repeat(made, read)
        if self.prefix_weight is not None:
            blocks = torch.zeros(self.target.prefix, b, self.source.prefix + 1, a)
            for k in range(self.target.prefix):
                blocks[k, :, k if k < self.source.prefix else -1] = one
            self.prefix_weight.copy_(blocks.flatten(2).flatten(0, 1))

    def extra_repr(self) -> str:
        return f"{self.source} → {self.target}, scale {float(self.scale):.4g}"


AnyAdapter = Adapter | TokenAdapter


def windows(source: Grid, target: Grid) -> tuple[Grid, Grid]:
    """Places of the source that make one of the target, and places of the target that are made of one of the source.

    >>> windows((8, 8), (4, 4)), windows((4, 4), (8, 4)), windows((6, 6), (4, 4))
    (((2, 2), (1, 1)), ((1, 1), (2, 1)), ((1, 1), (1, 1)))
    """
    if all(have % want == 0 for have, want in zip(source, target, strict=True)):
        return (source[0] // target[0], source[1] // target[1]), (1, 1)
    if all(want % have == 0 for have, want in zip(source, target, strict=True)):
        return (1, 1), (target[0] // source[0], target[1] // source[1])
    return (1, 1), (1, 1)


def gathered(places: Tensor, window: Grid) -> Tensor:
    """(N, C, H·a, W·b) -> (N, a·b·C, H, W): every window as the channels of one place."""
    if window == (1, 1):
        return places
    a, b = window
    n, c, height, width = places.shape
    apart = places.reshape(n, c, height // a, a, width // b, b)
    return apart.permute(0, 3, 5, 1, 2, 4).reshape(n, a * b * c, height // a, width // b)


def scattered(places: Tensor, window: Grid) -> Tensor:
    """The way back from `gathered`."""
    if window == (1, 1):
        return places
    a, b = window
    n, c, height, width = places.shape
    apart = places.reshape(n, a, b, c // (a * b), height, width)
    return apart.permute(0, 3, 4, 1, 5, 2).reshape(n, c // (a * b), height * a, width * b)


def _area(window: Grid) -> int:
    return window[0] * window[1]


def _check(source: Layout, target: Layout, layers: int, kernel: int, start: str, resize: str, prefix: str) -> None:
    if min(layers, kernel) < 1 or kernel % 2 == 0:
        raise RequestError(f"{layers} layers of {kernel}×{kernel} cannot be; give 1 or more, and an odd kernel.")
    for name, value, known in (("start", start, STARTS), ("resize", resize, RESIZES), ("prefix", prefix, PREFIXES)):
        if value not in known:
            raise RequestError(f"{name} is {value!r}; it must be {' or '.join(known)}.")
    if source.known and target.known:
        return
    lost = source if not source.known else target
    if source.grid != target.grid or source.prefix != target.prefix:
        raise RequestError(
            f"{lost} lie on no known grid, so they cannot become {target if lost is source else source}: such tokens are "
            "joined to as many others alone; cut behind a convolution that makes the tokens, or cut both networks alike."
        )
    if kernel > 1:
        raise RequestError(f"{lost} lie on no known grid, so a kernel of {kernel}×{kernel} has no neighbours; give 1.")
