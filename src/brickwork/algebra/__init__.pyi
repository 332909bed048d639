from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from numpy import ndarray
from torch import Tensor, device
from torch.nn.modules.module import Module

from brickwork.algebra.adamerging import LearnedCoefficients as LearnedCoefficients
from brickwork.algebra.adamerging import adamerge as adamerge
from brickwork.algebra.alignment import rebasin as rebasin
from brickwork.algebra.alignment import repair as repair
from brickwork.algebra.cancellation_result import Cancellation as Cancellation
from brickwork.algebra.deltas import Delta as Delta
from brickwork.algebra.deltas import delta as delta
from brickwork.algebra.heads import own_heads as own_heads
from brickwork.algebra.heads import refit_head as refit_head
from brickwork.algebra.masked import MaskedMerge as MaskedMerge
from brickwork.algebra.options import (
    AssignOptions,
    BalancedPointOptions,
    BatchNormOptions,
    CancelOptions,
    MaskOptions,
    MergeOptions,
    MergeSearchOptions,
    SweepOptions,
)
from brickwork.algebra.search_result import MergeSearch as MergeSearch
from brickwork.algebra.soup import Soup as Soup
from brickwork.algebra.soup import greedy_soup as greedy_soup
from brickwork.algebra.streaming import merge_files as merge_files
from brickwork.algebra.sweep_result import SweepResult as SweepResult
from brickwork.algebra.with_data import merge_on as merge_on
from brickwork.data.streamed import StreamedImages

__all__ = [
    "Cancellation", "Delta", "LearnedCoefficients", "MaskedMerge", "MergeSearch", "Soup", "SweepResult", "adamerge",
    "assign", "balanced_point", "cancel", "combine", "delta", "greedy_soup", "mask_merge", "merge", "merge_files",
    "merge_on", "own_heads", "rebasin", "refit_head", "repair", "search_merge", "sweep",
]

# from brickwork.algebra.deltas import assign
def assign(
    model: Any, g: Delta, alpha: float = 1.0, *, bn: Literal["batch", "recalibrate", "linear", "keep"] | None = None,
    strict: bool = False, images: ndarray | Tensor | StreamedImages | None = None, options: AssignOptions | None = None,
) -> Any: ...

# from brickwork.algebra.sweeping import balanced_point
def balanced_point(
    a: Module, b: Module, *, bn: Literal["batch", "recalibrate", "linear", "keep"] | None = None,
    batch_size: int | None = None, cells: int | None = None, precision: Literal["auto", "bf16"] = "auto",
    journal: Path | None = None, start: Sequence[float] = (0.5, 0.5), step: float = 0.5, smallest: float = 0.02,
    tries: int = 80, base: Module | None = None, data: Sequence[Any] | Mapping[str, Any],
    device: str | device | None = None, progress: bool = True, options: BalancedPointOptions | None = None,
) -> SweepResult: ...

# from brickwork.algebra.cancellation import cancel
def cancel(
    base: Module, first: Any, second: Any, *, lr: Sequence[float] = (0.001, 0.01), steps: Sequence[int] = (1, 2, 5, 10),
    batch_size: int | None = None, bn: Literal["batch", "keep"] = "batch", seed: int = 0,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None, device: str | device | None = None, progress: bool = True,
    options: CancelOptions | None = None,
) -> Cancellation: ...

# from brickwork.algebra.deltas import combine
def combine(
    terms: Any, *, bn: Literal["batch", "recalibrate", "linear", "keep"] | None = None,
    images: ndarray | Tensor | StreamedImages | None = None, options: BatchNormOptions | None = None,
) -> Any: ...

# from brickwork.algebra.masked import mask_merge
def mask_merge(
    models: Sequence[Module], *, rule: Literal["emr", "tall"] = "emr", threshold: float = 0.4, base: Module,
    options: MaskOptions | None = None,
) -> MaskedMerge: ...

# from brickwork.algebra.merging import merge
def merge(
    states: Sequence[Any], method: str = "linear", *,
    bn: Literal["batch", "recalibrate", "linear", "keep"] | None = None, heads: Literal["refuse", "keep"] = "refuse",
    repair: bool = False, seed: int = 0, search: dict[str, Any] | None = None, tries: int = 60,
    score: Literal["mean", "worst"] = "mean", base: Module | Mapping[str, Tensor] | None = None,
    data: Sequence[Any] | None = None, layers: Sequence[tuple[str, str, Mapping[str, Any]]] = (),
    options: MergeOptions | None = None, searching: MergeSearchOptions | None = None, **method_options: Any,
) -> Any: ...

# from brickwork.algebra.searching import search_merge
def search_merge(
    models: Sequence[Module], data: Sequence[Any], method: str = "linear", *,
    bn: Literal["batch", "recalibrate", "linear", "keep"] | None = None, heads: Literal["refuse", "keep"] = "refuse",
    repair: bool = False, seed: int = 0, search: dict[str, Any] | None = None, tries: int = 60,
    score: Literal["mean", "worst"] = "mean", base: Module | None = None, progress: bool = True,
    options: MergeOptions | None = None, searching: MergeSearchOptions | None = None, **fixed: Any,
) -> MergeSearch: ...

# from brickwork.algebra.sweeping import sweep
def sweep(
    a: Module, b: Module | None = None, *, bn: Literal["batch", "recalibrate", "linear", "keep"] | None = None,
    batch_size: int | None = None, cells: int | None = None, precision: Literal["auto", "bf16"] = "auto",
    journal: Path | None = None, alpha: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    beta: Sequence[float] | None = None, base: Module | None = None, data: Sequence[Any] | Mapping[str, Any],
    device: str | device | None = None, progress: bool = True, options: SweepOptions | None = None,
) -> SweepResult: ...
