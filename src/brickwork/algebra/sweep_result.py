"""What a sweep found: accuracies over α and β, one row a cell and data set."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from brickwork.algebra.options import SweepOptions, SweepRunOptions
from brickwork.html_table import rows_table
from brickwork.results import JsonResult
from brickwork.words import counted

COLUMNS = ("alpha", "beta", "data", "accuracy")


@dataclass(frozen=True)
class SweepResult(JsonResult):
    """rows[k] = (alpha, beta, data, accuracy); beta is 0 throughout where there was no second network."""

    FORMAT: ClassVar[str] = "brickwork.sweep/1"
    FILE: ClassVar[str] = "sweep.json"

    rows: tuple[tuple[float, float, str, float], ...] = field(repr=False)
    formula: str
    seconds: float = 0.0
    options: SweepRunOptions = field(default_factory=SweepRunOptions, repr=False)
    inputs: Mapping[str, str] = field(default_factory=dict, repr=False)  # network: the hash of its weights

    @property
    def alpha(self) -> list[float]:
        return sorted({row[0] for row in self.rows})

    @property
    def beta(self) -> list[float]:
        return sorted({row[1] for row in self.rows})

    @property
    def data(self) -> list[str]:
        return list(dict.fromkeys(row[2] for row in self.rows))

    def table(self) -> list[dict[str, Any]]:
        """Tidy rows: alpha, beta, data, accuracy."""
        return [dict(zip(COLUMNS, row, strict=True)) for row in self.rows]

    def grid(self, data: str | None = None) -> np.ndarray:
        """Accuracies (beta, alpha) of one data set; of the worst of them without a name. NaN: not measured."""
        result = np.full((len(self.beta), len(self.alpha)), np.nan)
        places = {(b, a): (i, j) for i, b in enumerate(self.beta) for j, a in enumerate(self.alpha)}
        for a, b, name, accuracy in self.rows:
            if data is None or name == data:
                i, j = places[b, a]
                result[i, j] = accuracy if np.isnan(result[i, j]) else min(result[i, j], accuracy)
        return result

    def balanced(self) -> dict[str, Any]:
        """The cell whose worst data set is best (then: the best mean; then the smallest α and β)."""
        cells: dict[tuple[float, float], dict[str, float]] = {}
        for a, b, name, accuracy in self.rows:
            cells.setdefault((a, b), {})[name] = accuracy
        (a, b), result = max(
            cells.items(), key=lambda c: (min(c[1].values()), sum(c[1].values()), -abs(c[0][0]) - abs(c[0][1]))
        )
        return {"alpha": a, "beta": b, "worst": min(result.values()), "accuracy": result}

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(self.rows)
        return text.getvalue()

    @property
    def provenance(self) -> dict[str, Any]:
        """Networks by hash, data and options."""
        return {"command": "sweep", "inputs": dict(self.inputs), "data": self.data, "options": self.options.to_dict()}

    def to_dict(self) -> dict[str, Any]:
        facts = {"formula": self.formula, "seconds": self.seconds, "balanced": self.balanced(), "rows": self.table()}
        return {**facts, "provenance": self.provenance}

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> SweepResult:
        rows = tuple(tuple(row[name] for name in COLUMNS) for row in facts["rows"])
        known = facts["provenance"]["options"]
        options = (SweepOptions if "alpha" in known else SweepRunOptions).from_dict(known)
        return cls(rows, facts["formula"], facts["seconds"], options, facts["provenance"]["inputs"])

    def __str__(self) -> str:
        best = self.balanced()
        summary = ", ".join(f"{name} {value:.2%}" for name, value in best["accuracy"].items())
        cells = len({row[:2] for row in self.rows})
        return (
            f"{self.formula}: {counted(cells, 'cell')} × {counted(len(self.data), 'data set')} in {self.seconds:.1f} s; "
            f"balanced at α = {best['alpha']:g}, β = {best['beta']:g}: {summary}"
        )

    def plot(self, axes: Any = None, data: str | None = None) -> Any:
        """Accuracy over α and β on a data set (the worst of them without a name), drawn with matplotlib; the axes are returned.

        The balanced point is marked. Without a second network, a curve over α for each data set.
        """
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(5, 4)).subplots()
        axes.set(title=self.formula, xlabel="α")
        if len(self.beta) == 1:
            for name in self.data if data is None else [data]:
                axes.plot(self.alpha, 100 * self.grid(name)[0], label=name)
            axes.set_ylabel("accuracy (%)")
            axes.legend()
            return axes
        drawn = axes.pcolormesh(self.alpha, self.beta, 100 * self.grid(data), shading="nearest")
        axes.figure.colorbar(drawn, ax=axes, label="accuracy (%)" if data else "accuracy on the worst data set (%)")
        best = self.balanced()
        axes.plot([best["alpha"]], [best["beta"]], "o", mfc="none", color="white")
        axes.set_ylabel("β")
        return axes

    def _repr_html_(self) -> str:
        return rows_table(COLUMNS, [(f"{a:g}", f"{b:g}", name, f"{v:.4f}") for a, b, name, v in self.rows])
