"""Learn a task module on features that are there already, by their labels; the categories below are not touched."""

from collections.abc import Sequence

import torch
from torch import Tensor

from brickwork.blueprint.splitting import Above
from brickwork.copying import copy_module
from brickwork.errors import BadData
from brickwork.options import takes
from brickwork.progress import bar
from brickwork.transplant.learning import take_step
from brickwork.transplant.options import LearnTaskOptions
from brickwork.transplant.terms import task_loss


@takes(LearnTaskOptions)
def learn_task(
    task: Above,
    features: Tensor,
    labels: Tensor,
    *,
    input_shape: Sequence[int] | None = None,
    progress: bool = True,
    options: LearnTaskOptions,
) -> Above:
    """A copy of the module, trained by Adam; `task` is left as it is.

    features: (N, …) of the categories it is to serve; labels: class numbers, 0/1 for one output, or masks.
    """
    if len(features) == 0 or len(features) != len(labels):
        raise BadData(f"{len(features)} images and {len(labels)} labels to learn a task from; give as many of both.")
    new = copy_module(task).train()
    draw = torch.Generator().manual_seed(options.seed)
    optimizer = torch.optim.Adam(new.parameters(), options.lr)
    where = [features.device] if features.device.type == "cuda" else []
    with torch.random.fork_rng(devices=where), bar("learning the task", options.steps, show=progress) as advance:
        torch.manual_seed(options.seed)  # of dropout
        for step in range(options.steps):
            some = torch.randint(0, len(features), (min(options.batch_size, len(features)),), generator=draw)
            x = features[some.to(features.device)]
            output = new(x, image=None if input_shape is None else (len(x), *input_shape[1:]))
            loss = task_loss(output, labels[some.to(labels.device)].to(x.device))
            take_step(optimizer, loss, step)
            advance(1)
    return new.eval()
