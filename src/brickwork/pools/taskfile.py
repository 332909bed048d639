"""A task as the bytes of a file: a JSON header, one stream of coded numbers, a checksum. Nothing in it is ever run.

    brickwork.pool-task/1\\n | length of the header | header, JSON under zlib | streams | bytes | blake2b of all before

Layers and tensors come in the order of the pool's network, so the header need not name them. A task is stored on its own or
relative to another, which the header names, with its hash.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from brickwork.errors import BadFile, RequestError
from brickwork.limits import check_size, unzipped
from brickwork.origin import Origin
from brickwork.pools.own_tensors import read_own, write_own
from brickwork.pools.pool import KernelPool
from brickwork.pools.streams import Stream
from brickwork.pools.task import PoolTask
from brickwork.pools.task_codes import read_codes, write_codes
from brickwork.store.config import OriginConfig, origin_config
from brickwork.words import counted

FORMAT = b"brickwork.pool-task/1\n"
_OLDER = b"BWTASK1\n"  # how files began whose formats had numbers
CHECK = 16  # bytes of the checksum


def write_task(task: PoolTask, pool: KernelPool, reference: tuple[str, PoolTask] | None = None) -> bytes:
    """The file of a task; `reference` is the name and the task that it is stored relative to."""
    pool = pool.for_task(task)
    other = None if reference is None else reference[1]
    if other is not None and other.pool not in pool.versions:
        raise RequestError(
            f"a task cannot be stored relative to {reference[0]!r}, which uses kernels that came to the pool after it."  # type: ignore[index]
        )
    modes, streams, packed = write_codes(pool, task, other)
    kinds, raw = write_own(streams[0], pool, task, other)
    bodies = [stream.close() for stream in streams]
    header: dict[str, Any] = {
        "pool": task.pool,
        "task": task.hash,
        "origin": origin_config(task.origin),
        "reference": None if reference is None else [reference[0], reference[1].hash],
        "precision": task.precision,
        "codes": modes,
        "own": kinds,
        "streams": [len(body) for body in bodies],
        "facts": dict(task.facts),
    }
    if pool.grown:  # for the sake of a clear refusal
        header["grown"] = [next(iter(pool.versions)), len(pool.grown)]
    if not task.classes:  # else there are as many outputs as names
        header["outputs"] = len(task.own[pool.head_weight])
    text = zlib.compress(json.dumps(header, separators=(",", ":"), allow_nan=False).encode(), 9)
    whole = FORMAT + struct.pack("<I", len(text)) + text + b"".join(bodies) + packed + raw
    return whole + hashlib.blake2b(whole, digest_size=CHECK).digest()


def read_header(data: bytes, where: object) -> dict[str, Any]:
    """The checked header of a task file, and where its stream begins under "at"."""
    if data.startswith(_OLDER):
        raise BadFile(
            f"{where} is of an older format; learn or encode the task anew with this version, or rebuild it with the "
            "version that wrote it: brickwork pool rebuild."
        )
    if not data.startswith(FORMAT[: len(data)]):
        raise BadFile(f"{where} is not a task of a pool (it does not begin with {FORMAT[:-1].decode()}).")
    start = len(FORMAT) + 4
    if len(data) < start + CHECK or hashlib.blake2b(data[:-CHECK], digest_size=CHECK).digest() != data[-CHECK:]:
        raise BadFile(f"{where} is damaged or cut short: its checksum is wrong. Learn the task again, or copy it anew.")
    size = struct.unpack("<I", data[len(FORMAT) : start])[0]
    try:
        header = json.loads(unzipped(data[start : start + size], where))
        OriginConfig.model_validate(header["origin"])
    except (ValueError, KeyError, TypeError, RecursionError, ValidationError) as error:
        raise BadFile(f"{where} is not a valid task file: {error}.") from error
    return {**header, "at": start + size}


def read_task(
    data: bytes,
    pool: KernelPool,
    where: object,
    find: Callable[[str, str], PoolTask] | None = None,
    header: dict[str, Any] | None = None,
) -> PoolTask:
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
        ends = list(itertools.accumulate(header["streams"], initial=header["at"]))
        streams = [Stream(data[at:end]) for at, end in itertools.pairwise(ends)]
        rest = io.BytesIO(data[ends[-1] : -CHECK])
        codes = read_codes(pool, reference, header["codes"], streams, rest)
        origin = Origin.from_dict(header["origin"])
        outputs = int(len(origin.classes or ()) or header.get("outputs") or 0)
        head = pool.template.state_dict()[pool.head_weight]
        check_size(where, outputs * head[:1].numel() * head.element_size(), len(data))
        own = read_own(streams[0], pool, reference, outputs, header["own"], rest)
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, RuntimeError) as error:
        raise BadFile(f"{where} does not fit its pool: {error}.") from error
    task = PoolTask(
        pool.hash, origin, codes, own, precision=header["precision"], reference=reference, facts=header["facts"]
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
