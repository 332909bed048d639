"""The results of a run: one method's accuracy matrix and bytes, and several methods side by side."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from brickwork.continual import metrics
from brickwork.continual.options import ContinualOptions
from brickwork.html_table import facts_table, rows_table
from brickwork.options import Options
from brickwork.results import JsonResult, json_values
from brickwork.words import counted

MB = 2**20
COLUMNS = (
    "method",
    "average_accuracy",
    "incremental_accuracy",
    "forgetting",
    "backward_transfer",
    "forward_transfer",
    "bytes_per_task",
    "shared_bytes",
    "total_bytes",
    "seconds",
    "on_front",
)


@dataclass(frozen=True)
class ContinualResult(JsonResult):
    """One method on one scenario. matrix[i][j]: share right on task j after task i, NaN where not measured.

    own: bytes of each task's own files; curve: bytes of all files after each task, shared ones included. All are sizes
    of files on the disk.
    """

    FORMAT: ClassVar[str] = "brickwork.continual/1"
    FILE: ClassVar[str] = "method.json"

    method: str
    tasks: tuple[str, ...]
    matrix: np.ndarray = field(repr=False)
    own: tuple[int, ...] = field(repr=False)
    curve: tuple[int, ...] = field(repr=False)
    seconds: float = 0.0
    untouched: np.ndarray | None = field(default=None, repr=False)  # b[j] of the forward transfer
    options: Options | None = field(default=None, repr=False)  # the method itself
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)  # inputs by hash, the run's options

    @property
    def average_accuracy(self) -> float:
        return metrics.average_accuracy(self.matrix)

    @property
    def incremental_accuracy(self) -> float:
        return metrics.incremental_accuracy(self.seen)

    @property
    def forgetting(self) -> float:
        return metrics.forgetting(self.seen)

    @property
    def backward_transfer(self) -> float:
        return metrics.backward_transfer(self.seen)

    @property
    def forward_transfer(self) -> float:
        """NaN unless it was asked for."""
        return float("nan") if self.untouched is None else metrics.forward_transfer(self.matrix, self.untouched)

    @property
    def among_all(self) -> bool:
        """Whether tasks were judged among the classes of all tasks learned by then."""
        return self.provenance.get("protocol") == "class"

    @property
    def seen(self) -> np.ndarray:
        """The matrix without what was measured on tasks before they were learned."""
        lower = np.tril(np.ones_like(self.matrix, dtype=bool))
        return np.where(lower, self.matrix, np.nan)

    @property
    def total_bytes(self) -> int:
        return self.curve[-1]

    @property
    def shared_bytes(self) -> int:
        """What is kept once for all tasks: a trunk, a pool."""
        return self.curve[-1] - sum(self.own)

    @property
    def bytes_per_task(self) -> float:
        """The mean over tasks of their own files."""
        return float(np.mean(self.own))

    def row(self) -> dict[str, Any]:
        """The numbers of `Comparison.table`, without the front."""
        return {name: getattr(self, name) for name in COLUMNS[:-1]}

    def table(self) -> list[dict[str, Any]]:
        """Tidy rows: after which task, on which, the accuracy; and the bytes of all files by then."""
        return [
            {
                "after": self.tasks[i],
                "task": self.tasks[j],
                "accuracy": float(self.matrix[i, j]),
                "bytes": self.curve[i],
            }
            for i, j in zip(*np.nonzero(~np.isnan(self.matrix)), strict=True)
        ]

    def plot(self, axes: Any = None) -> Any:
        """The accuracy matrix, drawn with matplotlib; the axes are returned."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(5, 4.5)).subplots()
        picture = axes.imshow(100 * self.matrix, cmap="viridis")
        axes.figure.colorbar(picture, ax=axes, label="accuracy (%)")
        axes.set_xlabel("task")
        axes.set_ylabel("after task")
        axes.set_title(self.method)
        return axes

    def to_dict(self) -> dict[str, Any]:
        """JSON values; NaN as None."""
        return {
            **json_values(self.row()),
            "tasks": list(self.tasks),
            "matrix": json_values(self.matrix.tolist()),
            "own_bytes": list(self.own),
            "curve_bytes": list(self.curve),
            "untouched": None if self.untouched is None else json_values(self.untouched.tolist()),
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> ContinualResult:
        from brickwork.continual.registry import parse

        untouched = None if facts["untouched"] is None else np.array(facts["untouched"], np.float64)
        return cls(
            facts["method"],
            tuple(facts["tasks"]),
            np.array(facts["matrix"], np.float64),
            tuple(facts["own_bytes"]),
            tuple(facts["curve_bytes"]),
            facts["seconds"],
            untouched,
            next(iter(parse(facts["method"]).values())),
            facts["provenance"],
        )

    def _repr_html_(self) -> str:
        return facts_table([(name, "–" if value is None else str(value)) for name, value in self.row().items()])

    def __str__(self) -> str:
        forward = "" if self.untouched is None else f", forward transfer {_percent(self.forward_transfer, '+')}"
        if self.among_all:
            forward += f", mean over the steps {self.incremental_accuracy:.2%}"
        return (
            f"{self.method}: {counted(len(self.tasks), 'task')}, average accuracy {self.average_accuracy:.2%}, forgetting "
            f"{_percent(self.forgetting)} points, backward transfer {_percent(self.backward_transfer, '+')}{forward}; "
            f"{self.bytes_per_task / MB:.3f} MB per task, {self.shared_bytes / MB:.2f} MB shared, "
            f"{self.total_bytes / MB:.2f} MB in all"
        )


@dataclass(frozen=True)
class Comparison:
    """Several methods on one scenario, by name."""

    scenario: str
    results: dict[str, ContinualResult]
    options: ContinualOptions | None = field(default=None, repr=False)

    @property
    def provenance(self) -> dict[str, Any]:
        """Of every method: inputs by hash, and options."""
        return {name: dict(result.provenance) for name, result in self.results.items()}

    def front(self) -> list[str]:
        """Methods that none beats: no other has as few bytes and as good an accuracy, and one of both better."""
        points = {name: (result.total_bytes, -result.average_accuracy) for name, result in self.results.items()}
        return [
            name
            for name, own in points.items()
            if not any(o[0] <= own[0] and o[1] <= own[1] and o != own for o in points.values())
        ]

    def table(self) -> list[dict[str, Any]]:
        """Tidy rows, one per method."""
        front = set(self.front())
        return [{**result.row(), "on_front": name in front} for name, result in self.results.items()]

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(json_values, self.table()))
        return text.getvalue()

    def to_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "front": self.front(),
            "methods": {name: result.to_dict() for name, result in self.results.items()},
        }

    def __str__(self) -> str:
        head, rows = self._cells()
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in [head, *rows]
        ]
        return "\n".join([self.scenario, *lines])

    def _repr_html_(self) -> str:
        return rows_table(*self._cells(), lines=[self.scenario])

    def plot(self, axes: Any = None) -> Any:
        """Average accuracy over megabytes in all, the front joined, drawn with matplotlib; the axes are returned."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(7, 4.5)).subplots()
        front = sorted(self.front(), key=lambda name: self.results[name].total_bytes)
        spots = {n: (r.total_bytes / MB, 100 * r.average_accuracy) for n, r in self.results.items()}
        axes.plot([spots[n][0] for n in front], [spots[n][1] for n in front], linestyle="--", color="0.5")
        for name, (x, y) in spots.items():
            axes.plot([x], [y], "o" if name in front else "x", label=name)
            axes.annotate(name, (x, y), textcoords="offset points", xytext=(5, 4), fontsize=8)
        axes.set_xscale("log")
        axes.set_xlabel("megabytes for all tasks")
        axes.set_ylabel("average accuracy (%)")
        return axes

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        forward = any(result.untouched is not None for result in self.results.values())
        steps = any(result.among_all for result in self.results.values())
        head = [
            "method",
            "accuracy",
            *(["over the steps"] if steps else []),
            "forgetting",
            "backward",
            *(["forward"] if forward else []),
        ]
        head += ["MB per task", "shared", "in all", "seconds", "front"]
        front, rows = set(self.front()), []
        for name, result in self.results.items():
            scores = [result.average_accuracy, *([result.incremental_accuracy] if steps else []), result.forgetting]
            transfers = [result.backward_transfer, *([result.forward_transfer] if forward else [])]
            own, shared, total = (
                size / MB for size in (result.bytes_per_task, result.shared_bytes, result.total_bytes)
            )
            sizes = [f"{own:.3f}", f"{shared:.2f}", f"{total:.2f}", f"{result.seconds:.1f}"]
            cells = [*map(_percent, scores), *(_percent(value, "+") for value in transfers), *sizes]
            rows.append([name, *cells, "*" if name in front else ""])
        return head, rows


def _percent(value: float, sign: str = "") -> str:
    return "–" if math.isnan(value) else f"{100 * value:{sign}.2f}"
