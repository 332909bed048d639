"""A task as the bytes of a file: a JSON header, one stream of coded numbers, a checksum. Nothing in it is ever run.

    BWTASK1\\n | length of the header | header, JSON under zlib | stream | blake2b of all before, 16 bytes

Layers and tensors come in the order of the pool's network, so the header need not name them. A task is told on its own or
relative to another, which the header names, with its hash.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from brickwork.errors import BadFile
from brickwork.origin import Origin
from brickwork.pools.coder import number_models
from brickwork.pools.pool import KernelPool
from brickwork.pools.streams import Stream
from brickwork.pools.task import Task, exact_in
from brickwork.store.config import OriginConfig, origin_config

MAGIC = b"BWTASK1\n"
CHECK = 16
#: how a tensor is told: all zero, as in the reference, in 12 or 16 bits a value, or as its bytes are
ZERO, SAME, SHORT, HALF, RAW = "0=stb"
#: from this share of changed indices on a layer is cheaper on its own
_MOSTLY = 0.9


def write_task(task: Task, pool: KernelPool, reference: tuple[str, Task] | None = None) -> bytes:
    """The file of a task; `reference` is the name and the task that it is told relative to."""
    other = None if reference is None else reference[1]
    stream = Stream()
    modes = "".join(_write_codes(stream, pool, task, other, name) for name in pool.shapes)
    for name in _extra(pool, task.extra):
        stream.own(_int64(task.extra[name]), len(pool.residual[name]))
    kinds, raw = _write_own(stream, pool, task, other)
    body = stream.close()
    header = {
        "format": 1,
        "pool": task.pool,
        "task": task.hash,
        "origin": origin_config(task.origin),
        "reference": None if reference is None else [reference[0], reference[1].hash],
        "precision": task.precision,
        "codes": modes,
        "extra": _extra(pool, task.extra),
        "scales": dict(task.scales),
        "own": kinds,
        "stream": len(body),
        "facts": dict(task.facts),
    }
    if not task.classes:  # else there are as many outputs as names
        header["outputs"] = len(task.own[pool.head_weight])
    text = zlib.compress(json.dumps(header, separators=(",", ":"), allow_nan=False).encode(), 9)
    whole = MAGIC + struct.pack("<I", len(text)) + text + body + raw
    return whole + hashlib.blake2b(whole, digest_size=CHECK).digest()


def read_header(data: bytes, where: object) -> dict[str, Any]:
    """The checked header of a task file, and where its stream begins under "at"."""
    if not data.startswith(MAGIC):
        raise BadFile(f"{where} is not a task of a pool (it does not begin with {MAGIC[:-1].decode()}).")
    if (
        len(data) < len(MAGIC) + 4 + CHECK
        or hashlib.blake2b(data[:-CHECK], digest_size=CHECK).digest() != data[-CHECK:]
    ):
        raise BadFile(
            f"{where} is damaged or cut short: its checksum is wrong. Learn the task again, or copy it anew."
        )
    start = len(MAGIC) + 4
    size = struct.unpack("<I", data[len(MAGIC) : start])[0]
    try:
        header = json.loads(zlib.decompress(data[start : start + size]))
        OriginConfig.model_validate(header["origin"])
        if header["format"] != 1:
            raise BadFile(
                f"{where} has format {header['format']!r}; this Brickwork reads format 1. Upgrade Brickwork."
            )
    except (zlib.error, ValueError, KeyError, TypeError, ValidationError) as error:
        raise BadFile(f"{where} is not a valid task file: {error}.") from error
    return {**header, "at": start + size}


def read_task(
    data: bytes, pool: KernelPool, where: object, find: Callable[[str, str], Task] | None = None
) -> Task:
    """The task of a file; `find(name, hash)` brings the task it is relative to."""
    header = read_header(data, where)
    if header["pool"] != pool.hash:
        raise BadFile(f"{where} belongs to pool {header['pool'][:12]}, and this is pool {pool.hash[:12]}.")
    reference = None
    if header["reference"] is not None:
        if find is None:
            raise BadFile(f"{where} is relative to {header['reference'][0]!r}, which is not at hand.")
        reference = find(*header["reference"])
    at, end = header["at"], header["at"] + header["stream"]
    stream = Stream(data[at:end])
    try:
        codes = {
            name: _read_codes(stream, pool, reference, name, mode)
            for name, mode in zip(pool.shapes, header["codes"], strict=True)
        }
        extra = {
            name: _int32(stream.own(np.zeros(pool.shapes[name].count, np.int64), len(pool.residual[name])))
            for name in header["extra"]
        }
        origin = Origin.from_dict(header["origin"])
        outputs = len(origin.classes or ()) or header.get("outputs")
        own = _read_own(stream, pool, reference, outputs, header["own"], data[end:-CHECK])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise BadFile(f"{where} does not fit its pool: {error}.") from error
    task = Task(pool.hash, origin, codes, own, extra=extra, scales=header["scales"], precision=header["precision"],
                reference=reference, facts=header["facts"])  # fmt: skip
    if task.hash != header["task"]:
        raise BadFile(f"{where} was decoded into something else than was written: its content hash is wrong.")
    return task


def _write_codes(stream: Stream, pool: KernelPool, task: Task, other: Task | None, name: str) -> str:
    codes, layer = _int64(task.codes[name]), pool.shapes[name]
    if other is not None:
        old = _int64(other.codes[name])
        if np.mean(codes != old) < _MOSTLY:
            stream.relative(codes, old, pool.neighbours(name), layer.count // layer.shape[0])
            return "r"
    stream.own(codes, len(pool.layers[name]))
    return "o"


def _read_codes(stream: Stream, pool: KernelPool, other: Task | None, name: str, mode: str) -> Tensor:
    layer = pool.shapes[name]
    codes = np.zeros(layer.count, np.int64)
    if mode == "r":
        if other is None:
            raise ValueError(f"{name} is relative to a task, and none is named")
        stream.relative(
            codes, _int64(other.codes[name]), pool.neighbours(name), layer.count // layer.shape[0]
        )
    else:
        stream.own(codes, len(pool.layers[name]))
    if len(codes) and codes.max() >= len(pool.layers[name]):
        raise ValueError(f"{name} names kernel {codes.max()} of {len(pool.layers[name])}")
    return _int32(codes)


def _write_own(stream: Stream, pool: KernelPool, task: Task, other: Task | None) -> tuple[str, bytes]:
    models: dict[tuple[str, bool, str], np.ndarray] = {}
    kinds, raw = "", b""
    for name, value in task.own.items():
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
            stream.numbers(
                _steps(value, kind) - _steps(before, kind) if before is not None else _steps(value, kind),
                model,
            )
        kinds += kind
    return kinds, raw


def _read_own(
    stream: Stream, pool: KernelPool, other: Task | None, outputs: int | None, kinds: str, raw: bytes
) -> dict[str, Tensor]:
    models: dict[tuple[str, bool, str], np.ndarray] = {}
    own, at = {}, 0
    mine = {s.parameter for s in pool.shapes.values()}
    expected = {k: v for k, v in pool.template.state_dict().items() if k not in mine and k not in pool.tied}
    for (name, like), kind in zip(expected.items(), kinds, strict=True):
        shape = tuple(like.shape)
        if outputs and name.rpartition(".")[0] == pool.head:
            shape = (outputs, *shape[1:])
        value = torch.zeros(shape, dtype=like.dtype)
        before = _comparable(other, name, value)
        if kind == SAME:
            if before is None:
                raise ValueError(f"{name} is said to be as in the reference, which has none of that shape")
            value = before.clone()
        elif kind in (SHORT, HALF):
            model = models.setdefault(_family(pool, name, kind), number_models())
            steps = stream.numbers(np.zeros(value.numel(), np.int64), model)
            value = _from_steps(steps if before is None else steps + _steps(before, kind), kind, value)
        elif kind == RAW:
            size = value.numel() * value.element_size()
            if at + size > len(raw):
                raise ValueError(f"{name} is cut short")
            value = torch.frombuffer(bytearray(raw[at : at + size]), dtype=like.dtype).reshape(shape)
            at += size
        own[name] = value
    return own


def _steps(value: Tensor, kind: str) -> np.ndarray:
    """float16 values as whole numbers in their own order: neighbours differ by one (by sixteen, in 12 bits)."""
    bits = value.half().contiguous().reshape(-1).view(torch.int16).numpy().astype(np.int64)
    steps = np.where(bits < 0, -(bits & 0x7FFF), bits)
    return (steps + 8) >> 4 if kind == SHORT else steps


def _from_steps(steps: np.ndarray, kind: str, like: Tensor) -> Tensor:
    steps = steps << 4 if kind == SHORT else steps
    bits = np.where(steps < 0, -steps | 0x8000, steps).astype(np.uint16)
    return torch.from_numpy(bits.view(np.float16)).reshape(like.shape).to(like.dtype)


def _comparable(other: Task | None, name: str, value: Tensor) -> Tensor | None:
    before = None if other is None else other.own.get(name)
    fits = before is not None and before.shape == value.shape and before.dtype == value.dtype
    return before if fits and bool(torch.isfinite(before.half()).all()) else None  # type: ignore[union-attr]


def _family(pool: KernelPool, name: str, kind: str) -> tuple[str, bool, str]:
    """Tensors whose values look alike share models."""
    parent, _, leaf = name.rpartition(".")
    return leaf, parent == pool.head, kind


def _extra(pool: KernelPool, extra: Mapping[str, Tensor]) -> list[str]:
    return [name for name in pool.shapes if name in extra]


def _int64(codes: Tensor) -> np.ndarray:
    return codes.numpy().astype(np.int64)


def _int32(codes: np.ndarray) -> Tensor:
    return torch.from_numpy(codes.astype(np.int32))
