"""The tensors that are a task's own (head, norms, biases) in its file: relative to another task's where that has them."""

import io

import numpy as np
import torch
from torch import Tensor

from brickwork.errors import BadModel
from brickwork.pools.coder import number_models
from brickwork.pools.pool import KernelPool
from brickwork.pools.streams import Stream
from brickwork.pools.task import PoolTask, exact_in

#: how a tensor is stored: all zero, as in the reference, in 12 or 16 bits per value, or as its bytes are
ZERO, SAME, SHORT, HALF, RAW = "0=stb"


def write_own(stream: Stream, pool: KernelPool, task: PoolTask, other: PoolTask | None) -> tuple[str, bytes]:
    """How each tensor is stored, one letter per tensor, and the bytes of those that are stored as they are.

    In the order of the pool's network, which they are read in: that of the task's may be another, as after pruning.
    """
    models: dict[tuple[str, bool, str], np.ndarray] = {}
    kinds, raw = "", b""
    expected = _expected(pool)
    for name in [*(n for n in expected if n not in task.own), *(n for n in task.own if n not in expected)]:
        raise BadModel(f"the task is of another network: {name} is in only one of the two.")
    for name in expected:
        value = task.own[name]
        before = _comparable(other, name, value)
        if not bool(value.any()):
            kind = ZERO
        elif before is not None and torch.equal(before, value):
            kind = SAME
        elif exact_in(value, 12):
            kind = SHORT
        elif exact_in(value, 16):
            kind = HALF
        else:
            kind = RAW
            raw += value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        if kind in (SHORT, HALF):
            model = models.setdefault(_family(pool, name, kind), number_models())
            steps = _steps(value, kind)
            stream.numbers(steps if before is None else steps - _steps(before, kind), model)
        kinds += kind
    return kinds, raw


def read_own(
    stream: Stream, pool: KernelPool, other: PoolTask | None, outputs: int | None, kinds: str, rest: io.BytesIO
) -> dict[str, Tensor]:
    """The tensors that `write_own` wrote; `rest` is at the bytes of those that are stored as they are."""
    models: dict[tuple[str, bool, str], np.ndarray] = {}
    own = {}
    for (name, like), kind in zip(_expected(pool).items(), kinds, strict=True):
        shape = tuple(like.shape)
        if outputs and name in (pool.head_weight, pool.head_weight.removesuffix("weight") + "bias"):
            shape = (outputs, *shape[1:])
        value = torch.zeros(shape, dtype=like.dtype)
        before = _comparable(other, name, value)
        if kind == SAME:
            if before is None:
                raise ValueError(f"{name} is stored as in the reference, which has none of that shape")
            value = before.clone()
        elif kind in (SHORT, HALF):
            model = models.setdefault(_family(pool, name, kind), number_models())
            steps = stream.numbers(np.zeros(value.numel(), np.int64), model)
            value = _from_steps(steps if before is None else steps + _steps(before, kind), kind, value)
        elif kind == RAW:
            size = value.numel() * value.element_size()
            raw = bytearray(rest.read(size))
            if len(raw) < size:
                raise ValueError(f"{name} is cut short")
            value = torch.frombuffer(raw, dtype=like.dtype).reshape(shape)
        own[name] = value
    return own


def _expected(pool: KernelPool) -> dict[str, Tensor]:
    """The tensors of the pool's network that are each task's own, without values."""
    mine = {s.parameter for s in pool.shapes.values()}
    return {k: v for k, v in pool.template.state_dict().items() if k not in mine and k not in pool.tied}


def _steps(value: Tensor, kind: str) -> np.ndarray:
    """float16 values as whole numbers in their own order: neighbours differ by one (by sixteen, in 12 bits)."""
    bits = value.half().contiguous().reshape(-1).view(torch.int16).numpy().astype(np.int64)
    steps = np.where(bits < 0, -(bits & 0x7FFF), bits)
    return (steps + 8) >> 4 if kind == SHORT else steps


def _from_steps(steps: np.ndarray, kind: str, like: Tensor) -> Tensor:
    steps = steps << 4 if kind == SHORT else steps
    bits = np.where(steps < 0, -steps | 0x8000, steps).astype(np.uint16)
    return torch.from_numpy(bits.view(np.float16)).reshape(like.shape).to(like.dtype)


def _comparable(other: PoolTask | None, name: str, value: Tensor) -> Tensor | None:
    before = None if other is None else other.own.get(name)
    fits = before is not None and before.shape == value.shape and before.dtype == value.dtype
    return before if fits and bool(torch.isfinite(before.half()).all()) else None  # type: ignore[union-attr]


def _family(pool: KernelPool, name: str, kind: str) -> tuple[str, bool, str]:
    """Tensors whose values look alike share models."""
    parent, _, leaf = name.rpartition(".")
    return leaf, parent == pool.head, kind
