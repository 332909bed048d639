"""Studies: the papers' tables as runnable recipes, the paper's number and ours side by side."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Self

import torch

from brickwork.devices import pick
from brickwork.errors import UnknownName

Row = dict[str, Any]


@dataclass
class Run:
    """How a study is run: on the papers' data (`full`) or on digits; `networks` keeps trained networks from run to run."""

    full: bool
    seed: int = 0
    device: str = "auto"
    progress: bool = True
    networks: str | None = None

    @classmethod
    def of(cls, run: Run, **changes: Any) -> Self:
        """The same run as another kind of place of work, or with another seed."""
        return cls(**{**{f.name: getattr(run, f.name) for f in fields(Run)}, **changes})

    @property
    def where(self) -> torch.device:
        return pick(self.device)


#: (run, **options) -> rows with "what", "paper", "ours", as they come
Play = Callable[..., Iterable[Row]]


@dataclass(frozen=True)
class Study:
    name: str
    play: Play
    paper: str
    about: str
    trains: bool = True  # whether it has networks to keep

    def run(
        self,
        *,
        full: bool,
        seed: int = 0,
        device: str = "auto",
        progress: bool = True,
        networks: str | None = None,
        **options: Any,
    ) -> Iterable[Row]:
        return self.play(Run(full, seed, device, progress, networks), **options)

    @property
    def options(self) -> tuple[str, ...]:
        """What it can be told beside what every run has."""
        return tuple(inspect.signature(self.play).parameters)[1:]


REGISTRY: dict[str, Study] = {}


def study(name: str, *, paper: str, trains: bool = True) -> Callable[[Play], Play]:
    """Register a study under a name; the first line of its docstring is what the list shows."""

    def register(play: Play) -> Play:
        REGISTRY[name] = Study(name, play, paper, (play.__doc__ or "").split("\n")[0], trains)
        return play

    return register


#: modules of this package that register studies
MODULES = (
    "assemble",
    "assignment",
    "compress",
    "cut_dependency",
    "dependency",
    "disassemble",
    "distil",
    "families",
    "forgetting",
    "fusion",
    "increment",
    "latency",
    "lego_ablation",
    "new_classes",
    "transfer",
    "treat",
    "insert_adapter",
    "transplant_classify",
    "transplant_segment",
    "weight_search",
)


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
        importlib.import_module(f"brickwork_lab.studies.{module}")
