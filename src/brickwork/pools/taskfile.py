"""A task as the bytes of a file: a JSON header, one stream of coded numbers, a checksum. Nothing in it is ever run.

    BWTASK1\\n | length of the header | header, JSON under zlib | streams | bytes | blake2b of all before, 16 bytes

Layers and tensors come in the order of the pool's network, so the header need not name them. A task is told on its own or
relative to another, which the header names, with its hash.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from brickwork.errors import BadFile, RequestError
from brickwork.origin import Origin
from brickwork.pools.own_tensors import read_own, write_own
from brickwork.pools.pool import KernelPool
from brickwork.pools.streams import Stream
from brickwork.pools.task import Task
from brickwork.pools.task_codes import PACKED, read_codes, write_codes
from brickwork.store.config import OriginConfig, origin_config
from brickwork.words import counted

MAGIC = b"BWTASK1\n"
CHECK = 16
_FORMATS = (1, 2, 3)  # 2: some indices are packed; 3: in several streams


def write_task(task: Task, pool: KernelPool, reference: tuple[str, Task] | None = None) -> bytes:
    """The file of a task; `reference` is the name and the task that it is told relative to."""
    pool = pool.for_task(task)
    other = None if reference is None else reference[1]
    if other is not None and other.pool not in pool.versions:
        raise RequestError(
            f"a task cannot be told relative to {reference[0]!r}, which uses kernels that came to the pool after it."  # type: ignore[index]
        )
    modes, streams, packed = write_codes(pool, task, other)
    stream = streams[0]
    for name in _extra(pool, task.extra):
        stream.own(task.extra[name].numpy(), len(pool.residual[name]))
    kinds, raw = write_own(stream, pool, task, other)
    bodies = [stream.close() for stream in streams]
    header: dict[str, Any] = {
        "format": 3 if len(bodies) > 1 else 2 if PACKED in modes else 1,
        "pool": task.pool,
        "task": task.hash,
        "origin": origin_config(task.origin),
        "reference": None if reference is None else [reference[0], reference[1].hash],
        "precision": task.precision,
        "codes": modes,
        "extra": _extra(pool, task.extra),
        "scales": dict(task.scales),
        "own": kinds,
        "stream": len(bodies[0]) if len(bodies) == 1 else [len(body) for body in bodies],
        "facts": dict(task.facts),
    }
    if pool.grown:  # for the sake of a clear refusal
        header["grown"] = [next(iter(pool.versions)), len(pool.grown)]
    if not task.classes:  # else there are as many outputs as names
        header["outputs"] = len(task.own[pool.head_weight])
    text = zlib.compress(json.dumps(header, separators=(",", ":"), allow_nan=False).encode(), 9)
    whole = MAGIC + struct.pack("<I", len(text)) + text + b"".join(bodies) + packed + raw
    return whole + hashlib.blake2b(whole, digest_size=CHECK).digest()


def read_header(data: bytes, where: object) -> dict[str, Any]:
    """The checked header of a task file, and where its stream begins under "at"."""
    if not data.startswith(MAGIC):
        raise BadFile(f"{where} is not a task of a pool (it does not begin with {MAGIC[:-1].decode()}).")
    if (
        len(data) < len(MAGIC) + 4 + CHECK
        or hashlib.blake2b(data[:-CHECK], digest_size=CHECK).digest() != data[-CHECK:]
    ):
        raise BadFile(f"{where} is damaged or cut short: its checksum is wrong. Learn the task again, or copy it anew.")
    start = len(MAGIC) + 4
    size = struct.unpack("<I", data[len(MAGIC) : start])[0]
    try:
        header = json.loads(zlib.decompress(data[start : start + size]))
        OriginConfig.model_validate(header["origin"])
        if header["format"] not in _FORMATS:
            raise BadFile(
                f"{where} has format {header['format']!r}; this Brickwork reads formats 1 to 3. Upgrade Brickwork."
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
            raise BadFile(f"{where} is relative to {header['reference'][0]!r}, which uses kernels that came later.")
    try:
        lengths = header["stream"] if isinstance(header["stream"], list) else [header["stream"]]
        ends = list(itertools.accumulate(lengths, initial=header["at"]))
        streams = [Stream(data[at:end]) for at, end in itertools.pairwise(ends)]
        rest = io.BytesIO(data[ends[-1] : -CHECK])
        codes = read_codes(pool, reference, header["codes"], streams, rest)
        extra = {
            name: torch.from_numpy(streams[0].own(np.zeros(pool.shapes[name].count), len(pool.residual[name])))
            for name in header["extra"]
        }
        origin = Origin.from_dict(header["origin"])
        outputs = len(origin.classes or ()) or header.get("outputs")
        own = read_own(streams[0], pool, reference, outputs, header["own"], rest)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise BadFile(f"{where} does not fit its pool: {error}.") from error
    task = Task(
        pool.hash,
        origin,
        codes,
        own,
        extra=extra,
        scales=header["scales"],
        precision=header["precision"],
        reference=reference,
        facts=header["facts"],
    )
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
            f"{where} uses kernels that this pool does not have: it was made when the pool had grown "
            f"{counted(times, 'time')}, and here it has grown {counted(len(pool.grown), 'time')}. "
            "Copy the pool anew together with the task."
        )
    raise BadFile(f"{where} belongs to pool {header['pool'][:12]}, and this is pool {pool.hash[:12]}.")


def _extra(pool: KernelPool, extra: Mapping[str, Tensor]) -> list[str]:
    return [name for name in pool.shapes if name in extra]
