"""`increment`: more classes for a network that is there already, by bricks of others (paper 2, §A.4)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from torch import nn

from brickwork.bricks.assembly import Folder, assemble
from brickwork.bricks.brick import Brick
from brickwork.bricks.options import AssembleOptions
from brickwork.data.streamed import Images
from brickwork.errors import RequestError
from brickwork.options import takes


@takes(AssembleOptions)
def increment(
    model: nn.Module,
    bricks: Sequence[Brick | Folder] | Brick | Folder,
    *,
    data: Images | None = None,
    target: Images | None = None,
    options: AssembleOptions,
) -> nn.Module:
    """A network with the model's classes and the bricks', in this order; nothing is trained, nothing given changes.

    The logits of the old classes stay what they were (up to calibration). data: unlabelled images of the model's own
    data, needed for calibrate="source" only; the other options are those of `assemble`.

    >>> from brickwork import data, train, zoo
    >>> from brickwork.bricks import disassemble
    >>> first, other = (data.load(f"digits:{classes}@20", size=8) for classes in ("0-1", "7-9"))
    >>> model, source = (
    ...     train(zoo.build("lenet", num_classes=n), one, epochs=1, device="cpu", progress=False).model
    ...     for n, one in ((2, first), (3, other))
    ... )
    >>> more = disassemble(source, "8,9", other, keep=0.5, progress=False)
    >>> increment(model, more, data=first.train_images).brickwork_origin.classes
    ('0', '1', '8', '9')
    """
    first = Brick.whole(model, images=data)
    others = [bricks] if isinstance(bricks, Brick | str | os.PathLike) else list(bricks)
    if not others:
        raise RequestError("there is no brick to add; give one or more.")
    return assemble([first, *others], target=target, options=options)
