from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from numpy import ndarray
from torch import Tensor, device
from torch.nn.modules.module import Module

from brickwork import continual as continual
from brickwork import data as data
from brickwork import dependencies as depend
from brickwork import errors as errors
from brickwork import pools as pool
from brickwork import transplant as transplant
from brickwork import zoo as zoo
from brickwork.algebra import Delta as Delta
from brickwork.algebra import delta as delta
from brickwork.algebra.cancellation_result import Cancellation
from brickwork.algebra.options import AssignOptions, CancelOptions, MergeOptions, SweepOptions
from brickwork.algebra.sweep_result import SweepResult
from brickwork.blueprint import Blueprint as Blueprint
from brickwork.blueprint import join as join
from brickwork.blueprint import trace as trace
from brickwork.bricks import Brick as Brick
from brickwork.bricks import Routes as Routes
from brickwork.bricks.distillation import Distilled
from brickwork.bricks.options import (
    AdaptOptions,
    AssembleOptions,
    DisassembleOptions,
    DistilOptions,
    RoutesOptions,
    TransferOptions,
    TreatOptions,
)
from brickwork.bricks.transferring import Transferred
from brickwork.bricks.treatment import Treated
from brickwork.data.images import ImageData
from brickwork.dependencies import CovLasso as CovLasso
from brickwork.dependencies import DependencyMap as DependencyMap
from brickwork.evaluation import Evaluation
from brickwork.inspection import ModelInfo
from brickwork.model_options import EvalOptions, InfoOptions
from brickwork.origin import Preprocessing
from brickwork.pools import KernelPool as KernelPool
from brickwork.store import load as load
from brickwork.store import save as save
from brickwork.training.options import RunningOptions, TrainHooks, TrainOptions
from brickwork.training.result import TrainingResult
from brickwork.transplant import TransplantNet as TransplantNet

__all__ = [
    "Blueprint",
    "Brick",
    "CovLasso",
    "Delta",
    "DependencyMap",
    "KernelPool",
    "Routes",
    "TransplantNet",
    "__version__",
    "adapt",
    "assemble",
    "assign",
    "cancel",
    "compress",
    "continual",
    "data",
    "delta",
    "depend",
    "disassemble",
    "distil",
    "errors",
    "eval",
    "increment",
    "info",
    "join",
    "load",
    "merge",
    "pool",
    "routes",
    "save",
    "sweep",
    "trace",
    "train",
    "transfer",
    "transplant",
    "treat",
    "zoo",
]
__version__: str

# from brickwork.bricks.adaptation import adapt
def adapt(
    model: Module,
    known: ndarray | Tensor,
    new: ndarray | Tensor,
    *,
    images: int = 2000,
    ridge: float = 0.001,
    seed: int = 0,
    progress: bool = True,
    options: AdaptOptions | None = None,
) -> Module: ...

# from brickwork.bricks.assembly import assemble
def assemble(
    bricks: Sequence[Brick | str | PathLike[str]] | Brick | str | PathLike[str],
    *,
    calibrate: Literal["auto", "none", "source", "classwise", "target"] = "auto",
    shared: Literal["auto", "union", "apart"] = "auto",
    how: Literal["auto", "blocks", "branches"] = "auto",
    target: ndarray | Tensor | None = None,
    source: Module | None = None,
    data: ndarray | Tensor | None = None,
    options: AssembleOptions | None = None,
) -> Module: ...

# from brickwork.algebra.deltas import assign
def assign(
    model: Any,
    g: Delta,
    alpha: float = 1.0,
    *,
    bn: Literal["linear", "keep"] = "linear",
    strict: bool = False,
    options: AssignOptions | None = None,
) -> Any: ...

# from brickwork.algebra.cancellation import cancel
def cancel(
    base: Module,
    first: Any,
    second: Any,
    *,
    lr: Sequence[float] = (0.001, 0.01),
    steps: Sequence[int] = (1, 2, 5, 10),
    batch_size: int | None = None,
    bn: Literal["batch", "keep"] = "batch",
    seed: int = 0,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    device: str | device | None = None,
    progress: bool = True,
    options: CancelOptions | None = None,
) -> Cancellation: ...

