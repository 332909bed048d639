from collections.abc import Sequence
from os import PathLike
from typing import Literal

from torch import device
from torch.nn.modules.module import Module

from brickwork.continual import registry as registry
from brickwork.continual.base import ContinualMethod as ContinualMethod
from brickwork.continual.bench import Bench as Bench
from brickwork.continual.options import ContinualOptions as ContinualOptions
from brickwork.continual.options import SplitOptions as SplitOptions
from brickwork.continual.registry import method as method
from brickwork.continual.registry import names as names
from brickwork.continual.registry import parse as parse
from brickwork.continual.result import Comparison as Comparison
from brickwork.continual.result import ContinualResult as ContinualResult
from brickwork.continual.scenario import Scenario as Scenario
from brickwork.continual.scenario import sequence as sequence
from brickwork.continual.scenario import split_classes as split_classes
from brickwork.pools.pool import KernelPool

__all__ = [
    "Bench", "Comparison", "ContinualMethod", "ContinualOptions", "ContinualResult", "Scenario", "SplitOptions",
    "method", "names", "parse", "registry", "run", "sequence", "split_classes",
]

# from brickwork.continual.running import run
def run(
    scenario: Scenario, methods: str | Sequence[str | ContinualMethod], start: Module, *, epochs: int = 30,
    batch_size: int | None = None, augment: str | None = None, protocol: Literal["task", "class"] = "task",
    forward: bool = False, seed: int = 0, out: str | PathLike[str] | None = None, pool: KernelPool | None = None,
    device: str | device | None = None, progress: bool = True, options: ContinualOptions | None = None,
) -> Comparison: ...
