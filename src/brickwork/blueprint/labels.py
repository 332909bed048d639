"""Channel labels: which unit every element of every tensor belongs to, and which units are one and the same.

A *plane* is an integer tensor that broadcasts to the tensor it describes: the unit of each element, 0 where
there is none. An activation has at most one plane; a parameter has one for each axis, until an operation
tells what the axis runs over. Units that are added together, or that can only be kept together (the channels
of one attention head that is not open, the two factors of a product), are united.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor


@dataclass
class Tags:
    """What is known of one tensor: its planes, and what its values are where a unit has been zeroed."""

    planes: list[Tensor] = field(default_factory=list)
    zero: bool = False  # elements of a unit are 0 whenever all parameters of that unit are 0
    weight: bool = False  # computed from parameters and constants alone
    source: str | None = None  # the parameter this is, up to moves

    @property
    def plane(self) -> Tensor | None:
        return self.planes[0] if self.planes else None


@dataclass(frozen=True)
class Fixed:
    """A reason why units cannot be removed."""

    reason: str
    channel: bool  # False: the axis is not a channel axis at all (kernel, tokens, model input)


def compress(plane: Tensor) -> Tensor:
    """Shrink every axis along which the plane is constant to size 1."""
    for dim in range(plane.dim()):
        if plane.shape[dim] > 1 and plane.stride(dim) == 0:
            plane = plane.narrow(dim, 0, 1)
    for dim in range(plane.dim()):
        if plane.shape[dim] > 1 and bool((plane == plane.narrow(dim, 0, 1)).all()):
            plane = plane.narrow(dim, 0, 1)
    return plane


def varies(plane: Tensor) -> set[int]:
    """The axes along which a (compressed) plane changes."""
    return {d for d, n in enumerate(plane.shape) if n > 1}


def touches(planes: Iterable[Tensor], units: Tensor) -> bool:
    """Whether one of these planes runs over the units of another, all of them as long as one tensor has axes."""
    return any(varies(plane) & varies(units) for plane in planes)


def align(plane: Tensor, ndim: int) -> Tensor:
    """Add leading axes, as broadcasting does."""
    return plane.reshape((1,) * (ndim - plane.dim()) + tuple(plane.shape))


@dataclass
class _Meeting:
    """Labels that stand at the same places, and what is true of one that meets none."""

    left: Tensor
    right: Tensor
    where: str
    read: bool  # the left are a parameter's, which reads the right
    before: int  # how many reasons to stay there were then


class Units:
    """Collects, over a walk through the graph, which units are one and which must stay.

    What meets is only noted down: looked at all together, it takes a tenth of the time.
    """

    def __init__(self) -> None:
        self.count = 1  # 0 means "no unit"
        self._meetings: list[_Meeting] = []
        self._fixed: list[tuple[Tensor, Fixed]] = []
        self.heads: list[Tensor] = []  # (heads, dimensions) of open attentions: each head must keep as many

    def fresh(self, size: int) -> Tensor:
        ids = torch.arange(self.count, self.count + size)
        self.count += size
        return ids

    def unite(self, a: Tensor, b: Tensor, where: str) -> None:
        """Elements at the same (broadcast) place belong to one unit; an element without one pins the other."""
        if a is not b:
            a, b = torch.broadcast_tensors(a, b) if a.shape != b.shape else (a, b)
            self._meetings.append(_Meeting(a.reshape(-1), b.reshape(-1), where, False, len(self._fixed)))

    def meet(self, own: Tensor, labels: Tensor, source: str | None, where: str) -> None:
        """A parameter's axis runs over these labels; where there is none, it is no channel axis."""
        self._meetings.append(_Meeting(own, labels, where, True, len(self._fixed)))

    def grouped(self, source: str | None) -> bool:
        """Whether a kernel with one input a group is known to be a grouped one, not a depthwise one."""
        return False

    def meet_groups(self, labels: Tensor | None, source: str | None, where: str) -> None:
        """A grouped convolution reads these labels; its weight has no axis of its own for them."""

    def open_heads(self, plane: Tensor, where: str) -> None:
        """The dimensions of heads, along the last axis of a plane, are channels; its other axes tell the heads apart."""
        rows = plane.reshape(-1, plane.shape[-1])
        first = np.sort(np.unique(rows[:, 0].numpy(), return_index=True)[1])  # images repeat them
        self.heads.append(rows[torch.from_numpy(first)])

    def fix(self, ids: Tensor, reason: str, *, channel: bool = True) -> None:
        ids = ids.reshape(-1)
        ids = ids[ids != 0]
        if len(ids):
            self._fixed.append((ids.unique(), Fixed(reason, channel)))

    def classes(self) -> np.ndarray:
        """For every id, its class; classes are numbered by their smallest id, 0 stays 0."""
        a, b = self._united()
        # most ids meet one other and no more (a batch norm's four vectors): what they belong to follows from that one
        met = np.bincount(a, minlength=self.count) + np.bincount(b, minlength=self.count)
        leaf = met[a] == 1
        rest = (a[~leaf], b[~leaf])
        graph = coo_matrix((np.ones(len(rest[0]), np.int8), rest), shape=(self.count, self.count))
        _, part = connected_components(graph, directed=False)
        part[a[leaf]] = part[b[leaf]]
        smallest = np.zeros(part.max() + 1, np.int64)
        smallest[part[::-1]] = np.arange(self.count)[::-1]  # the last that is written stays
        return smallest[part]

    def _united(self) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of ids that are one unit; an id that met none is fixed, in the order in which that was seen."""
        if not self._meetings:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        a = torch.cat([m.left for m in self._meetings]).numpy()
        b = torch.cat([m.right for m in self._meetings]).numpy()
        lone = (a == 0) != (b == 0)
        if lone.any():
            ends = np.cumsum([len(m.left) for m in self._meetings])
            which = np.searchsorted(ends, np.flatnonzero(lone), side="right")
            found = [(self._meetings[k], _alone(self._meetings[k])) for k in np.unique(which)]
            for meeting, more in reversed(found):  # from the back, so that places before stay what they were
                self._fixed[meeting.before : meeting.before] = more
        real = (a != b) & ~lone
        self._meetings = [_Meeting(torch.from_numpy(a[real]), torch.from_numpy(b[real]), "", False, len(self._fixed))]
        return a[real], b[real]

    def reasons(self, classes: np.ndarray) -> dict[int, Fixed]:
        """For every class that cannot be removed, the first reason given (a channel reason if there is one).

        classes: what `classes` gave; with it came the reasons of those that met none.
        """
        result: dict[int, Fixed] = {}
        for ids, fixed in self._fixed:
            for unit in np.unique(classes[ids.numpy()]).tolist():
                if unit not in result or (fixed.channel and not result[unit].channel):
                    result[unit] = fixed
        return result


def _alone(meeting: _Meeting) -> list[tuple[Tensor, Fixed]]:
    """Of a meeting, the ids that met none, with the reason why they stay."""
    a, b = meeting.left, meeting.right
    bare = Fixed("it reads what belongs to no channel", channel=False)
    pinned = Fixed(f"it meets values that belong to no channel at {meeting.where}", channel=True)
    sides = ((a[b == 0], bare if meeting.read else pinned), (b[a == 0], pinned))
    return [(ids[ids != 0].unique(), why) for ids, why in sides if bool(ids.any())]


class Mismatch(Exception):
    """Two tensors that must agree channel by channel do not."""

    def __init__(self, where: str, detail: str) -> None:
        self.where = where
        super().__init__(f"{where}: {detail}")


class KnownUnits(Units):
    """The same walk over a finished model whose units are known: every union must already hold."""

    def __init__(
        self, classes: np.ndarray, group_reads: Mapping[str, np.ndarray], heads: Sequence[np.ndarray] = ()
    ) -> None:
        super().__init__()
        self.head_of = np.zeros(len(classes), np.int64)  # of each unit, counted from 1
        for number, head in enumerate((head for table in heads for head in table), 1):
            self.head_of[head] = number
        self.group_reads = group_reads  # grouped convolution's weight -> the units it was built to read
        self.arrived_groups: dict[str, np.ndarray] = {}  # where they arrive in another order: that order
        self.known = classes
        self.count = len(classes)  # ids of axes that are no channel axes come after the known ones
        self.arrived: dict[tuple[str, bytes], np.ndarray] = {}  # (parameter, axis as built) -> the order needed

    def grouped(self, source: str | None) -> bool:
        return source in self.group_reads

    def unit(self, ids: Tensor) -> Tensor:
        """The unit of each id; 0 for ids that are no known channel."""
        return torch.from_numpy(self._unit(ids))

    def _unit(self, ids: Tensor) -> np.ndarray:
        numbers = ids.numpy()
        inside = numbers < len(self.known)
        return self.known[numbers] if inside.all() else np.where(inside, self.known[numbers * inside], 0)

    def meet(self, own: Tensor, labels: Tensor, source: str | None, where: str) -> None:
        """Channels may arrive in another order than the axis was built in; the builder then follows it."""
        built, came = self._unit(own), self._unit(labels)
        there = (built != 0) & (came != 0) if len(own) == len(labels) else None
        same = there is not None and np.array_equal(built[there], came[there])
        if same and source is None:
            return
        alike = same or (there is not None and np.array_equal(np.sort(built[there]), np.sort(came[there])))
        if source is None or there is None or not alike:
            raise Mismatch(where, f"{source or 'a parameter'} was built for other channels than arrive")
        order = np.where(there, came, built)
        if not np.array_equal(self.arrived.setdefault((source, built.tobytes()), order), order):
            raise Mismatch(where, f"{source} is used twice and channels arrive in different orders")

    def meet_groups(self, labels: Tensor | None, source: str | None, where: str) -> None:
        if labels is None:
            return
        if source is None or source not in self.group_reads:
            raise Mismatch(where, f"nothing is known of what the groups of {source or 'a kernel'} read")
        came, built = self._unit(labels), self.group_reads[source]
        there = came != 0
        if len(came) != len(built) or not np.array_equal(np.sort(came[there]), np.sort(built[there])):
            raise Mismatch(where, f"other channels arrive than the groups of {source} were built for")
        if not np.array_equal(came[there], built[there]):
            self.arrived_groups[source] = np.where(there, came, built)

    def unite(self, a: Tensor, b: Tensor, where: str) -> None:
        if a is b:
            return
        left, right = self._unit(a), self._unit(b)
        wrong = (left != right) & (left != 0) & (right != 0)
        if wrong.any():
            raise Mismatch(where, f"{int(wrong.sum())} of {wrong.size} channels would meet the wrong partner")

    def open_heads(self, plane: Tensor, where: str) -> None:
        of = self.head_of[self._unit(plane.reshape(-1, plane.shape[-1]))]
        if (of != of[:, :1]).any():
            raise Mismatch(where, "dimensions of different heads would meet in one, as heads keep unequally many")

    def fix(self, ids: Tensor, reason: str, *, channel: bool = True) -> None:
        return