# from brickwork.bricks.compression import compress
def compress(
    model: Module,
    data: tuple[ndarray | Tensor, ndarray | Tensor] | ImageData,
    *,
    attribution: str = "taylor",
    keep: float | None = None,
    budget: float | None = None,
    of: Literal["parameters", "macs"] = "parameters",
    threshold: float | None = None,
    tolerance: float = 0.01,
    depth: str | int | None = None,
    repair: Literal["match", "bn", "none"] = "match",
    images: int = 3000,
    scored: int = 3000,
    ridge: float = 0.0001,
    round_to: int | None = None,
    output: str | int | None = None,
    seed: int = 0,
    device: str | device | None = None,
    progress: bool = True,
    options: DisassembleOptions | None = None,
) -> Brick: ...

# from brickwork.bricks.disassembly import disassemble
def disassemble(
    model: Module,
    classes: Sequence[str | int] | str | int | None,
    data: tuple[ndarray | Tensor, ndarray | Tensor] | ImageData,
    *,
    attribution: str = "taylor",
    keep: float | None = None,
    budget: float | None = None,
    of: Literal["parameters", "macs"] = "parameters",
    threshold: float | None = None,
    tolerance: float = 0.01,
    depth: str | int | None = None,
    repair: Literal["match", "bn", "none"] = "match",
    images: int = 3000,
    scored: int = 3000,
    ridge: float = 0.0001,
    round_to: int | None = None,
    output: str | int | None = None,
    seed: int = 0,
    device: str | device | None = None,
    progress: bool = True,
    options: DisassembleOptions | None = None,
) -> Brick: ...

# from brickwork.bricks.distillation import distil
def distil(
    student: Module,
    teachers: Sequence[Module | Brick] | Module | Brick,
    images: ndarray | Tensor,
    labels: ndarray | Tensor | None = None,
    *,
    epochs: int = 1,
    lr: float = 0.01,
    batch_size: int = 128,
    optimizer: str = "sgd",
    schedule: str = "cosine",
    weight_decay: float = 0.0005,
    augment: str = "none",
    seed: int = 0,
    temperature: float = 2.0,
    hard: float = 0.5,
    device: str | device | None = None,
    progress: bool = True,
    options: DistilOptions | None = None,
) -> Distilled: ...

# from brickwork.evaluation import evaluate
def eval(
    model: Module,
    data: ImageData | ndarray | Tensor,
    labels: ndarray | Tensor | None = None,
    *,
    split: Literal["test", "train"] = "test",
    batch_size: int = 512,
    classes: Sequence[str] | None = None,
    device: device | str | None = None,
    masks: ndarray | Tensor | None = None,
    options: EvalOptions | None = None,
) -> Evaluation: ...

# from brickwork.bricks.incremental import increment
def increment(
    model: Module,
    bricks: Sequence[Brick | str | PathLike[str]] | Brick | str | PathLike[str],
    *,
    calibrate: Literal["auto", "none", "source", "classwise", "target"] = "auto",
    shared: Literal["auto", "union", "apart"] = "auto",
    how: Literal["auto", "blocks", "branches"] = "auto",
    data: ndarray | Tensor | None = None,
    target: ndarray | Tensor | None = None,
    options: AssembleOptions | None = None,
) -> Module: ...

# from brickwork.inspection import info
def info(
    model: Module,
    *,
    input_shape: Sequence[int] | None = None,
    dry_run: Sequence[str] = (),
    options: InfoOptions | None = None,
) -> ModelInfo: ...

# from brickwork.algebra.merging import merge
def merge(
    states: Sequence[Any],
    method: str = "linear",
    *,
    bn: Literal["linear", "keep"] = "linear",
    heads: Literal["refuse", "keep"] = "refuse",
    seed: int = 0,
    base: Module | Mapping[str, Tensor] | None = None,
    data: Sequence[Any] | None = None,
    layers: Sequence[tuple[str, str, Mapping[str, Any]]] = (),
    options: MergeOptions | None = None,
    **method_options: Any,
) -> Any: ...

