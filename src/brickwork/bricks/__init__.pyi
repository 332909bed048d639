from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal

from numpy import ndarray
from torch import Tensor, device
from torch.nn.modules.module import Module
from torch.utils.data.dataloader import DataLoader
from torch.utils.data.dataset import Dataset

from brickwork.bricks.brick import Brick as Brick
from brickwork.bricks.distillation import Distilled
from brickwork.bricks.forgetting import Forgotten as Forgotten
from brickwork.bricks.options import AdaptOptions as AdaptOptions
from brickwork.bricks.options import AssembleOptions as AssembleOptions
from brickwork.bricks.options import CompressOptions
from brickwork.bricks.options import DisassembleOptions as DisassembleOptions
from brickwork.bricks.options import DistilOptions as DistilOptions
from brickwork.bricks.options import ForgetOptions as ForgetOptions
from brickwork.bricks.options import RoutesOptions as RoutesOptions
from brickwork.bricks.options import TransferOptions as TransferOptions
from brickwork.bricks.options import TreatOptions as TreatOptions
from brickwork.bricks.route_sets import Routes as Routes
from brickwork.bricks.transferring import Transferred
from brickwork.bricks.treatment import Treated
from brickwork.data.images import ImageData
from brickwork.data.streamed import StreamedImages

__all__ = [
    "AdaptOptions", "AssembleOptions", "Brick", "DisassembleOptions", "DistilOptions", "ForgetOptions", "Forgotten",
    "Routes", "RoutesOptions", "TransferOptions", "TreatOptions", "adapt", "assemble", "compress", "disassemble",
    "distil", "forget", "increment", "routes", "transfer", "treat",
]

# from brickwork.bricks.adaptation import adapt
def adapt(
    model: Module, known: ndarray | Tensor | StreamedImages | ImageData,
    new: ndarray | Tensor | StreamedImages | ImageData, *, images: int = 2000, ridge: float = 0.001, seed: int = 0,
    progress: bool = True, options: AdaptOptions | None = None,
) -> Module: ...

# from brickwork.bricks.assembly import assemble
def assemble(
    bricks: Sequence[Brick | str | PathLike[str]] | Brick | str | PathLike[str], *,
    calibrate: Literal["auto", "none", "source", "classwise", "target"] = "auto",
    shared: Literal["auto", "union", "apart"] = "auto", how: Literal["auto", "blocks", "branches"] = "auto",
    target: ndarray | Tensor | StreamedImages | None = None, source: Module | None = None,
    data: ndarray | Tensor | StreamedImages | None = None, options: AssembleOptions | None = None,
) -> Module: ...

# from brickwork.bricks.compression import compress
def compress(
    model: Module,
    data: tuple[ndarray | Tensor | StreamedImages, ndarray | Tensor] | ImageData | Dataset[Any] | DataLoader[Any] | ndarray | Tensor | StreamedImages,
    *, attribution: str | None = None, keep: float | None = None, budget: float | Sequence[float] | None = None,
    of: Literal["parameters", "macs", "latency"] = "parameters", batch: int = 1, threshold: float | None = None,
    tolerance: float = 0.01, depth: str | int | None = None, repair: Literal["match", "bn", "none"] = "match",
    images: int = 3000, scored: int = 3000, labels: Literal["data", "network"] = "data", ridge: float | None = None,
    polish: float | None = None, round_to: int | None = None, uniform: bool = False, output: str | int | None = None,
    seed: int = 0, device: str | device | None = None, progress: bool = True, options: CompressOptions | None = None,
) -> Any: ...

# from brickwork.bricks.disassembly import disassemble
def disassemble(
    model: Module, classes: Sequence[str | int] | str | int | None,
    data: tuple[ndarray | Tensor | StreamedImages, ndarray | Tensor] | ImageData | Dataset[Any] | DataLoader[Any] | ndarray | Tensor | StreamedImages,
    *, attribution: str | None = None, keep: float | None = None, budget: float | None = None,
    of: Literal["parameters", "macs", "latency"] = "parameters", batch: int = 1, threshold: float | None = None,
    tolerance: float = 0.01, depth: str | int | None = None, repair: Literal["match", "bn", "none"] = "match",
    images: int = 3000, scored: int = 3000, labels: Literal["data", "network"] = "data", ridge: float | None = None,
    polish: float | None = None, round_to: int | None = None, uniform: bool = False, output: str | int | None = None,
    seed: int = 0, device: str | device | None = None, progress: bool = True, options: DisassembleOptions | None = None,
) -> Brick: ...

