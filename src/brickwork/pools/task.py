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

from brickwork.data.images import ImageData
from brickwork.data.streamed import Images
from brickwork.errors import BadData, RequestError
from brickwork.html_table import facts_table
from brickwork.origin import Origin
from brickwork.pools.growth import Growth
from brickwork.pools.options import BITS, EncodeOptions, LearnOptions, restored
from brickwork.store import state_hash
from brickwork.store.config import origin_config


@dataclass(frozen=True, eq=False)
class PoolTask:
    """One network in kernels of a pool. `reference` is the task that its difference from takes fewest bytes.

    codes: for each layer the indices of its kernels, int32 (N,). own: every other tensor of the network's state, already
    rounded to `precision` bits.
    """

    pool: str  # the pool's hash
    origin: Origin
    codes: Mapping[str, Tensor] = field(repr=False)
    own: Mapping[str, Tensor] = field(repr=False)
    precision: int = 32
    reference: PoolTask | None = field(default=None, repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)  # how it came about; JSON values
    brings: Growth | None = field(default=None, repr=False)  # kernels that its pool has only with this task

    @property
    def classes(self) -> tuple[str, ...]:
        return self.origin.classes or ()

    @functools.cached_property
    def hash(self) -> str:
        """sha256 of everything that the rebuilt network depends on."""
        parts = {f"codes.{k}": v.int() for k, v in self.codes.items()}
        parts |= {f"own.{k}": v for k, v in self.own.items()}
        head = json.dumps([self.pool, origin_config(self.origin)], sort_keys=True)
        return hashlib.sha256((head + state_hash(parts)).encode()).hexdigest()

    @property
    def options(self) -> LearnOptions | EncodeOptions | None:
        """How it was learned or encoded, where that is on record; of training, what its file keeps: epochs, lr and seed."""
        how = self.facts.get("how")
        if how == "learn":
            return restored(LearnOptions, self.facts, bits=self.precision)
        return restored(EncodeOptions, self.facts, bits=self.precision) if how == "encode" else None

    @property
    def provenance(self) -> dict[str, Any]:
        """What it was made from, by hash, and how."""
        reference = None if self.reference is None else self.reference.hash
        return {"pool": self.pool, "reference": reference, **self.facts}

    def changed(self, other: PoolTask | None = None) -> float:
        """The share of kernels that are not the reference's (or another task's)."""
        other = other or self.reference
        if other is None:
            return 1.0
        different = sum(int((v != other.codes[k]).sum()) for k, v in self.codes.items())
        return different / max(1, sum(len(v) for v in self.codes.values()))

    def to_dict(self) -> dict[str, Any]:
        """JSON values: per layer how many kernels are used, and how many are not the reference's."""
        layers = []
        for name, codes in self.codes.items():
            other = None if self.reference is None else self.reference.codes[name]
            changed = None if other is None else float((codes != other).double().mean())
            layers.append({"layer": name, "kernels": len(codes), "used": len(codes.unique()), "changed": changed})
        facts = {"precision": self.precision, "hash": self.hash, "facts": dict(self.facts)}
        return {"names": list(self.classes), "layers": layers, **facts}

    def _repr_html_(self) -> str:
        return facts_table([("task", str(self)), *((name, str(value)) for name, value in self.provenance.items())])

    def __repr__(self) -> str:
        count = sum(len(v) for v in self.codes.values())
        changed = "" if self.reference is None else f", {self.changed():.1%} unlike its reference"
        new = "" if self.brings is None else f", {self.brings.count} new ones for the pool"
        return f"PoolTask({len(self.classes)} classes, {count:,} kernels in {len(self.codes)} layers{changed}{new})"


def labelled(
    data: ImageData | Images, labels: Any, classes: Sequence[str] | int | None
) -> tuple[Images, tuple[str, ...]]:
    """Training images, and the names of their classes, checked against the labels."""
    if not isinstance(data, ImageData):
        return data, class_names(classes, labels)
    return data.train_images, class_names(data.classes if classes is None else classes, data.train_labels)


def class_names(classes: Sequence[str] | int | None, labels: Any) -> tuple[str, ...]:
    """The names of a task's classes, checked against its labels."""
    truth = torch.as_tensor(labels)
    if truth.ndim != 1 or truth.is_floating_point() or len(truth) == 0:
        raise BadData(f"labels are {tuple(truth.shape)} {truth.dtype}; one class number per image, from 0.")
    top = int(truth.max()) + 1
    if classes is None:
        classes = top
    names = tuple(str(i) for i in range(classes)) if isinstance(classes, int) else tuple(map(str, classes))
    if int(truth.min()) < 0 or top > len(names):
        raise BadData(f"labels run from {int(truth.min())} to {top - 1}, but there are {len(names)} classes, from 0.")
    if len(set(names)) != len(names):
        raise RequestError(f"two classes have the same name: {', '.join(names)}.")
    return names


def rounded(value: Tensor, bits: int) -> Tensor:
    """A tensor with its values rounded to `bits` bits; as it is where that would lose it.

    >>> rounded(torch.tensor([1.0009765625, 3.0]), 12).tolist(), rounded(torch.tensor([1e9]), 16).tolist()
    ([1.0, 3.0], [1000000000.0])
    """
    if bits not in BITS:
        raise RequestError(f"`bits` is {bits}; it must be one of {', '.join(map(str, BITS))}.")
    if not value.is_floating_point() or value.numel() == 0:
        return value
    value = value + 0.0  # no negative zeros: they look equal and are not
    if bits == 32:
        return value
    back = _in_bits(value, bits)
    scale = value.abs().amax()
    kept = torch.isfinite(back).all() and ((back - value).abs() <= 0.01 * value.abs() + 1e-5 * scale).all()
    return back if bool(kept) else value


def in_half(value: Tensor) -> Tensor:
    """A tensor with its values rounded to 16 bits, whatever that loses; the largest stands for all above.

    >>> in_half(torch.tensor([1e9, 1.0])).tolist()
    [65504.0, 1.0]
    """
    most = torch.finfo(torch.float16).max
    return _in_bits(value.clamp(-most, most), 16)


def exact_in(value: Tensor, bits: int) -> bool:
    """Whether 16 or 12 bits per value hold the tensor exactly.

    >>> exact_in(torch.tensor([1.0, 3.0]), 12), exact_in(torch.tensor([1e9]), 16)
    (True, False)
    """
    return value.is_floating_point() and torch.equal(_in_bits(value, bits), value)


def _in_bits(value: Tensor, bits: int) -> Tensor:
    half = value.half()
    if bits == 12:
        pattern = half.view(torch.int16).int()
        pattern = ((pattern + 8) >> 4) << 4  # to the nearest; a carry goes into the exponent, as it should
        half = pattern.to(torch.int16).view(torch.float16)
    return half.to(value.dtype) + 0.0
