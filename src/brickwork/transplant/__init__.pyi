from collections.abc import Sequence

from torch import Tensor
from torch.nn.modules.module import Module

from brickwork.blueprint.splitting import Above
from brickwork.blueprint.splitting import Split as Split
from brickwork.blueprint.splitting import split as split
from brickwork.data.images import ImageData
from brickwork.transplant.adapter import Adapter as Adapter
from brickwork.transplant.adapter import balance as balance
from brickwork.transplant.chain import Chain as Chain
from brickwork.transplant.chain import Dummy as Dummy
from brickwork.transplant.closed_form import solve_features as solve_features
from brickwork.transplant.closed_form import solve_pseudo_gradients as solve_pseudo_gradients
from brickwork.transplant.folders import load_net as load_net
from brickwork.transplant.folders import save_net as save_net
from brickwork.transplant.growth import GrownNet
from brickwork.transplant.layout import Layout as Layout
from brickwork.transplant.learning import LearnedAdapter as LearnedAdapter
from brickwork.transplant.matching import match_features as match_features
from brickwork.transplant.net import TransplantNet as TransplantNet
from brickwork.transplant.options import WAYS as WAYS
from brickwork.transplant.options import AdapterOptions as AdapterOptions
from brickwork.transplant.options import LearnTaskOptions as LearnTaskOptions
from brickwork.transplant.options import TuneOptions as TuneOptions
from brickwork.transplant.parts import alone as export
from brickwork.transplant.recipe import read_recipe as read_recipe
from brickwork.transplant.recipe_run import run_recipe as run
from brickwork.transplant.token_adapter import TokenAdapter as TokenAdapter

__all__ = [
    "WAYS", "Adapter", "AdapterOptions", "Chain", "Dummy", "Layout", "LearnTaskOptions", "LearnedAdapter", "Split",
    "TokenAdapter", "TransplantNet", "TuneOptions", "add", "add_learned_task", "balance", "connect", "export",
    "learn_adapter", "load_net", "match_features", "read_recipe", "run", "save_net", "solve_features",
    "solve_pseudo_gradients", "split", "tune",
]

# from brickwork.transplant.adding import add
def add(
    net: TransplantNet | None, model: Module, *, steps: int = 400, batch_size: int = 50, lr: float = 0.001,
    seed: int = 0, at: str | None = None, carry: Sequence[str] = (), category: str | None = None,
    task: str | None = None, on: Sequence[str] = (), data: Sequence[ImageData] = (),
    input_shape: Sequence[int] | None = None, progress: bool = True, options: LearnTaskOptions | None = None,
) -> GrownNet: ...

# from brickwork.transplant.growth import add_learned_task
def add_learned_task(
    net: TransplantNet, model: Module, task: str, *, steps: int = 400, batch_size: int = 50, lr: float = 0.001,
    seed: int = 0, at: str, on: Sequence[str], data: Sequence[ImageData], carry: Sequence[str] = (),
    progress: bool = True, options: LearnTaskOptions | None = None,
) -> GrownNet: ...

# from brickwork.transplant.growth import connect
def connect(
    net: TransplantNet, category: str, task: str, *, way: str | None = None, labels: int = 0, images: int = 2000,
    layers: int = 1, kernel: int = 1, reorder: int | None = None, start: str = "identity", resize: str = "windows",
    prefix: str = "features", steps: int = 400, batch_size: int = 50, lr: float = 0.001, schedule: str = "constant",
    temperature: float = 1.0, views: int = 1, blends: int = 0, augment: str = "crop+flip", weight: float = 10.0,
    per: str = "norm", alpha: float | None = None, dummy: str = "second", share: float = 0.5, size: int | None = None,
    seed: int = 0, data: ImageData | None = None, teacher: str | None = None, force: bool = False,
    progress: bool = True, options: AdapterOptions | None = None,
) -> GrownNet: ...

# from brickwork.transplant.learning import learn_adapter
def learn_adapter(
    adapter: Adapter | TokenAdapter, task: Above, *, way: str | None = None, images: int = 2000, layers: int = 1,
    kernel: int = 1, reorder: int | None = None, start: str = "identity", resize: str = "windows",
    prefix: str = "features", steps: int = 400, batch_size: int = 50, lr: float = 0.001, schedule: str = "constant",
    temperature: float = 1.0, views: int = 1, blends: int = 0, augment: str = "crop+flip", weight: float = 10.0,
    per: str = "norm", alpha: float | None = None, dummy: str = "second", share: float = 0.5, size: int | None = None,
    seed: int = 0, teacher: Above | None = None, features: Tensor | None = None, labels: Tensor | None = None,
    unlabelled: Tensor | None = None, wanted: Tensor | None = None, input_shape: Sequence[int] | None = None,
    example: Tensor | None = None, progress: bool = True, options: AdapterOptions | None = None,
) -> LearnedAdapter: ...

# from brickwork.transplant.joint import tune
def tune(
    net: TransplantNet, routes: Sequence[tuple[str, str, ImageData]], *,
    parts: Sequence[str] = ("adapters", "tasks", "categories"), steps: int = 200, batch_size: int = 32,
    lr: float = 0.0001, seed: int = 0, progress: bool = True, options: TuneOptions | None = None,
) -> GrownNet: ...