# from brickwork.bricks.distillation import distil
def distil(
    student: Module, teachers: Sequence[Module | Brick] | Module | Brick, images: ndarray | Tensor | StreamedImages,
    labels: ndarray | Tensor | None = None, *, epochs: int = 1, lr: float | None = None, batch_size: int = 128,
    optimizer: str | None = None, schedule: str = "cosine", weight_decay: float = 0.0005, augment: str = "none",
    seed: int = 0, temperature: float = 2.0, hard: float = 0.5, device: str | device | None = None,
    progress: bool = True, options: DistilOptions | None = None,
) -> Distilled: ...

# from brickwork.bricks.forgetting import forget
def forget(
    model: Module, classes: Sequence[str | int] | str | int | None,
    data: tuple[ndarray | Tensor | StreamedImages, ndarray | Tensor] | ImageData | Dataset[Any] | DataLoader[Any], *,
    strength: float = 1.0, depth: str | int | None = None, outputs: Literal["drop", "keep"] = "drop",
    images: int = 3000, ridge: float | None = None, tolerance: float = 0.01, output: str | int | None = None,
    seed: int = 0, device: str | device | None = None, progress: bool = True, options: ForgetOptions | None = None,
) -> Forgotten: ...

# from brickwork.bricks.incremental import increment
def increment(
    model: Module, bricks: Sequence[Brick | str | PathLike[str]] | Brick | str | PathLike[str], *,
    calibrate: Literal["auto", "none", "source", "classwise", "target"] = "auto",
    shared: Literal["auto", "union", "apart"] = "auto", how: Literal["auto", "blocks", "branches"] = "auto",
    data: ndarray | Tensor | StreamedImages | None = None, target: ndarray | Tensor | StreamedImages | None = None,
    options: AssembleOptions | None = None,
) -> Module: ...

# from brickwork.bricks.routing import routes
def routes(
    model: Module,
    data: tuple[ndarray | Tensor | StreamedImages, ndarray | Tensor] | ImageData | Dataset[Any] | DataLoader[Any],
    classes: Sequence[str | int] | str | int | None = None, *, attribution: str = "frat", threshold: float = 1.0,
    scored: int = 1000, output: str | int | None = None, seed: int = 0, device: str | device | None = None,
    progress: bool = True, options: RoutesOptions | None = None,
) -> Routes: ...

# from brickwork.bricks.transferring import transfer
def transfer(
    model: Module,
    data: tuple[ndarray | Tensor | StreamedImages, ndarray | Tensor] | ImageData | Dataset[Any] | DataLoader[Any], *,
    epochs: int = 5, lr: float | None = None, batch_size: int = 128, optimizer: str | None = None,
    schedule: str = "cosine", weight_decay: float = 0.0005, augment: str = "none", seed: int = 0,
    what: Literal["independent", "all"] = "independent", threshold: float = 1.0, attribution: str = "frat",
    scored: int = 1000,
    routes: tuple[ndarray | Tensor | StreamedImages, ndarray | Tensor] | ImageData | Dataset[Any] | DataLoader[Any] | None = None,
    validation: tuple[Any, ...] | None = None, device: str | device | None = None, progress: bool = True,
    options: TransferOptions | None = None,
) -> Transferred: ...

# from brickwork.bricks.treatment import treat
def treat(
    model: Module,
    data: tuple[ndarray | Tensor | StreamedImages, ndarray | Tensor] | ImageData | Dataset[Any] | DataLoader[Any], *,
    epochs: int = 5, lr: float | None = None, batch_size: int = 128, optimizer: str | None = None,
    schedule: str = "cosine", weight_decay: float = 0.0005, augment: str = "none", seed: int = 0,
    rule: Literal["route", "doctor", "plain"] = "route", strength: float | None = None, threshold: float = 1.0,
    depth: str | int | None = 2, attribution: str = "frat", scored: int = 1000, device: str | device | None = None,
    progress: bool = True, options: TreatOptions | None = None,
) -> Treated: ...
