"""How alike the channels of two networks are, by what they answer on the same unlabelled images.

A channel is looked at where a layer makes it, behind its batch norm, and where layers read it, behind activation and
pooling, and the mean of the correlations at these places counts. Where it is read alone says nothing of a channel that a
ReLU silences, which is common; where it is made alone says nothing of a residual stream as a whole. On two small VGGs
(docs/algebra-studies.md) either alone gave means that were right on 38 and 36 % of the images that choose, both together 38 %.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.plan import CLASSES, Blueprint, trace
from brickwork.blueprint.record import Value
from brickwork.devices import number_of
from brickwork.errors import BadData
from brickwork.moments.batches import ImageBatches, SlicedImages, fitting
from brickwork.moments.program import Program

BATCH = 250  # images in a pass, at most


def correlations(a: nn.Module, b: nn.Module, images: SlicedImages, own: SlicedImages) -> dict[str, np.ndarray]:
    """For every space but the classes: how every channel of a (rows) correlates with every one of b (columns).

    images, own: the same images, as a and as b takes them. A channel that never changes is like no other: 0.

    >>> net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> x = torch.randn(50, 4)
    >>> found = correlations(net, net, x, x)["0"]
    >>> found.shape, found.argmax(1).tolist(), bool(abs(found.diagonal() - 1).max() < 1e-5)
    ((3, 3), [0, 1, 2], True)
    """
    like = number_of(a)
    size = fitting(a, images, at_most=BATCH)
    mine, theirs = ImageBatches(images, size, like), ImageBatches(own, size, number_of(b))
    sums: dict[tuple[str, int], _Sums] = {}
    spaces: dict[str, int] = {}
    for length in mine.sizes:
        # the same operations in both, in the same order
        sides = [_Side(model, batches.of_size(length)) for model, batches in ((a, mine), (b, theirs))]
        spaces = sides[0].bp.spaces
        for x, y in zip(sides[0].rows(), sides[1].rows(), strict=True):
            if not (bool(torch.isfinite(x.values).all()) and bool(torch.isfinite(y.values).all())):
                raise BadData(f"activations of {x.space} became NaN or infinite; channels cannot be compared by them.")
            key = x.space, x.point
            if key not in sums:
                sums[key] = _Sums(spaces[x.space])
            sums[key].add(x, y)
    result = {name: np.zeros((size, size)) for name, size in spaces.items() if name != CLASSES}
    for space, total in result.items():
        points = [found.correlation() for (name, _), found in sums.items() if name == space]
        total += sum(points) / max(1, len(points))
    return result


@dataclass(frozen=True)
class _Rows:
    """What some channels of a space answer: `values` is (rows, channels), `index` says which channels of the space."""

    space: str
    point: int
    values: Tensor
    index: np.ndarray


class _Side:
    """One network over batches of one length."""

    def __init__(self, model: nn.Module, batches: ImageBatches) -> None:
        self.bp = trace(model, batches[0])
        self.points = _points(self.bp)
        self.program = Program(model, self.bp.graph, batches, room=0)

    def rows(self) -> Iterator[_Rows]:
        """Batch by batch and point by point; a channel with several places (behind a flatten) comes once for each."""
        for found in self.program.each(self.points):
            for point, (value, x) in enumerate(zip(self.points, found, strict=True)):
                known = self.bp.channels(value)
                assert known is not None
                units, dim = known
                flat = x.movedim(dim, -1).flatten(0, -2)
                for space, places, index in self.bp.places(units):
                    if space == CLASSES:
                        continue
                    rank = ranks(index)
                    for r in range(int(rank.max()) + 1):
                        some = torch.from_numpy(places[rank == r]).to(flat.device)
                        yield _Rows(space, point, flat.index_select(1, some), index[rank == r])


def ranks(index: np.ndarray) -> np.ndarray:
    """How often each number came before.

    >>> ranks(np.array([0, 1, 0, 1, 1])).tolist()
    [0, 0, 1, 1, 2]
    """
    order = np.argsort(index, kind="stable")
    counts = np.bincount(index)
    result = np.empty(len(index), np.int64)
    result[order] = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    return result


def _points(bp: Blueprint) -> list[Value]:
    """What layers read, and what they make: behind a batch norm where there is one."""
    layers = [site.raw for site in bp.sites if site.kind in ("conv", "linear")]
    norms = [site.raw for site in bp.sites if site.kind == "batch_norm"]
    normalised = {norm.input.index for norm in norms if norm.input is not None}
    read = [layer.input for layer in layers]
    made = [site.output for site in (*layers, *norms) if site.output and site.output.index not in normalised]
    every = {value.index: value for value in (*read, *made) if value is not None}
    return [value for value in every.values() if bp.channels(value) is not None]


class _Sums:
    """Sums over rows of the answers of the channels of one space, at one point, in two networks.

    Every answer is taken from the channel's first one: of large numbers that hardly change, squares would keep nothing.
    """

    def __init__(self, size: int) -> None:
        self.rows = torch.zeros(size, dtype=torch.float64)  # of each channel
        self.first, self.sums, self.squares = (torch.zeros(2, size, dtype=torch.float64) for _ in range(3))
        self.products = torch.zeros(size, size, dtype=torch.float64)

    def add(self, mine: _Rows, theirs: _Rows) -> None:
        index = torch.from_numpy(mine.index)
        new = index[self.rows[index] == 0]
        sides = []
        for k, values in enumerate((mine.values, theirs.values)):
            if len(new):
                self.first[k, index] = values[0].double().cpu()
            wide = values.to(
                torch.promote_types(values.dtype, torch.float32)
            )  # sums of half-precision products overflow
            from_first = wide - self.first[k, index].to(wide)
            self.sums[k, index] += from_first.sum(0, dtype=torch.float64).cpu()
            self.squares[k, index] += from_first.square().sum(0, dtype=torch.float64).cpu()
            sides.append(from_first)
        self.rows[index] += len(sides[0])
        self.products[index[:, None], index[None, :]] += (sides[0].mT @ sides[1].to(sides[0])).double().cpu()

    def correlation(self) -> np.ndarray:
        rows = self.rows.clamp(min=1)
        means = self.sums / rows
        spread = (self.squares / rows - means.square()).clamp(min=0).sqrt()
        alive = spread > 1e-6 * (self.squares / rows).sqrt()  # what rounding leaves of one that never changes is none
        covariance = self.products / rows[:, None] - means[0][:, None] * means[1][None, :]
        scale = torch.where(alive, spread, 1.0)
        both = alive[0][:, None] & alive[1][None, :]
        return torch.where(both, covariance / (scale[0][:, None] * scale[1][None, :]), 0.0).numpy()
