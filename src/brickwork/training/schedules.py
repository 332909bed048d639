"""The learning rate as a plain function of progress, so that there is no scheduler state to save."""

import math

from brickwork.training.options import TrainOptions

WARM_UP = 0.2  # of a one-cycle run
START = 0.04  # of the peak, where one-cycle begins


def learning_rate(settings: TrainOptions, step: int, steps_per_epoch: int) -> float:
    """The rate for update number `step`, counted from 0.

    >>> run = TrainOptions(epochs=2, lr=1.0, schedule="milestones", milestones=(1,))
    >>> [learning_rate(run, step, 2) for step in range(4)]
    [1.0, 1.0, 0.1, 0.1]
    """
    peak = settings.lr
    if settings.schedule == "constant":
        return peak
    if settings.schedule == "milestones":
        return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in settings.milestones)
    progress = step / (settings.epochs * steps_per_epoch)
    if settings.schedule == "onecycle":
        if progress < WARM_UP:
            return peak * (START + (1 - START) * progress / WARM_UP)
        progress = (progress - WARM_UP) / (1 - WARM_UP)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))
