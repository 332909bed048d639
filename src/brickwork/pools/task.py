"""A task: which kernel of the pool stands where, and the small tensors (head, norms, biases) that are its own."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from brickwork.errors import BadData, RequestError
from brickwork.origin import Origin
from brickwork.pools.growth import Growth
from brickwork.store import state_hash
from brickwork.store.config import origin_config

PRECISIONS = (32, 16, 12)  # bits of a value: float32, float16, and float16 with six bits behind the point


@dataclass(frozen=True, eq=False)
class Task:
    """One network, said in kernels of a pool. `reference` is the task that it is cheapest to tell the difference from.

    codes, extra: for each layer the indices, int32 (N,), of its kernels and (where it has two) of what is added to them.
    scales: factors of whole layers. own: every other tensor of the network's state, already rounded to `precision`.
    """

    pool: str  # the pool's hash
    origin: Origin
    codes: Mapping[str, Tensor] = field(repr=False)
    own: Mapping[str, Tensor] = field(repr=False)
    extra: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    scales: Mapping[str, float] = field(default_factory=dict, repr=False)
    precision: int = 32
    reference: Task | None = field(default=None, repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)  # how it came about; JSON values
    brings: Growth | None = field(default=None, repr=False)  # kernels that its pool has only with this task

    @property
    def classes(self) -> tuple[str, ...]:
        return self.origin.classes or ()

    @functools.cached_property
    def hash(self) -> str:
        """sha256 of everything that the rebuilt network depends on."""
        parts = {f"codes.{k}": v.int() for k, v in self.codes.items()}
        parts |= {f"extra.{k}": v.int() for k, v in self.extra.items()}
        parts |= {f"own.{k}": v for k, v in self.own.items()}
        head = json.dumps([self.pool, origin_config(self.origin), dict(self.scales)], sort_keys=True)
        return hashlib.sha256((head + state_hash(parts)).encode()).hexdigest()

    def changed(self, other: Task | None = None) -> float:
        """The share of kernels that are not the reference's (or another task's)."""
        other = other or self.reference
        if other is None:
            return 1.0
        different = sum(int((v != other.codes[k]).sum()) for k, v in self.codes.items())
        return different / max(1, sum(len(v) for v in self.codes.values()))

    def __repr__(self) -> str:
        count = sum(len(v) for v in self.codes.values())
        changed = "" if self.reference is None else f", {self.changed():.1%} unlike its reference"
        new = "" if self.brings is None else f", {self.brings.count} new ones for the pool"
        return f"Task({len(self.classes)} classes, {count:,} kernels in {len(self.codes)} layers{changed}{new})"


def class_names(classes: Sequence[str] | int | None, labels: Any) -> tuple[str, ...]:
    """The names of a task's classes, checked against its labels."""
    truth = torch.as_tensor(labels)
    if truth.ndim != 1 or truth.is_floating_point() or len(truth) == 0:
        raise BadData(f"labels are {tuple(truth.shape)} {truth.dtype}; one class number an image, from 0.")
    top = int(truth.max()) + 1
    if classes is None:
        classes = top
    names = tuple(str(i) for i in range(classes)) if isinstance(classes, int) else tuple(map(str, classes))
    if int(truth.min()) < 0 or top > len(names):
        raise BadData(f"labels run from {int(truth.min())} to {top - 1}, but there are {len(names)} classes, from 0.")
    if len(set(names)) != len(names):
        raise RequestError(f"two classes have the same name: {', '.join(names)}.")
    return names


def rounded(value: Tensor, precision: int) -> Tensor:
    """A tensor with its values as `precision` bits can tell them; as it is where that would lose it.

    >>> rounded(torch.tensor([1.0009765625, 3.0]), 12).tolist(), rounded(torch.tensor([1e9]), 16).tolist()
    ([1.0, 3.0], [1000000000.0])
    """
    if precision not in PRECISIONS:
        raise RequestError(f"precision is {precision}; it must be {', '.join(map(str, PRECISIONS))}.")
    if not value.is_floating_point() or value.numel() == 0:
        return value
    value = value + 0.0  # no negative zeros: they look equal and are not
    if precision == 32:
        return value
    back = _in_bits(value, precision)
    scale = value.abs().amax()
    kept = torch.isfinite(back).all() and ((back - value).abs() <= 0.01 * value.abs() + 1e-5 * scale).all()
    return back if bool(kept) else value


def in_half(value: Tensor) -> Tensor:
    """A tensor with its values as 16 bits can tell them, whatever that loses; the largest stands for all above.

    >>> in_half(torch.tensor([1e9, 1.0])).tolist()
    [65504.0, 1.0]
    """
    most = torch.finfo(torch.float16).max
    return _in_bits(value.clamp(-most, most), 16)


def exact_in(value: Tensor, precision: int) -> bool:
    """Whether 16 or 12 bits a value tell the tensor to the last bit.

    >>> exact_in(torch.tensor([1.0, 3.0]), 12), exact_in(torch.tensor([1e9]), 16)
    (True, False)
    """
    return value.is_floating_point() and torch.equal(_in_bits(value, precision), value)


def _in_bits(value: Tensor, precision: int) -> Tensor:
    half = value.half()
    if precision == 12:
        bits = half.view(torch.int16).int()
        bits = ((bits + 8) >> 4) << 4  # to the nearest; a carry goes into the exponent, as it should
        half = bits.to(torch.int16).view(torch.float16)
    return half.to(value.dtype) + 0.0
