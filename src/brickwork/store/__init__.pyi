from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch.nn.modules.module import Module

from brickwork.store.config import Config as Config
from brickwork.store.config import read_config as read_config
from brickwork.store.folder import load as load
from brickwork.store.folder import save as save
from brickwork.store.hub import from_pretrained as from_pretrained
from brickwork.store.hub import push_to_hub as push_to_hub
from brickwork.store.options import ImportOptions
from brickwork.store.weights import load_weights as load_weights
from brickwork.store.weights import state_hash as state_hash

__all__ = [
    "Config", "from_pretrained", "import_model", "load", "load_weights", "push_to_hub", "read_config", "save",
    "state_hash",
]

# from brickwork.store.importing import import_model
def import_model(
    file: str | Path, *, classes: Sequence[str] | None = None, mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None, size: Sequence[int] | None = None, resize: Sequence[int] | None = None,
    interpolation: Literal["bilinear", "bicubic", "nearest"] | None = None, key: str | None = None,
    skip: Sequence[str] = (), arch: str | Callable[..., Module] | None = None, args: Mapping[str, Any] | None = None,
    options: ImportOptions | None = None,
) -> Module: ...
