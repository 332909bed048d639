"""How long a forward pass takes: the median of many, on the CPU or a GPU."""

from __future__ import annotations

import statistics
import time

import torch
from torch import Tensor, nn

from brickwork.prediction import evaluating


def latency(model: nn.Module, batch: Tensor, *, repeat: int = 30, warm_up: int = 5) -> float:
    """Seconds of one forward pass of this batch, where batch and model are; the median of `repeat`.

    >>> latency(nn.Linear(4, 4), torch.zeros(1, 4), repeat=3) > 0
    True
    """
    on_gpu = batch.is_cuda
    times = []
    with evaluating(model):
        for number in range(warm_up + repeat):
            if on_gpu:
                torch.cuda.synchronize(batch.device)
            began = time.perf_counter()
            model(batch)
            if on_gpu:
                torch.cuda.synchronize(batch.device)
            if number >= warm_up:
                times.append(time.perf_counter() - began)
    return statistics.median(times)
