"""Pools that grow: kernels are added behind those there are, so every index given out before stays what it was.

A pool that has grown is a chain. The hash of each link covers the link before and the kernels added to it. A task carries
the hash of the link it was made with: every pool whose chain has that link reads it, and one without refuses it.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from brickwork.errors import BadModel
from brickwork.store import state_hash
from brickwork.words import counted

if TYPE_CHECKING:
    from brickwork.pools.pool import KernelPool
    from brickwork.pools.task import PoolTask


@dataclass(frozen=True, eq=False)
class Growth:
    """Kernels that are added to a pool: for some of its layers (n, length), behind those that it has.

    >>> Growth("the hash of a pool", {"conv1": torch.zeros(2, 9)})
    Growth(2 kernels in 1 layer)
    """

    after: str  # the hash of the pool that they are added to
    layers: Mapping[str, Tensor]

    @functools.cached_property
    def hash(self) -> str:
        """That of the pool which has them."""
        return hashlib.sha256((self.after + self.kernels).encode()).hexdigest()

    @functools.cached_property
    def kernels(self) -> str:
        """sha256 of the kernels alone, whatever they are added to."""
        return state_hash({f"more.{name}": rows for name, rows in self.layers.items()})

    @property
    def count(self) -> int:
        return sum(map(len, self.layers.values()))

    def __repr__(self) -> str:
        return f"Growth({counted(self.count, 'kernel')} in {counted(len(self.layers), 'layer')})"


def versions_of(pool: KernelPool) -> dict[str, dict[str, int]]:
    """Every link of a pool's chain, the first one first: its hash, and how many kernels each layer had by then."""
    sizes = {name: len(book) - sum(more.get(name, 0) for more in pool.grown) for name, book in pool.layers.items()}
    books = {name: pool.layers[name][:size] for name, size in sizes.items()}
    network = [pool.head, {k: [list(v.shape), v.length] for k, v in pool.shapes.items()}, pool.origin.arch]
    last = hashlib.sha256((json.dumps(network, sort_keys=True) + state_hash(books)).encode()).hexdigest()
    versions = {last: sizes}
    for more in pool.grown:
        rows = {name: pool.layers[name][sizes[name] : sizes[name] + n] for name, n in more.items()}
        sizes = {**sizes, **{name: sizes[name] + n for name, n in more.items()}}
        last = Growth(last, rows).hash
        versions[last] = sizes
    return versions


def growths_of(pool: KernelPool) -> list[Growth]:
    """What was added to a pool, the first growth first."""
    versions = list(pool.versions.items())
    return [
        Growth(
            before,
            {name: pool.layers[name][old[name] : sizes[name]] for name in pool.layers if sizes[name] > old[name]},
        )
        for (before, old), (_, sizes) in itertools.pairwise(versions)
    ]


def grow(pool: KernelPool, growth: Growth) -> KernelPool:
    """The pool with these kernels behind its own; the pool is left as it is."""
    if growth.after != pool.hash:
        raise BadModel(
            f"the new kernels are for pool {growth.after[:12]} and this is pool {pool.hash[:12]}; they belong behind others."
        )
    layers = dict(pool.layers)
    for name, rows in growth.layers.items():
        fits = name in layers and rows.dtype == layers[name].dtype and rows.shape[1:] == layers[name].shape[1:]
        if not fits:
            raise BadModel(f"new kernels {tuple(rows.shape)}, {rows.dtype}, do not fit layer {name!r} of the pool.")
        if not torch.isfinite(rows).all():
            raise BadModel(f"new kernels of layer {name!r} are NaN or infinite.")
        layers[name] = torch.cat([layers[name], rows])
    counts = {name: len(growth.layers[name]) for name in layers if name in growth.layers}
    grown = replace(pool, layers=layers, grown=(*pool.grown, counts), _neighbours=dict(pool._neighbours))
    # known without reading all kernels again, which a chain of many would do many times
    vars(grown)["versions"] = {**pool.versions, growth.hash: {name: len(book) for name, book in layers.items()}}
    return grown


def settle(stored: KernelPool, pool: KernelPool, task: PoolTask) -> tuple[KernelPool, PoolTask, list[Growth]]:
    """A task of `pool` for the pool that is stored, which may have grown otherwise since: both, and what is to be added.

    Kernels that are not stored yet go behind those that are, and the task's indices follow them: the network is the same.
    """
    if task.pool in stored.versions:
        return stored, replace(task, brings=None), []
    mine = pool.for_task(task)
    if next(iter(mine.versions)) != next(iter(stored.versions)):
        raise BadModel(
            f"the task was learned with pool {task.pool[:12]} and this is pool {stored.hash[:12]}; open the pool it "
            "belongs to."
        )
    common = max(k for k, version in enumerate(mine.versions) if version in stored.versions)
    sizes = list(mine.versions.values())
    move = {name: [torch.arange(size)] for name, size in sizes[common].items()}
    there = {growth.kernels: growth.hash for growth in growths_of(stored)}
    joint, added, last = stored, [], list(mine.versions)[common]
    for growth in growths_of(mine)[common:]:
        if growth.kernels not in there:
            added.append(Growth(joint.hash, growth.layers))
            joint = grow(joint, added[-1])
            there[growth.kernels] = joint.hash
        at = list(joint.versions).index(there[growth.kernels])
        before = list(joint.versions.values())[at - 1]
        for name, rows in growth.layers.items():
            move[name].append(before[name] + torch.arange(len(rows)))
        last = list(joint.versions)[max(at, list(joint.versions).index(last))]
    places = {name: torch.cat(parts).int() for name, parts in move.items()}
    codes = {name: places[name].index_select(0, index.int()) for name, index in task.codes.items()}
    return joint, replace(task, pool=last, codes=codes, brings=None), added
