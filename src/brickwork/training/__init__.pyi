from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from numpy import ndarray
from torch import Tensor, device
from torch.nn.modules.module import Module
from torch.utils.data.dataloader import DataLoader
from torch.utils.data.dataset import Dataset

from brickwork.data.images import ImageData
from brickwork.data.streamed import StreamedImages
from brickwork.origin import Preprocessing
from brickwork.training.options import FineTuneOptions as FineTuneOptions
from brickwork.training.options import RunningOptions as RunningOptions
from brickwork.training.options import SynthesiseOptions as SynthesiseOptions
from brickwork.training.options import TrainHooks as TrainHooks
from brickwork.training.options import TrainOptions as TrainOptions
from brickwork.training.recipes import RECIPES as RECIPES
from brickwork.training.recipes import TrainingRecipe as TrainingRecipe
from brickwork.training.recipes import default_augment as default_augment
from brickwork.training.recipes import resolve as resolve
from brickwork.training.result import TrainingResult as TrainingResult

__all__ = [
    "RECIPES", "FineTuneOptions", "RunningOptions", "SynthesiseOptions", "TrainHooks", "TrainOptions", "TrainingRecipe",
    "TrainingResult", "default_augment", "resolve", "synthesise", "train",
]

# from brickwork.training.synthesis import synthesise
def synthesise(
    model: Module, *, images: int | None = None, steps: int = 100, batch_size: int = 100, lr: float = 0.1,
    size: int | None = None, output: str | int | None = None, seed: int = 0, device: str | device | None = None,
    progress: bool = True, options: SynthesiseOptions | None = None,
) -> ImageData: ...

# from brickwork.training.loop import train
def train(
    model: Module,
    data: ImageData | ndarray | Tensor | StreamedImages | Dataset[Any] | DataLoader[Any] | tuple[ndarray | Tensor | StreamedImages, Any],
    labels: ndarray | Tensor | None = None, *, epochs: int | None = None, batch_size: int | None = None,
    lr: float | None = None, optimizer: str | None = None, schedule: str | None = None,
    milestones: Sequence[int] | None = None, weight_decay: float | None = None, momentum: float | None = None,
    nesterov: bool | None = None, label_smoothing: float | None = None, augment: str | None = None,
    precision: Literal["auto", "float32", "bf16"] = "auto", seed: int = 0, compile: bool = False, record: bool = False,
    channels_last: bool | None = None, checkpoint: Path | None = None, resume: bool = True, metrics: Path | None = None,
    tensorboard: Path | None = None, loss: Callable[..., Any] | None = None, penalty: Callable[..., Any] | None = None,
    before_step: Callable[..., Any] | None = None, validation: Sequence[Any] | None = None,
    masks: ndarray | Tensor | None = None, classes: Sequence[str] | None = None,
    preprocessing: Preprocessing | None = None, device: str | device | None = None, progress: bool = True,
    options: TrainOptions | None = None, running: RunningOptions | None = None, hooks: TrainHooks | None = None,
) -> TrainingResult: ...
