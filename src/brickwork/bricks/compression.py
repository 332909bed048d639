"""`compress`: drop what no class needs (paper 2, §6.5)."""

from __future__ import annotations

import torch
from torch import nn

from brickwork.bricks.brick import Brick
from brickwork.bricks.disassembly import disassemble
from brickwork.bricks.options import DisassembleOptions
from brickwork.bricks.samples import Data
from brickwork.options import takes


@takes(DisassembleOptions)
def compress(
    model: nn.Module,
    data: Data,
    *,
    device: str | torch.device | None = None,
    progress: bool = True,
    options: DisassembleOptions,
) -> Brick:
    """The smallest network within `tolerance` that still tells all classes apart, as a Brick of all of them.

    Takes the options of `disassemble`: by default an accuracy bound of a point, or a budget, a ratio, a threshold.
    The paper's own form is attribution="frat", threshold=1.0, depth=2, repair="none".

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))
    >>> x = torch.randn(300, 4)
    >>> small = compress(net, (x, net(x).argmax(1)), budget=0.4)
    >>> small.classes, small.parameters < 0.4
    (('0', '1', '2'), True)
    """
    return disassemble(model, None, data, device=device, progress=progress, options=options)