# from brickwork.bricks.routing import routes
def routes(
    model: Module,
    data: tuple[ndarray | Tensor, ndarray | Tensor] | ImageData,
    classes: Sequence[str | int] | str | int | None = None,
    *,
    attribution: str = "frat",
    threshold: float = 1.0,
    scored: int = 1000,
    output: str | int | None = None,
    seed: int = 0,
    device: str | device | None = None,
    progress: bool = True,
    options: RoutesOptions | None = None,
) -> Routes: ...

# from brickwork.algebra.sweeping import sweep
def sweep(
    a: Module,
    b: Module | None = None,
    *,
    bn: Literal["linear", "keep"] = "linear",
    batch_size: int | None = None,
    cells: int | None = None,
    precision: Literal["auto", "bf16"] = "auto",
    journal: Path | None = None,
    alpha: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    beta: Sequence[float] | None = None,
    base: Module | None = None,
    data: Sequence[ImageData | tuple[Any, Any]] | Mapping[str, ImageData | tuple[Any, Any]],
    device: str | device | None = None,
    progress: bool = True,
    options: SweepOptions | None = None,
) -> SweepResult: ...

# from brickwork.training.loop import train
def train(
    model: Module,
    data: ImageData | ndarray | Tensor,
    labels: ndarray | Tensor | None = None,
    *,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    optimizer: str | None = None,
    schedule: str | None = None,
    milestones: Sequence[int] | None = None,
    weight_decay: float | None = None,
    momentum: float | None = None,
    nesterov: bool | None = None,
    label_smoothing: float | None = None,
    augment: str | None = None,
    precision: Literal["auto", "float32", "bf16"] = "auto",
    seed: int = 0,
    compile: bool = False,
    record: bool = False,
    channels_last: bool | None = None,
    checkpoint: Path | None = None,
    resume: bool = True,
    metrics: Path | None = None,
    tensorboard: Path | None = None,
    loss: Callable[..., Any] | None = None,
    penalty: Callable[..., Any] | None = None,
    before_step: Callable[..., Any] | None = None,
    validation: Sequence[Any] | None = None,
    masks: ndarray | Tensor | None = None,
    classes: Sequence[str] | None = None,
    preprocessing: Preprocessing | None = None,
    device: str | device | None = None,
    progress: bool = True,
    options: TrainOptions | None = None,
    running: RunningOptions | None = None,
    hooks: TrainHooks | None = None,
) -> TrainingResult: ...

# from brickwork.bricks.transferring import transfer
def transfer(
    model: Module,
    data: tuple[ndarray | Tensor, ndarray | Tensor] | ImageData,
    *,
    epochs: int = 5,
    lr: float = 0.01,
    batch_size: int = 128,
    optimizer: str = "sgd",
    schedule: str = "cosine",
    weight_decay: float = 0.0005,
    augment: str = "none",
    seed: int = 0,
    what: Literal["independent", "all"] = "independent",
    threshold: float = 1.0,
    attribution: str = "frat",
    scored: int = 1000,
    routes: tuple[ndarray | Tensor, ndarray | Tensor] | ImageData | None = None,
    validation: tuple[Any, ...] | None = None,
    device: str | device | None = None,
    progress: bool = True,
    options: TransferOptions | None = None,
) -> Transferred: ...

# from brickwork.bricks.treatment import treat
def treat(
    model: Module,
    data: tuple[ndarray | Tensor, ndarray | Tensor] | ImageData,
    *,
    epochs: int = 5,
    lr: float = 0.01,
    batch_size: int = 128,
    optimizer: str = "sgd",
    schedule: str = "cosine",
    weight_decay: float = 0.0005,
    augment: str = "none",
    seed: int = 0,
    rule: Literal["route", "doctor", "plain"] = "route",
    strength: float | None = None,
    threshold: float = 1.0,
    depth: str | int | None = 2,
    attribution: str = "frat",
    scored: int = 1000,
    device: str | device | None = None,
    progress: bool = True,
    options: TreatOptions | None = None,
) -> Treated: ...
