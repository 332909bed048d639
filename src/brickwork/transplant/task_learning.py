"""Learn a task module on features that are there already, by their labels; the categories below are not touched."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from brickwork.blueprint.splitting import Above
from brickwork.errors import BadData
from brickwork.progress import bar
from brickwork.transplant.learning import take_step, task_loss


def learn_task(
    task: Above,
    features: Tensor,
    labels: Tensor,
    *,
    image: Sequence[int] | None = None,
    steps: int = 400,
    batch_size: int = 50,
    lr: float = 1e-3,
    seed: int = 0,
    progress: bool = True,
) -> Above:
    """A copy of the module, trained by Adam; `task` is left as it is.

    features: (N, …) of the categories it is to serve; labels: class numbers, 0/1 for one output, or masks.
    """
    if len(features) == 0 or len(features) != len(labels):
        raise BadData(f"{len(features)} images and {len(labels)} labels to learn a task from; give as many of both.")
    new = copy.deepcopy(task).train()
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(new.parameters(), lr)
    where = [features.device] if features.device.type == "cuda" else []
    with torch.random.fork_rng(devices=where), bar("learning the task", steps, show=progress) as advance:
        torch.manual_seed(seed)  # of dropout
        for step in range(steps):
            some = torch.randint(0, len(features), (min(batch_size, len(features)),), generator=draw)
            x = features[some.to(features.device)]
            output = new(x, image=None if image is None else (len(x), *image[1:]))
            loss = task_loss(output, labels[some.to(labels.device)].to(x.device))
            take_step(optimizer, loss, step)
            advance(1)
    return new.eval()
