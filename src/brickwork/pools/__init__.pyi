from collections.abc import Sequence
from typing import Any, Literal

from numpy import ndarray
from torch import Tensor, device
from torch.nn.modules.module import Module

from brickwork.data.images import ImageData
from brickwork.data.streamed import StreamedImages
from brickwork.pools.folder import PoolFolder as PoolFolder
from brickwork.pools.growth import Growth as Growth
from brickwork.pools.options import ClusterOptions as ClusterOptions
from brickwork.pools.options import EncodeOptions as EncodeOptions
from brickwork.pools.options import LearnOptions as LearnOptions
from brickwork.pools.options import PretrainOptions as PretrainOptions
from brickwork.pools.pool import KernelPool as KernelPool
from brickwork.pools.starts import rank_starts as rank_starts
from brickwork.pools.task import PoolTask as PoolTask

__all__ = [
    "ClusterOptions", "EncodeOptions", "Growth", "KernelPool", "LearnOptions", "PoolFolder", "PoolTask",
    "PretrainOptions", "cluster", "encode", "learn", "pretrain", "rank_starts",
]

# from brickwork.pools.clustering import cluster
def cluster(
    models: Sequence[Module] | Module, data: ImageData | ndarray | Tensor | StreamedImages | None = None, *,
    size: int = 512, group: int = 1, head: str | None = None, seed: int = 0, device: str | device | None = "cpu",
    progress: bool = False, options: ClusterOptions | None = None,
) -> KernelPool: ...

# from brickwork.pools.encoding import encode
def encode(
    pool: KernelPool, model: Module, data: ImageData | ndarray | Tensor | StreamedImages | None = None, *,
    grow: int | None = None, grow_bytes: int | None = None, metric: Literal["gram", "weight"] = "gram",
    stay: float = 0.0, bits: int = 16, ridge: float = 0.01, seed: int = 0, reference: PoolTask | None = None,
    device: str | device | None = None, progress: bool = True, options: EncodeOptions | None = None,
) -> PoolTask: ...

# from brickwork.pools.learning import learn
def learn(
    pool: KernelPool, data: ImageData | ndarray | Tensor | StreamedImages, labels: Any = None, *, epochs: int = 30,
    batch_size: int | None = None, lr: float = 0.02, optimizer: str | None = None, schedule: str | None = None,
    milestones: Sequence[int] | None = None, weight_decay: float | None = None, momentum: float | None = None,
    nesterov: bool | None = None, label_smoothing: float | None = None, augment: str | None = None,
    precision: Literal["auto", "float32", "bf16"] = "auto", seed: int = 0, record: bool = False,
    commitment: float = 0.5, refresh: int = 4, free: float | None = None, stay: float = 0.0, budget: int | None = None,
    norms: Literal["running", "measured"] = "running", fold: bool = False, bits: int = 16, grow: int | None = None,
    grow_bytes: int | None = None, classes: Sequence[str] | int | None = None,
    start: PoolTask | Module | str | None = None, device: str | device | None = None, progress: bool = True,
    options: LearnOptions | None = None,
) -> PoolTask: ...

# from brickwork.pools.pretraining import pretrain
def pretrain(
    model: Module, data: ImageData | ndarray | Tensor | StreamedImages, labels: Any = None, *, epochs: int = 6,
    batch_size: int | None = None, lr: float = 0.02, optimizer: str | None = None, schedule: str | None = None,
    milestones: Sequence[int] | None = None, weight_decay: float | None = None, momentum: float | None = None,
    nesterov: bool | None = None, label_smoothing: float | None = None, augment: str | None = None,
    precision: Literal["auto", "float32", "bf16"] = "auto", seed: int = 0, record: bool = False, size: int = 512,
    group: int = 1, head: str | None = None, commitment: float = 0.5, decay: float = 0.99, refresh: int = 1,
    revive: int = 100, classes: Sequence[str] | int | None = None, device: str | device | None = None,
    progress: bool = True, options: PretrainOptions | None = None,
) -> KernelPool: ...
