"""Kernel pools: task after task by choosing frozen kernels (paper 4, neural weight search)."""

from __future__ import annotations

from brickwork.pools.encoding import encode
from brickwork.pools.folder import PoolFolder
from brickwork.pools.growth import Growth
from brickwork.pools.learning import learn
from brickwork.pools.pool import KernelPool
from brickwork.pools.starts import rank_starts
from brickwork.pools.task import Task

__all__ = ["Growth", "KernelPool", "PoolFolder", "Task", "encode", "learn", "rank_starts"]
