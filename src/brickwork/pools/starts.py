"""Which earlier task to start from: the one whose features tell the new classes apart best, before any training."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from brickwork.data.datasets import images_of
from brickwork.data.images import hold_out
from brickwork.data.streamed import Images, unread
from brickwork.devices import DeviceLike, pick
from brickwork.errors import RequestError
from brickwork.moments.readout import linear_answers, read_features
from brickwork.outputs import accuracy_of
from brickwork.pools.pool import KernelPool
from brickwork.pools.task import PoolTask, class_names


def rank_starts(
    pool: KernelPool,
    tasks: Mapping[str, PoolTask],
    images: Images,
    labels: Any,
    *,
    most: int = 2000,
    ridge: float = 1e-2,
    seed: int = 0,
    device: DeviceLike | None = None,
) -> dict[str, float]:
    """For each task the accuracy, on images held out, of a linear head on its features in closed form; the best first.

    Costs one pass over at most `most` images per task.
    """
    if not tasks:
        raise RequestError("there is no task to start from yet; start from the pool's base.")
    class_names(None, labels)  # refuses what are no labels
    truth = np.asarray(torch.as_tensor(labels).cpu())
    some = np.sort(np.random.default_rng(seed).permutation(len(truth))[:most])
    truth, seen = truth[some], unread(images_of(images))[some]
    train, test = hold_out(truth)
    if not len(test):
        raise RequestError(f"{len(truth)} images are too few to hold some out; name the task to start from.")
    target = torch.from_numpy(truth)
    scores = {}
    for name, task in tasks.items():
        features = read_features(pool.rebuild(task, device=pick(device)), pool.head, seen)
        answers = linear_answers(features[train], target[train], int(target.max()) + 1, features[test], ridge=ridge)
        scores[name] = accuracy_of(answers, target[test])
    return dict(sorted(scores.items(), key=lambda pair: -pair[1]))
