from collections.abc import Sequence
from typing import Any, Literal

from numpy import ndarray
from torch import Tensor, device
from torch.nn.modules.module import Module
from torch.utils.data.dataloader import DataLoader
from torch.utils.data.dataset import Dataset

from brickwork import continual as continual
from brickwork import data as data
from brickwork import dependencies as depend
from brickwork import errors as errors
from brickwork import lora as lora
from brickwork import pools as pool
from brickwork import transplant as transplant
from brickwork import zoo as zoo
from brickwork.algebra import Delta as Delta
from brickwork.algebra import assign as assign
from brickwork.algebra import cancel as cancel
from brickwork.algebra import delta as delta
from brickwork.algebra import merge as merge
from brickwork.algebra import sweep as sweep
from brickwork.blueprint import Blueprint as Blueprint
from brickwork.blueprint import join as join
from brickwork.blueprint import trace as trace
from brickwork.bricks import Brick as Brick
from brickwork.bricks import Routes as Routes
from brickwork.bricks import adapt as adapt
from brickwork.bricks import assemble as assemble
from brickwork.bricks import compress as compress
from brickwork.bricks import disassemble as disassemble
from brickwork.bricks import distil as distil
from brickwork.bricks import forget as forget
from brickwork.bricks import increment as increment
from brickwork.bricks import routes as routes
from brickwork.bricks import transfer as transfer
from brickwork.bricks import treat as treat
from brickwork.data.images import ImageData
from brickwork.data.streamed import StreamedImages
from brickwork.dependencies import CovLasso as CovLasso
from brickwork.dependencies import DependencyMap as DependencyMap
from brickwork.evaluation import Evaluation
from brickwork.export import export_model as export_model
from brickwork.inspection import ModelInfo
from brickwork.model_options import EvalOptions, InfoOptions
from brickwork.pools import KernelPool as KernelPool
from brickwork.store import import_model as import_model
from brickwork.store import load as load
from brickwork.store import save as save
from brickwork.training import synthesise as synthesise
from brickwork.training import train as train
from brickwork.transplant import TransplantNet as TransplantNet

__all__ = [
    "Blueprint", "Brick", "CovLasso", "Delta", "DependencyMap", "KernelPool", "Routes", "TransplantNet", "__version__",
    "adapt", "assemble", "assign", "cancel", "compress", "continual", "data", "delta", "depend", "disassemble",
    "distil", "errors", "eval", "export_model", "forget", "import_model", "increment", "info", "join", "load", "lora",
    "merge", "pool", "routes", "save", "sweep", "synthesise", "trace", "train", "transfer", "transplant", "treat",
    "zoo",
]
__version__: str

# from brickwork.evaluation import evaluate
def eval(
    model: Module,
    data: ImageData | ndarray | Tensor | StreamedImages | Dataset[Any] | DataLoader[Any] | tuple[ndarray | Tensor | StreamedImages, Any],
    labels: ndarray | Tensor | None = None, *, split: Literal["test", "train", "all"] | None = None,
    batch_size: int = 512, restrict: str | None = None, classes: Sequence[str] | None = None,
    device: str | device | None = None, masks: ndarray | Tensor | None = None, options: EvalOptions | None = None,
) -> Evaluation: ...

# from brickwork.inspection import info
def info(
    model: Module, *, input_shape: Sequence[int] | None = None, dry_run: Sequence[str] = (), latency: bool = False,
    options: InfoOptions | None = None,
) -> ModelInfo: ...
