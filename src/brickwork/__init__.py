"""Brickwork takes trained neural networks apart and builds new ones from the parts.

The public names are loaded on first use, so that `import brickwork` and `brickwork --help` stay fast.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

try:
    __version__ = _version("brickwork")
except PackageNotFoundError:  # a source tree that is on the path but not installed
    __version__ = "0+unknown"

#: public name -> the module that defines it
_HOME = {
    "Blueprint": "blueprint",
    "Brick": "bricks",
    "CovLasso": "dependencies",
    "Delta": "algebra",
    "DependencyMap": "dependencies",
    "KernelPool": "pools",
    "Routes": "bricks",
    "TransplantNet": "transplant",
    "adapt": "bricks",
    "assemble": "bricks",
    "assign": "algebra",
    "compress": "bricks",
    "delta": "algebra",
    "disassemble": "bricks",
    "distil": "bricks",
    "errors": "errors",
    "increment": "bricks",
    "join": "blueprint",
    "load": "store",
    "merge": "algebra",
    "routes": "bricks",
    "save": "store",
    "sweep": "algebra",
    "trace": "blueprint",
    "transfer": "bricks",
    "treat": "bricks",
    "zoo": "zoo",
}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'brickwork' has no attribute {name!r}")
    module = importlib.import_module(f"brickwork.{_HOME[name]}")
    value = module if _HOME[name] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from brickwork import errors as errors
    from brickwork import zoo as zoo
    from brickwork.algebra import Delta as Delta
    from brickwork.algebra import assign as assign
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
    from brickwork.bricks import increment as increment
    from brickwork.bricks import transfer as transfer
    from brickwork.bricks import treat as treat
    from brickwork.bricks.routes import routes as routes
    from brickwork.dependencies import CovLasso as CovLasso
    from brickwork.dependencies import DependencyMap as DependencyMap
    from brickwork.pools import KernelPool as KernelPool
    from brickwork.store import load as load
    from brickwork.store import save as save
    from brickwork.transplant import TransplantNet as TransplantNet
