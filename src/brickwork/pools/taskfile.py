"""A task as the bytes of a file: a JSON header, one stream of coded numbers, a checksum. Nothing in it is ever run.

    BWTASK1\\n | length of the header | header, JSON under zlib | stream | bytes | blake2b of all before, 16 bytes

Layers and tensors come in the order of the pool's network, so the header need not name them. A task is told on its own or
relative to another, which the header names, with its hash.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from brickwork.errors import BadFile, RequestError
from brickwork.origin import Origin
from brickwork.pools.own_tensors import read_own, write_own
from brickwork.pools.packing import pack, packed_size, unpack
from brickwork.pools.pool import KernelPool
from brickwork.pools.streams import Stream
from brickwork.pools.task import Task
from brickwork.store.config import OriginConfig, origin_config

MAGIC = b"BWTASK1\n"
CHECK = 16
#: how a layer's indices are told: relative to the reference's, on their own in the stream, or packed among the bytes
RELATIVE, OWN, PACKED = "rop"
#: from this share of changed indices on a layer is cheaper on its own
_MOSTLY = 0.9
_FORMATS = (1, 2)  # 2: some indices are packed


def write_task(task: Task, pool: KernelPool, reference: tuple[str, Task] | None = None) -> bytes:
    """The file of a task; `reference` is the name and the task that it is told relative to."""
    pool = pool.for_task(task)
    other = None if reference is None else reference[1]
    if other is not None and other.pool not in pool.versions:
        raise RequestError(
            f"a task cannot be told relative to {reference[0]!r}, which uses kernels that came to the pool after it."  # type: ignore[index]
        )
    stream = Stream()
    packed: list[bytes] = []
    modes = "".join(_write_codes(stream, packed, pool, task, other, name) for name in pool.shapes)
    for name in _extra(pool, task.extra):
        stream.own(task.extra[name].numpy(), len(pool.residual[name]))
    kinds, raw = write_own(stream, pool, task, other)
    body = stream.close()
    header: dict[str, Any] = {
        "format": 2 if PACKED in modes else 1,
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
    if pool.grown:  # for the sake of a clear refusal
        header["grown"] = [next(iter(pool.versions)), len(pool.grown)]
    if not task.classes:  # else there are as many outputs as names
        header["outputs"] = len(task.own[pool.head_weight])
    text = zlib.compress(json.dumps(header, separators=(",", ":"), allow_nan=False).encode(), 9)
    whole = MAGIC + struct.pack("<I", len(text)) + text + body + b"".join(packed) + raw
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
        if header["format"] not in _FORMATS:
            raise BadFile(
                f"{where} has format {header['format']!r}; this Brickwork reads formats 1 and 2. Upgrade Brickwork."
            )
    except (zlib.error, ValueError, KeyError, TypeError, ValidationError) as error:
        raise BadFile(f"{where} is not a valid task file: {error}.") from error
    return {**header, "at": start + size}


def read_task(
    data: bytes,
    pool: KernelPool,
    where: object,
    find: Callable[[str, str], Task] | None = None,
    header: dict[str, Any] | None = None,
) -> Task:
    """The task of a file; `find(name, hash)` brings the task it is relative to. header: as it was read already."""
    header = header or read_header(data, where)
    pool = pool.at(_version(header, pool, where))
    reference = None
    if header["reference"] is not None:
        if find is None:
            raise BadFile(f"{where} is relative to {header['reference'][0]!r}, which is not at hand.")
        reference = find(*header["reference"])
        if reference.pool not in pool.versions:
            raise BadFile(
                f"{where} is relative to {header['reference'][0]!r}, which uses kernels that came later."
            )
    at, end = header["at"], header["at"] + header["stream"]
    stream, rest = Stream(data[at:end]), io.BytesIO(data[end:-CHECK])
    try:
        told = list(zip(pool.shapes, header["codes"], strict=True))
        with ThreadPoolExecutor(2) as crew:  # tables of later layers are made while the first are read
            tables = {
                name: crew.submit(pool.neighbours, name)
                for name, mode in told
                if mode == RELATIVE and reference is not None
            }
            codes = {
                name: _read_codes(stream, rest, pool, reference, name, mode, tables) for name, mode in told
            }
        extra = {
            name: torch.from_numpy(stream.own(_none(pool, name), len(pool.residual[name])))
            for name in header["extra"]
        }
        origin = Origin.from_dict(header["origin"])
        outputs = len(origin.classes or ()) or header.get("outputs")
        own = read_own(stream, pool, reference, outputs, header["own"], rest)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise BadFile(f"{where} does not fit its pool: {error}.") from error
    task = Task(pool.hash, origin, codes, own, extra=extra, scales=header["scales"], precision=header["precision"],
                reference=reference, facts=header["facts"])  # fmt: skip
    if task.hash != header["task"]:
        raise BadFile(f"{where} was decoded into something else than was written: its content hash is wrong.")
    return task


def _version(header: dict[str, Any], pool: KernelPool, where: object) -> str:
    """Which state of the pool a file was written for."""
    if header["pool"] in pool.versions:
        return header["pool"]
    root, times = header.get("grown") or (None, 0)
    if root == next(iter(pool.versions)):
        raise BadFile(
            f"{where} uses kernels that this pool does not have: it was made when the pool had grown {times} times, and "
            f"here it has grown {len(pool.grown)} times. Copy the pool anew together with the task."
        )
    raise BadFile(f"{where} belongs to pool {header['pool'][:12]}, and this is pool {pool.hash[:12]}.")


def _write_codes(
    stream: Stream, packed: list[bytes], pool: KernelPool, task: Task, other: Task | None, name: str
) -> str:
    codes, layer, size = task.codes[name].numpy(), pool.shapes[name], len(pool.layers[name])
    if other is not None:
        old = other.codes[name].numpy()
        if np.mean(codes != old) < _MOSTLY:
            stream.relative(codes, old, pool.neighbours(name), layer.count // layer.shape[0])
            return RELATIVE
    trial = Stream()
    trial.own(codes, size)
    # a hundredth is less than quick reading is worth
    if 100 * packed_size(len(codes), size) <= 101 * len(trial.close()):
        packed.append(pack(codes, size))
        return PACKED
    stream.own(codes, size)
    return OWN


def _read_codes(
    stream: Stream,
    rest: io.BytesIO,
    pool: KernelPool,
    other: Task | None,
    name: str,
    mode: str,
    tables: Mapping[str, Future[np.ndarray]],
) -> Tensor:
    layer, size = pool.shapes[name], len(pool.layers[name])
    if mode == PACKED:
        codes = unpack(rest.read(packed_size(layer.count, size)), layer.count, size)
    elif mode == OWN:
        codes = stream.own(_none(pool, name), size)
    elif mode != RELATIVE:
        raise ValueError(f"{name} is told in a way that is not known, {mode!r}")
    elif other is None:
        raise ValueError(f"{name} is relative to a task, and none is named")
    else:
        columns = layer.count // layer.shape[0]
        codes = stream.relative(_none(pool, name), other.codes[name].numpy(), tables[name].result(), columns)
    if len(codes) and codes.max() >= size:
        raise ValueError(f"{name} names kernel {codes.max()} of {size}")
    return torch.from_numpy(codes)


def _extra(pool: KernelPool, extra: Mapping[str, Tensor]) -> list[str]:
    return [name for name in pool.shapes if name in extra]


def _none(pool: KernelPool, name: str) -> np.ndarray:
    """A place for the indices of a layer."""
    return np.zeros(pool.shapes[name].count, np.int32)
