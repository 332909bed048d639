"""Studies: the papers' tables as runnable recipes, the paper's number and ours side by side."""

import importlib
import inspect
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from brickwork.errors import UnknownName
from brickwork_lab.lab import Lab

Row = dict[str, Any]
Names = tuple[str, ...] | None  # some of the known names; None: all of them
#: (lab, **options) -> rows with "what", "paper", "ours", as they come
Play = Callable[..., Iterable[Row]]


@dataclass(frozen=True)
class Study:
    name: str
    play: Play
    paper: str
    about: str
    trains: bool = True  # whether it has networks to keep

    def run(self, *, full: bool, **options: Any) -> Iterable[Row]:
        """The rows; seed, device, progress and networks as a Lab takes them, and the study's own options."""
        own = {name: options.pop(name) for name in self.options if name in options}
        return self.play(Lab(full, **options), **own)

    @property
    def options(self) -> tuple[str, ...]:
        """What can be asked of it beside what every run has."""
        return tuple(inspect.signature(self.play).parameters)[1:]


REGISTRY: dict[str, Study] = {}


def study(name: str, *, paper: str, trains: bool = True) -> Callable[[Play], Play]:
    """Register a study under a name; the first line of its docstring is what the list shows."""

    def register(play: Play) -> Play:
        REGISTRY[name] = Study(name, play, paper, (play.__doc__ or "").split("\n")[0], trains)
        return play

    return register


#: modules of this package that register studies
MODULES = """cut_dependency cutting dependency families forgetting joining latency new_classes pruning retraining
    transplant_classify transplant_segment weight_addition weight_search"""


def get(name: str) -> Study:
    names()
    check_names("study", (name,), REGISTRY)
    return REGISTRY[name]


def names() -> list[str]:
    for module in MODULES.split():
        importlib.import_module(f"brickwork_lab.studies.{module}")
    return sorted(REGISTRY)


def read_json(name: str) -> Any:
    """A file of the papers' numbers, or of names, beside the studies."""
    return json.loads(resources.files("brickwork_lab.studies").joinpath(name).read_text(encoding="utf-8"))


def check_names(kind: str, asked: Names, known: Collection[str]) -> None:
    """Refuse the first name that there is not."""
    for name in asked or ():
        if name not in known:
            raise UnknownName(kind, name, known)


def some_of(known: dict[str, Any], asked: Names, kind: str = "pick of classes") -> dict[str, Any]:
    """The entries that were asked for by name; all without."""
    check_names(kind, asked, known)
    return {name: entry for name, entry in known.items() if not asked or name in asked}
