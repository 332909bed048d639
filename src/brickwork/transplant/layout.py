"""How features lie: maps of channels, or tokens, most of which stand for the places of a grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from brickwork.blueprint.splitting import Below
from brickwork.errors import BadModel
from brickwork.prediction import evaluating
from brickwork.words import sides

Grid = tuple[int, int]  # height and width, in places


@dataclass(frozen=True)
class Layout:
    """Maps (C, H, W), or tokens (T, D): `prefix` tokens of no place, then those of the grid, row by row.

    Tokens whose grid is not known are a column of places; nothing but their number is known of them.

    >>> Layout.of((17, 32), (4, 4))
    Layout(channels=32, grid=(4, 4), prefix=1, tokens=True, known=True)
    >>> apart = Layout.of((17, 32), (4, 4)).apart(torch.zeros(2, 17, 32))
    >>> [tuple(part.shape) for part in apart]
    [(2, 32, 4, 4), (2, 1, 32)]
    """

    channels: int
    grid: Grid
    prefix: int = 0
    tokens: bool = False
    known: bool = True  # whether the places are those of a grid

    @classmethod
    def of(cls, shape: Sequence[int], grid: Sequence[int] | None = None) -> "Layout":
        """The layout of features of a shape, without their batch."""
        if len(shape) == 3:
            return cls(int(shape[0]), (int(shape[1]), int(shape[2])))
        if len(shape) != 2:
            raise BadModel(
                f"features of {sides(shape)} are neither maps (channels × height × width) nor tokens (tokens × channels), "
                "and an adapter joins these; cut elsewhere, as between two blocks."
            )
        count, channels = map(int, shape)
        if grid is None:
            return cls(channels, (count, 1), tokens=True, known=False)
        height, width = map(int, grid)
        return cls(channels, (height, width), count - height * width, tokens=True)

    def apart(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(N, …) -> the places as a map (N, C, H, W), and the prefix tokens (N, P, C)."""
        if not self.tokens:
            return features, features.new_empty(len(features), 0, self.channels)
        prefix, places = features[:, : self.prefix], features[:, self.prefix :]
        return places.transpose(1, 2).unflatten(2, self.grid), prefix

    def together(self, places: Tensor, prefix: Tensor) -> Tensor:
        """The way back from what `apart` gives."""
        if not self.tokens:
            return places
        return torch.cat([prefix, places.flatten(2).transpose(1, 2)], 1)

    def __str__(self) -> str:
        if not self.tokens:
            return sides((self.channels, *self.grid))
        if not self.known:
            return f"{self.grid[0]} tokens of {self.channels}"
        return f"{f'{self.prefix}+' if self.prefix else ''}{sides(self.grid)} tokens of {self.channels}"


def layouts_of(
    gives: Sequence[int], given: Grid | None, reads: Sequence[int], wanted: Grid | None
) -> tuple[Layout, Layout]:
    """Of both sides of an adapter; as many tokens on both are joined one by one where a grid is not known.

    >>> [str(layout) for layout in layouts_of((17, 8), None, (17, 32), (4, 4))]
    ['17 tokens of 8', '17 tokens of 32']
    """
    sides = Layout.of(gives, given), Layout.of(reads, wanted)
    if all(side.tokens for side in sides) and not all(side.known for side in sides) and gives[0] == reads[0]:
        return Layout.of(gives), Layout.of(reads)
    return sides


def grid_from(entry: Any, shape: Sequence[int]) -> Grid | None:
    """The grid that a file says tokens of a shape lie on; None where it says none."""
    if entry is None:
        return None
    numbers = isinstance(entry, list) and len(entry) == 2 and all(isinstance(n, int) and n > 0 for n in entry)
    if len(shape) != 2 or not numbers or entry[0] * entry[1] > shape[0]:
        raise BadModel(f"features of {sides(shape)} cannot lie on a grid of {entry!r}.")
    return entry[0], entry[1]


def grid_below(below: Below, input_shape: Sequence[int], shape: Sequence[int]) -> Grid | None:
    """The grid on which a category module's tokens lie, told by the last convolution that made them; None: not known.

    >>> from brickwork import zoo
    >>> from brickwork.blueprint.splitting import split
    >>> halves = split(zoo.build("vit_small", dim=16, depth=1, heads=1, seed=0).eval(), "blocks.0")
    >>> grid_below(halves.below, (3, 32, 32), (65, 16))
    (8, 8)
    """
    if len(shape) != 2:
        return None
    layers = dict(below.net.named_modules())
    maps: list[Grid] = []

    class Watcher(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            value = super().run_node(n)
            is_layer = n.op == "call_module" and isinstance(layers.get(str(n.target)), nn.Conv2d)
            if (is_layer or n.target in (F.conv2d, torch.conv2d)) and isinstance(value, Tensor):
                maps.append((int(value.shape[-2]), int(value.shape[-1])))
            return value

    like = next((p for p in below.parameters() if p.is_floating_point()), torch.zeros(()))
    with evaluating(below):
        Watcher(below.net).run(torch.zeros(1, *input_shape, device=like.device, dtype=like.dtype))
    return maps[-1] if maps and maps[-1][0] * maps[-1][1] <= shape[0] else None
