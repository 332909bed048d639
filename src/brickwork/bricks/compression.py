"""`compress`: drop what no class needs (paper 2, §6.5), at one budget or at several."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from brickwork.bricks.disassembly import Cutting
from brickwork.bricks.options import CompressOptions
from brickwork.bricks.samples import DataOrImages
from brickwork.bricks.tradeoff import Tradeoff, timed
from brickwork.devices import DeviceLike
from brickwork.options import takes


@takes(CompressOptions)
def compress(
    model: nn.Module,
    data: DataOrImages,
    *,
    device: DeviceLike | None = None,
    progress: bool = True,
    options: CompressOptions,
) -> Any:
    """A Brick of all classes: the smallest network within `tolerance` that still tells them apart.

    Takes the options of `disassemble`: by default an accuracy bound of a point, or a budget, a ratio, a threshold.
    The paper's own form is attribution="frat", threshold=1.0, depth=2, repair="none".
    Several budgets give a Tradeoff: a brick for each and the table of their accuracies, sizes and times. Channels are
    put in order once for all of them.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))
    >>> x = torch.randn(300, 4)
    >>> small = compress(net, (x, net(x).argmax(1)), budget=0.4)
    >>> small.classes, small.parameters < 0.4
    (('0', '1', '2'), True)
    >>> several = compress(net, (x, net(x).argmax(1)), budget=[0.7, 0.4])
    >>> [row["budget"] for row in several.table()], several.bricks[0.4].kept == small.kept
    ([None, 0.7, 0.4], True)
    """
    budgets = options.budgets or (None,)
    cutting = Cutting(model, None, data, device=device, options=options.at(budgets[0]), progress=progress)
    bricks = [cutting.brick(options.at(budget)) for budget in budgets]
    if len(bricks) == 1:
        return bricks[0]
    example = torch.zeros(options.batch, *bricks[0].input_shape, dtype=next(model.parameters()).dtype)
    by_budget = {brick.options.budget: brick for brick in bricks if brick.options.budget is not None}
    return Tradeoff(by_budget, options, cutting.judge.before, *timed([model, *(b.model for b in bricks)], example))
