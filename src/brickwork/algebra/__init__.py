"""Weight algebra: deltas, and networks merged from several (paper 1).

Names are loaded on first use: merging files needs numpy alone, and must not pay for importing torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "Cancellation": "cancellation_result",
    "Delta": "deltas",
    "Learned": "adamerging",
    "Soup": "soup",
    "SweepResult": "sweep_result",
    "adamerge": "adamerging",
    "assign": "deltas",
    "balanced_point": "sweeping",
    "cancel": "cancellation",
    "combine": "deltas",
    "delta": "deltas",
    "fit_head": "heads",
    "greedy_soup": "soup",
    "merge": "merging",
    "merge_files": "streaming",
    "merge_on": "with_data",
    "own_heads": "heads",
    "rebasin": "alignment",
    "repair": "alignment",
    "sweep": "sweeping",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'brickwork.algebra' has no attribute {name!r}")
    return getattr(importlib.import_module(f"brickwork.algebra.{_HOME[name]}"), name)


if TYPE_CHECKING:
    from brickwork.algebra.adamerging import Learned as Learned
    from brickwork.algebra.adamerging import adamerge as adamerge
    from brickwork.algebra.alignment import rebasin as rebasin
    from brickwork.algebra.alignment import repair as repair
    from brickwork.algebra.cancellation import cancel as cancel
    from brickwork.algebra.cancellation_result import Cancellation as Cancellation
    from brickwork.algebra.deltas import Delta as Delta
    from brickwork.algebra.deltas import assign as assign
    from brickwork.algebra.deltas import combine as combine
    from brickwork.algebra.deltas import delta as delta
    from brickwork.algebra.heads import fit_head as fit_head
    from brickwork.algebra.heads import own_heads as own_heads
    from brickwork.algebra.merging import merge as merge
    from brickwork.algebra.soup import Soup as Soup
    from brickwork.algebra.soup import greedy_soup as greedy_soup
    from brickwork.algebra.streaming import merge_files as merge_files
    from brickwork.algebra.sweep_result import SweepResult as SweepResult
    from brickwork.algebra.sweeping import balanced_point as balanced_point
    from brickwork.algebra.sweeping import sweep as sweep
    from brickwork.algebra.with_data import merge_on as merge_on
