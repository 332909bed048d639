"""`compress`: drop what no class needs (paper 2, §6.5), at one budget or at several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from brickwork.bricks.brick import Brick
from brickwork.bricks.disassembly import Cutting
from brickwork.bricks.options import CompressOptions
from brickwork.bricks.samples import DataOrImages
from brickwork.bricks.tradeoff import Tradeoff, timed
from brickwork.copying import copy_module
from brickwork.devices import DeviceLike, number_of
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
    put in order once for all of them, and no larger budget has a part that judges worse than a smaller one's.

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
    if len(budgets) == 1:
        return cutting.brick(options.at(budgets[0]))
    bricks = _never_worse({budget: cutting.brick(options.at(budget)) for budget in options.budgets})
    some = next(iter(bricks.values()))
    example = torch.zeros(options.batch, *some.input_shape, dtype=number_of(model).dtype)
    models = [model, *(brick.model for brick in bricks.values())]
    return Tradeoff(bricks, options, cutting.judge.before, *timed(models, example))


def _never_worse(bricks: dict[float, Brick]) -> dict[float, Brick]:
    """A part within a smaller budget that the images judge better is within the larger one, too, and stands for both."""
    best: Brick | None = None
    result = dict(bricks)
    for budget in sorted(bricks):
        brick = bricks[budget]
        if best is not None and (brick.accuracy_after or 0.0) < (best.accuracy_after or 0.0):
            taken = f"the part within {best.options.budget:g}, which has {best.accuracy_after:.4f}"
            taken += f"; its own had {brick.accuracy_after:.4f}"
            note = "; ".join(filter(None, (taken, best.note)))
            model = copy_module(best.model)  # provenance is kept with a module
            brick = replace(best, model=model, options=brick.options, note=note).with_provenance()
            result[budget] = brick
        else:
            best = brick
    return result
