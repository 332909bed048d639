"""`encode`: a network that is trained already, said in kernels of a pool, without training."""

from __future__ import annotations

import torch
from torch import nn

from brickwork.data.pixels import Images
from brickwork.errors import RequestError
from brickwork.pools.learning import measured_norms
from brickwork.pools.pool import KernelPool
from brickwork.pools.task import Task

METRICS = ("gram", "weight")


def encode(
    pool: KernelPool,
    model: nn.Module,
    data: Images | None = None,
    *,
    metric: str = "weight",
    precision: int = 16,
    device: str | torch.device | None = "auto",
) -> Task:
    """The task that says `model` in kernels of the pool; the model is left unchanged.

    metric: "weight" takes the kernel nearest to each. data: unlabelled images on which batch norms are measured anew.
    """
    if metric not in METRICS:
        raise RequestError(f"metric is {metric!r}; it must be {' or '.join(METRICS)}.")
    task = pool.task_of(
        model, precision=precision, reference=pool.base, facts={"how": "encode", "metric": metric}
    )
    return task if data is None else measured_norms(pool, task, data, device=device)
