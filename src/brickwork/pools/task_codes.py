"""The indices of a task in its file: one stream, or, where there are many, several that are read at the same time."""

import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from brickwork.pools.packing import pack, packed_size, unpack
from brickwork.pools.pool import KernelPool
from brickwork.pools.streams import Stream
from brickwork.pools.task import PoolTask

#: how a layer's indices are stored: relative to the reference's, on their own in the stream, or packed among the bytes
RELATIVE, OWN, PACKED = "rop"
#: from this share of changed indices on a layer is cheaper on its own
_MOSTLY = 0.9
STREAMS, MANY = 4, 1 << 18  # so many streams from so many indices on


def groups_of(pool: KernelPool, streams: int | None = None) -> list[list[str]]:
    """Which layers share a stream, in the order of the network: about equally many indices in each."""
    total = sum(layer.count for layer in pool.shapes.values())
    groups: list[list[str]] = [[] for _ in range(streams or (STREAMS if total >= MANY else 1))]
    sizes = [0] * len(groups)
    for name in sorted(pool.shapes, key=lambda name: -pool.shapes[name].count):
        least = sizes.index(min(sizes))
        groups[least].append(name)
        sizes[least] += pool.shapes[name].count
    return [[name for name in pool.shapes if name in group] for group in groups]


def write_codes(pool: KernelPool, task: PoolTask, other: PoolTask | None) -> tuple[str, list[Stream], bytes]:
    """How each layer is stored, one letter per layer; the streams, still open; and the bytes of packed layers."""
    groups = groups_of(pool)
    streams = [Stream() for _ in groups]
    stored: dict[str, tuple[str, bytes]] = {}

    def write(number: int) -> None:
        for name in groups[number]:
            stored[name] = _write(streams[number], pool, task.codes[name], other, name)

    _all_at_once(write, len(groups))
    modes, packed = zip(*(stored[name] for name in pool.shapes), strict=True)
    return "".join(modes), streams, b"".join(packed)


def read_codes(
    pool: KernelPool, other: PoolTask | None, modes: str, streams: Sequence[Stream], rest: io.BytesIO
) -> dict[str, Tensor]:
    """What `write_codes` wrote; `rest` is at the bytes of packed layers. ValueError where it does not fit."""
    indices: dict[str, np.ndarray] = {}
    stored = dict(zip(pool.shapes, modes, strict=True))
    for name, mode in stored.items():
        count, size = pool.shapes[name].count, len(pool.layers[name])
        if mode == PACKED:
            indices[name] = unpack(rest.read(packed_size(count, size)), count, size)
        elif mode not in (OWN, RELATIVE):
            raise ValueError(f"{name} is stored in a way that is not known, {mode!r}")
        elif mode == RELATIVE and other is None:
            raise ValueError(f"{name} is relative to a task, and none is named")
    groups = groups_of(pool, len(streams))

    def read(number: int) -> None:
        for name in groups[number]:
            if stored[name] != PACKED:
                indices[name] = _read(streams[number], pool, other, name, stored[name])

    _all_at_once(read, len(groups))
    for name, codes in indices.items():
        if len(codes) and codes.max() >= len(pool.layers[name]):
            raise ValueError(f"{name} names kernel {codes.max()} of {len(pool.layers[name])}")
    return {name: torch.from_numpy(indices[name]) for name in pool.shapes}


def _write(stream: Stream, pool: KernelPool, index: Tensor, other: PoolTask | None, name: str) -> tuple[str, bytes]:
    codes, layer, size = index.numpy(), pool.shapes[name], len(pool.layers[name])
    if other is not None:
        old = other.codes[name].numpy()
        if np.mean(codes != old) < _MOSTLY:
            stream.relative(codes, old, pool.neighbours(name), layer.count // layer.shape[0])
            return RELATIVE, b""
    trial = Stream()
    trial.own(codes, size)
    # a hundredth is less than quick reading is worth
    if 100 * packed_size(len(codes), size) <= 101 * len(trial.close()):
        return PACKED, pack(codes, size)
    stream.own(codes, size)
    return OWN, b""


def _read(stream: Stream, pool: KernelPool, other: PoolTask | None, name: str, mode: str) -> np.ndarray:
    layer = pool.shapes[name]
    none = np.zeros(layer.count, np.int32)
    if mode == OWN or other is None:
        return stream.own(none, len(pool.layers[name]))
    columns = layer.count // layer.shape[0]
    return stream.relative(none, other.codes[name].numpy(), pool.neighbours(name), columns)


def _all_at_once(work: Callable[[int], None], count: int) -> None:
    """The compiled walks let other threads run."""
    if count == 1:
        return work(0)
    with ThreadPoolExecutor(count) as crew:
        list(crew.map(work, range(count)))
    return None
