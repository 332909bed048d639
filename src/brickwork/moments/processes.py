"""Moments over several processes: each runs its share of the batches, and all get the sums.

torchrun starts the processes, and all of them do the same work but for the passes that collect moments, which they share. So
they must come to the same decisions: where one rests on numbers that need not be the same twice, all take the first's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch
from torch import distributed

from brickwork.devices import DeviceLike, pick
from brickwork.errors import RequestError
from brickwork.moments.batches import ImageBatches, SlicedImages
from brickwork.moments.gram import Moments

T = TypeVar("T")
_sharing: ContextVar[bool] = ContextVar("sharing", default=False)


@contextmanager
def shared_over_processes(device: DeviceLike | None = None) -> Iterator[torch.device]:
    """Within it, matching and choosing use all processes that torchrun started; yields the device of this one.

    Every process has to do the same within it, or the others wait for ever. Alone, a process does as it always does.
    """
    where = pick(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield where
        return
    if where.type == "cuda":
        where = pick(f"cuda:{os.environ['LOCAL_RANK']}")
        torch.cuda.set_device(where)
    begun = not distributed.is_initialized()
    if begun:
        distributed.init_process_group("nccl" if where.type == "cuda" else "gloo")
    token = _sharing.set(True)
    try:
        yield where
    finally:
        _sharing.reset(token)
        if begun:
            distributed.destroy_process_group()


def share_batches(images: SlicedImages, size: int, like: torch.Tensor) -> tuple[ImageBatches, ImageBatches]:
    """All batches of at most this size, and those that are this process's."""
    if not _sharing.get():
        every = ImageBatches(images, size, like)
        return every, every
    count, number = distributed.get_world_size(), distributed.get_rank()
    if len(images) < count:
        raise RequestError(f"there are {len(images)} images for {count} processes; give more, or start fewer.")
    every = ImageBatches(images, min(size, len(images) // count), like)
    ends = [len(every) * k // count for k in (number, number + 1)]
    return every, ImageBatches(images, size, like, every.bounds[slice(*ends)])


def summed(moments: Moments) -> Moments:
    """The sums over all processes."""
    if not _sharing.get():
        return moments
    rows = torch.tensor(moments.rows, dtype=torch.float64, device=moments.gram.device)
    total = Moments(**{name: value.clone() for name, value in vars(moments).items() if name != "rows"})
    for value in (*(value for name, value in vars(total).items() if name != "rows"), rows):
        distributed.all_reduce(value)
    total.rows = float(rows)
    return total


def agreed(value: T) -> T:
    """What the first process has."""
    if not _sharing.get():
        return value
    held = [value]
    distributed.broadcast_object_list(held, src=0)
    return held[0]
