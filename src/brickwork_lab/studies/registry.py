"""Studies: the papers' tables as runnable recipes, the paper's number and ours side by side."""

import importlib
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from brickwork.engine import Job
from brickwork.errors import UnknownName
from brickwork_lab.lab import Lab

Row = dict[str, Any]
#: facts of a row that are of one run only: a mean over runs would say nothing
OF_ONE_RUN = ("widths", "note")
Names = tuple[str, ...] | None  # some of the known names; None: all of them
#: (lab, **options) -> rows with "what", "paper", "ours", as they come
Play = Callable[..., Iterable[Row]]


@dataclass(frozen=True)
class Parts:
    """A study as jobs. first: what rows need, wave after wave, left in the folder of networks; rows: options of each job."""

    rows: Sequence[dict[str, Any]]
    first: Sequence[Sequence[Job]] = ()


#: (lab, **options) -> the parts
Split = Callable[..., Parts]


@dataclass(frozen=True)
class Study:
    name: str
    play: Play
    paper: str
    about: str
    trains: bool = True  # whether it has networks to keep
    split: Split | None = None  # into jobs of an engine; None: by the names that are asked for

    def run(self, *, full: bool, **options: Any) -> Iterable[Row]:
        """The rows; seed, device, progress and networks as a Lab takes them, and the study's own options."""
        own = {name: options.pop(name) for name in self.options if name in options}
        return self.play(Lab(full, **options), **own)

    @property
    def options(self) -> tuple[str, ...]:
        """What can be asked of it beside what every run has."""
        return tuple(inspect.signature(self.play).parameters)[1:]


REGISTRY: dict[str, Study] = {}


def study(name: str, *, paper: str, trains: bool = True, split: Split | None = None) -> Callable[[Play], Play]:
    """Register a study under a name; the first line of its docstring is what the list shows."""

    def register(play: Play) -> Play:
        REGISTRY[name] = Study(name, play, paper, (play.__doc__ or "").split("\n")[0], trains, split)
        return play

    return register


#: modules of this package that register studies
MODULES = """cancelling class_incremental cut_ablation cut_dependency cutting dependency dependency_readings eight_tasks
    families forget_class forgetting frat_readings growing joining latency merging_apart new_classes pruning
    retraining route_sharing teaching token_transplants transplant_classify transplant_segment weight_addition
    weight_search"""


def averaged(runs: Sequence[Iterable[Row]]) -> Iterator[Row]:
    """The same rows of runs with other seeds as one: means of what differs, and `ours` of every run.

    Runs are read in step, so a row is there as soon as every run has it. What differs and has no mean is left out; runs
    without a number (`ours` is None, refused) do not count, unless no run has one.

    >>> rows = [[{"what": "a", "ours": x, "grid": [[x, 3 * x]], "alpha": x, "of": {"b": x}}] for x in (1.0, 2.0)]
    >>> row = next(averaged([iter(run) for run in rows]))
    >>> {name: row[name] for name in ("ours", "grid", "alpha", "of", "ours_each", "seeds")}
    {'ours': 1.5, 'grid': [[1.5, 4.5]], 'alpha': '1, 2', 'of': {'b': 1.5}, 'ours_each': [1.0, 2.0], 'seeds': 2}
    """
    for rows in zip(*runs, strict=True):
        if len({row["what"] for row in rows}) > 1:
            raise ValueError(f"runs differ in their rows: {[row['what'] for row in rows]}")
        counted = [row for row in rows if row.get("ours") is not None] or rows[:1]
        row = dict(counted[0])
        for name, value in counted[0].items():
            each = [other.get(name) for other in counted]
            if name == "seed" or each.count(value) == len(each):
                continue
            if any(v is None or isinstance(v, str | bool) for v in each):
                row[name] = None
            elif name in ("alpha", "beta"):
                row[name] = ", ".join(f"{v:g}" for v in each)
            elif isinstance(value, dict) and all(isinstance(v, dict) and v.keys() == value.keys() for v in each):
                row[name] = {key: _mean([v[key] for v in each]) for key in value}
            else:
                row[name] = _mean(each)
            if row[name] is None:
                del row[name]
        each = [other["ours"] for other in counted]
        yield {**row, **({"ours_each": each, "seeds": len(each)} if len(each) > 1 else {})}


def _mean(values: Sequence[Any]) -> Any:
    """Of numbers, or of lists of as many; None where there is none."""
    try:
        return np.round(np.mean(np.array(values, float), axis=0), 4).tolist()
    except (TypeError, ValueError):
        return None


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


def check_names(kind: str, asked: Sequence[str] | None, known: Collection[str]) -> None:
    """Refuse the first name that there is not."""
    for name in asked or ():
        if name not in known:
            raise UnknownName(kind, name, known)


def some_of(known: dict[str, Any], asked: Names, kind: str = "pick of classes") -> dict[str, Any]:
    """The entries that were asked for by name; all without."""
    check_names(kind, asked, known)
    return {name: entry for name, entry in known.items() if not asked or name in asked}
