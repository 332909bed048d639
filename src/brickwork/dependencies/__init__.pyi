from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Literal

from numpy import ndarray
from torch import Tensor
from torch.nn.modules.module import Module
from torch.utils.data.dataloader import DataLoader
from torch.utils.data.dataset import Dataset

from brickwork.data.images import ImageData
from brickwork.dependencies.covlasso import CovLasso as CovLasso
from brickwork.dependencies.cutting import CovariancePenalty as CovariancePenalty
from brickwork.dependencies.cutting import pairs_above as pairs_above
from brickwork.dependencies.gram import LogitGram as LogitGram
from brickwork.dependencies.gram import logit_gram as logit_gram
from brickwork.dependencies.heads import fit_head as fit_head
from brickwork.dependencies.map import DependencyMap as DependencyMap
from brickwork.dependencies.options import AddOptions, MapOptions
from brickwork.dependencies.partial import CoefficientPenalty as CoefficientPenalty
from brickwork.dependencies.path import DependencyPath as DependencyPath

__all__ = [
    "CoefficientPenalty", "CovLasso", "CovariancePenalty", "DependencyMap", "DependencyPath", "LogitGram", "add", "fit",
    "fit_head", "logit_gram", "pairs_above",
]

# from brickwork.dependencies.new_classes import add_classes
def add(
    model: Module, data: ImageData | tuple[Any, Any] | Dataset[Any] | DataLoader[Any], *, epochs: int | None = None,
    batch_size: int | None = None, lr: float | None = None, optimizer: str | None = None, schedule: str | None = None,
    milestones: Sequence[int] | None = None, weight_decay: float | None = None, momentum: float | None = None,
    nesterov: bool | None = None, label_smoothing: float | None = None, augment: str | None = None,
    precision: Literal["auto", "float32", "bf16"] = "auto", seed: int = 0, how: Literal["train", "ridge"] = "train",
    on: Literal["logits", "features", "depths", "branch"] = "logits", strength: float | None = None, bias: bool = True,
    base_data: ImageData | tuple[Any, Any] | Dataset[Any] | DataLoader[Any] | None = None,
    classes: Sequence[str] | None = None, progress: bool = False, options: AddOptions | None = None,
) -> Module: ...

# from brickwork.dependencies.mapping import fit_map
def fit(
    logits: ndarray | Tensor | str | PathLike[str] | Iterable[Any], labels: Any = None, *, lam: Any = None,
    relative: bool = False, max_dependencies: int | None = None,
    loss: Literal["plain", "balanced", "decision"] = "plain", selection: Literal["lasso", "greedy"] = "lasso",
    refit: bool = False, positive_weight: float | None = None, decision_weight: float = 400.0, label_share: float = 0.3,
    own: bool = False, tol: float = 1e-06, solver: Literal["auto", "numba", "torch"] = "auto",
    threads: int | None = None, holdout: float | None = None, delta: float = 0.05, bootstrap: int = 0, null: int = 0,
    seed: int = 0, targets: ndarray | Tensor | str | PathLike[str] | Iterable[Any] | None = None,
    names: Sequence[str] | None = None, target_names: Sequence[str] | None = None, test: tuple[Any, ...] | None = None,
    device: str = "cpu", progress: bool = False, options: MapOptions | None = None,
) -> DependencyMap: ...
