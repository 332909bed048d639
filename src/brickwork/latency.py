"""How long a forward pass takes: the median of many, on the CPU or a GPU."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from brickwork.prediction import evaluating


def latency(model: nn.Module, batch: Tensor, *, repeat: int = 30, warm_up: int = 5, record: bool = False) -> float:
    """Seconds of one forward pass of this batch, where batch and model are; the median of `repeat`.

    record: as a CUDA graph, so that the time to start each kernel does not count; without effect off CUDA.

    >>> latency(nn.Linear(4, 4), torch.zeros(1, 4), repeat=3) > 0
    True
    """
    on_gpu = batch.is_cuda
    times = []
    with evaluating(model):
        forward = _recorded(model, batch) if record and on_gpu else lambda: model(batch)
        for number in range(warm_up + repeat):
            if on_gpu:
                torch.cuda.synchronize(batch.device)
            began = time.perf_counter()
            forward()
            if on_gpu:
                torch.cuda.synchronize(batch.device)
            if number >= warm_up:
                times.append(time.perf_counter() - began)
    return statistics.median(times)


def _recorded(model: nn.Module, batch: Tensor) -> Callable[[], None]:
    """The forward pass as a CUDA graph, after some passes in which kernels are chosen and memory is taken."""
    aside = torch.cuda.Stream(batch.device)
    aside.wait_stream(torch.cuda.current_stream(batch.device))
    with torch.cuda.stream(aside):
        for _ in range(3):
            model(batch)
    torch.cuda.current_stream(batch.device).wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(batch)
    return graph.replay
