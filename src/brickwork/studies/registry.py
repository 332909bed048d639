"""Studies: the papers' tables as runnable recipes, the paper's number and ours side by side."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from brickwork.errors import UnknownName

Row = dict[str, Any]
#: (full, seed, device, progress, **options) -> rows with "what", "paper", "ours", as they come
Run = Callable[..., Iterable[Row]]


@dataclass(frozen=True)
class Study:
    name: str
    run: Run
    paper: str
    about: str


REGISTRY: dict[str, Study] = {}


def study(name: str, *, paper: str) -> Callable[[Run], Run]:
    """Register a study under a name; the first line of its docstring is what the list shows."""

    def register(run: Run) -> Run:
        REGISTRY[name] = Study(name, run, paper, (run.__doc__ or "").split("\n")[0])
        return run

    return register


#: modules of this package that register studies
MODULES = (
    "assemble", "assignment", "compress", "cut_dependency", "dependency", "disassemble", "distil", "forgetting", "fusion",
    "increment", "latency", "lego_ablation", "new_classes", "transfer", "treat", "insert_adapter", "transplant_classify",
    "transplant_segment", "weight_search",
)  # fmt: skip


def get(name: str) -> Study:
    _register()
    if name not in REGISTRY:
        raise UnknownName("study", name, REGISTRY)
    return REGISTRY[name]


def names() -> list[str]:
    _register()
    return sorted(REGISTRY)


def _register() -> None:
    for module in MODULES:
        importlib.import_module(f"brickwork.studies.{module}")
