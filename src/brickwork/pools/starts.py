"""Which earlier task to start from: the one whose features tell the new classes apart best, before any training."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.data.images import hold_out
from brickwork.data.pixels import Images
from brickwork.devices import pick
from brickwork.errors import RequestError
from brickwork.moments import Moments, solve_ridge
from brickwork.pools.pool import KernelPool
from brickwork.pools.task import PoolTask, class_names
from brickwork.prediction import logit_batches


def rank_starts(
    pool: KernelPool,
    tasks: Mapping[str, PoolTask],
    images: Images,
    labels: Any,
    *,
    most: int = 2000,
    ridge: float = 1e-2,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> dict[str, float]:
    """For each task the accuracy, on images held out, of a linear head on its features in closed form; the best first.

    Costs one pass over at most `most` images per task.
    """
    if not tasks:
        raise RequestError("there is no task to start from yet; start from the pool's base.")
    class_names(None, labels)  # refuses what are no labels
    truth = np.asarray(torch.as_tensor(labels).cpu())
    some = np.sort(np.random.default_rng(seed).permutation(len(truth))[:most])
    truth, seen = truth[some], torch.as_tensor(images)[torch.from_numpy(some)]
    train, test = hold_out(truth)
    if not len(test):
        raise RequestError(f"{len(truth)} images are too few to hold some out; name the task to start from.")
    target = torch.from_numpy(truth)
    scores = {}
    for name, task in tasks.items():
        features = head_features(pool.rebuild(task, device=pick(device)), pool.head, seen)
        scores[name] = linear_readout(features[train], target[train], features[test], target[test], ridge=ridge)
    return dict(sorted(scores.items(), key=lambda pair: -pair[1]))


def linear_readout(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, *, ridge: float = 1e-2) -> float:
    """Share right on the test features (n, d) of a linear layer in closed form; labels are (n,) class numbers."""
    count = int(max(y.max(), y_test.max())) + 1
    target = torch.nn.functional.one_hot(y.long(), count).double()
    fit = solve_ridge(Moments.empty(x.shape[1], count, x.device).add(x, target), ridge=ridge)
    assert fit.bias is not None
    return float(((x_test @ fit.weight + fit.bias).argmax(1) == y_test).double().mean())


def head_features(model: nn.Module, head: str, images: Images) -> Tensor:
    """What the head reads (n, d), float64 on the CPU."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        read = inputs[0].double().cpu()
        seen.append(read.flatten(2).mean(2) if read.ndim > 2 else read)  # of a convolution: the mean over places

    hook = model.get_submodule(head).register_forward_pre_hook(keep)
    try:
        for _ in logit_batches(model, images, 250, None):
            pass
    finally:
        hook.remove()
    return torch.cat(seen)
