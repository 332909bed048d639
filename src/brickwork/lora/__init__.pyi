from collections.abc import Sequence
from pathlib import Path

from brickwork.lora.adapter import Adapter as Adapter
from brickwork.lora.operations import LoraResult
from brickwork.lora.options import LoraBakeOptions, LoraExtractOptions, LoraMergeOptions

__all__ = ["Adapter", "bake", "extract", "merge"]

# from brickwork.lora.operations import bake
def bake(
    base: str | Path, adapter: str | Path, out: str | Path, *, alpha: float = 1.0, force: bool = False,
    progress: bool = True, options: LoraBakeOptions | None = None,
) -> LoraResult: ...

# from brickwork.lora.operations import extract
def extract(
    trained: str | Path, base: str | Path, out: str | Path, *, rank: int = 16,
    skip: Sequence[str] = ("*embed*", "*wte*", "*wpe*", "*lm_head*"), force: bool = False, progress: bool = True,
    options: LoraExtractOptions | None = None,
) -> LoraResult: ...

# from brickwork.lora.operations import merge
def merge(
    adapters: Sequence[str | Path], out: str | Path, *, weight: Sequence[float] = (), rank: int | None = None,
    force: bool = False, options: LoraMergeOptions | None = None,
) -> LoraResult: ...
