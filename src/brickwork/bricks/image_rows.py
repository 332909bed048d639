"""Which rows of a layer's response belong to which image.

Mostly row k is image k. A network that looks through windows lays those of one image one after the other into the same axis,
and some keep images along another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from brickwork.blueprint.plan import Blueprint
from brickwork.blueprint.record import Graph, Value, record
from brickwork.errors import Unsupported
from brickwork.moments.program import Program


@dataclass(frozen=True)
class Rows:
    """Along this axis lie so many rows of every image, image after image."""

    axis: int
    each: int

    def laid_out(self, response: Tensor, channels: int) -> Tensor:
        """(images, channels, places) of a response that has its channels along this axis.

        >>> windows = torch.arange(24.0).reshape(4, 3, 2)  # two images of two windows, three places, two channels
        >>> Rows(0, 2).laid_out(windows, 2)[1, 0]
        tensor([12., 14., 16., 18., 20., 22.])
        """
        rows = response.movedim((self.axis, channels), (0, 1))
        images = rows.unflatten(0, (len(rows) // self.each, self.each))
        return images.movedim(2, 1).flatten(2)


def two_or_more(images: Tensor) -> Tensor:
    """One image alone is given twice: a forward may lay out one in another way than several."""
    return torch.cat([images, images]) if len(images) == 1 else images


def image_rows(
    model: nn.Module, bp: Blueprint, images: Tensor, graph: Graph, wanted: Iterable[Value]
) -> dict[int, Rows]:
    """For every wanted value of a recording of some images, by its index; one that images do not reach has none.

    bp: a trace of the same network. Its recording is compared with the values, or another one if it is of as many images.
    """
    count, traced = graph.inputs[0].shape[0], bp.graph.inputs[0].shape[0]
    few, some = bp.graph, images[:traced]
    # a forward that keeps a table from its first run goes another way since the trace
    if len(some) < max(2, traced) or len(some) == count or not _alike(few, graph):
        some = two_or_more(images[:2])
        some = torch.cat([some, some[:1]]) if len(some) == count else some
        few = record(model, some, output=bp.output)
    if not _alike(few, graph):
        raise _another_way()
    made = [value for op in few.live() for value in op.outputs if value is not None]
    other = {value.index: value for value in [*few.inputs, *made]}
    result: dict[int, Rows] = {}
    for value in wanted:
        twin = other.get(value.index)
        if twin is None or len(twin.shape) != len(value.shape):
            raise _another_way()
        grown = [d for d, (a, b) in enumerate(zip(value.shape, twin.shape, strict=True)) if a * len(some) == b * count]
        if len(grown) == 1:
            result[value.index] = Rows(grown[0], value.shape[grown[0]] // count)
    mixed = [other[index] for index, rows in result.items() if rows.each > 1]
    if mixed:
        _check_order(model, few, some, mixed, result)
    return result


def _alike(one: Graph, two: Graph) -> bool:
    return [op.func for op in one.ops] == [op.func for op in two.ops]


def _another_way() -> Unsupported:
    return Unsupported("the forward takes another way with more images; scores need one that treats them alike")


def _check_order(model: nn.Module, graph: Graph, images: Tensor, values: list[Value], rows: dict[int, Rows]) -> None:
    """The first image is replaced by another: its rows, and no others, may change."""
    changed = torch.cat([images[:1].flip(-1) + 1, images[1:]])
    before, after = (Program(model, graph, [batch]) for batch in (images, changed))
    for value in sorted(values, key=lambda v: v.index):
        one, two = (program.get(value)[0] for program in (before, after))
        place = rows[value.index]
        differ = (one != two).movedim(place.axis, 0).flatten(1).any(1)
        if bool(differ[place.each :].any()):
            raise Unsupported(
                "a layer's response holds rows of several images in an order that cannot be told apart; scores "
                "need the rows of one image together"
            )
