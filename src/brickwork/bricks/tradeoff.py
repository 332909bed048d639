"""What several budgets give: accuracy against size and time, in one table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.atomic import write_folder
from brickwork.bricks.brick import Brick
from brickwork.bricks.options import CompressOptions
from brickwork.devices import device_of
from brickwork.html_table import rows_table
from brickwork.latency import latency
from brickwork.words import counted, table

FILE, TABLE, FORMAT = "tradeoff.json", "tradeoff.csv", "brickwork.tradeoff/1"
HEAD = ("budget", "parameters", "macs", "accuracy", "ms", "images")


def timed(models: Sequence[nn.Module], example: Tensor) -> tuple[tuple[float, ...], str]:
    """Milliseconds for each image of a forward pass of these, and where they were measured; each model where it is."""
    times = [round(1000 * latency(model, example.to(device_of(model))) / len(example), 4) for model in models]
    at_once = f", {counted(len(example), 'image')} at once" if len(example) > 1 else ""
    return tuple(times), f"{device_of(models[0])}, {counted(torch.get_num_threads(), 'thread')}{at_once}"


def cells_of(rows: Sequence[Mapping[str, Any]], judged_by: str) -> tuple[list[str], list[list[str]]]:
    """The rows of a table of budgets for people, under their head."""
    cells = []
    for row in rows:
        budget = "whole" if row["budget"] is None else f"{row['budget']:g}"
        accuracy = "–" if row["accuracy"] is None else f"{row['accuracy']:.2%}"
        cells.append([budget, f"{row['parameters']:.1%}", f"{row['macs']:.1%}", accuracy, f"{row['ms']:.3f}"])
    return ["budget", "parameters", "multiply-adds", judged_by, "ms per image"], cells


@dataclass(frozen=True)
class Tradeoff:
    """A brick for each budget, and how they compare with the whole network."""

    bricks: dict[float, Brick] = field(repr=False)
    options: CompressOptions
    accuracy: float | None  # of the whole, on the images that judge
    ms: tuple[float, ...]  # of the whole, then of each brick
    measured_on: str

    @property
    def judged_by(self) -> str:
        """What `accuracy` is, as of a Brick: of the labels, or on images without labels agreement with the whole network."""
        return next(iter(self.bricks.values())).judged_by

    def table(self) -> list[dict[str, Any]]:
        """A row for the whole network (budget None), then for each budget: shares that stay, accuracy, milliseconds."""
        first = next(iter(self.bricks.values()))
        images = first.used["judged"]["images"]
        whole = (None, 1.0, 1.0, self.accuracy, self.ms[0], images)
        rows = [(b, x.parameters, x.macs, x.accuracy_after) for b, x in self.bricks.items()]
        every = [whole, *((*row, ms, images) for row, ms in zip(rows, self.ms[1:], strict=True))]
        return [dict(zip(HEAD, row, strict=True)) for row in every]

    @property
    def provenance(self) -> dict[str, Any]:
        """The whole network by hash, the options, and where times were measured."""
        source = next(iter(self.bricks.values())).source
        options = self.options.to_dict()
        return {"command": "compress", "inputs": {"model": source}, "options": options, "latency": self.measured_on}

    def to_dict(self) -> dict[str, Any]:
        """JSON values only, without the networks."""
        return {"rows": self.table(), "judged_by": self.judged_by, **self.provenance}

    def save(
        self, folder: str | Path, *, force: bool = False, files: Mapping[str, str] | None = None, **provenance: Any
    ) -> Path:
        """A folder with tradeoff.json, tradeoff.csv and a model folder for each budget, named after it.

        files: texts of further files, by name. provenance: what else the models' records shall say.
        """
        with write_folder(folder, force=force, owns=(FILE,)) as draft:
            text = io.StringIO()
            writer = csv.DictWriter(text, HEAD, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.table())
            facts = json.dumps({"format": FORMAT, **self.to_dict()}, ensure_ascii=False, indent=1) + "\n"
            for name, content in {TABLE: text.getvalue(), FILE: facts, **(files or {})}.items():
                (draft / name).write_text(content, encoding="utf-8")
            for budget, brick in self.bricks.items():
                brick.save(draft / f"{budget:g}", **provenance)
        return Path(folder)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        return cells_of(self.table(), self.judged_by)

    def __str__(self) -> str:
        judged = counted(next(iter(self.bricks.values())).used["judged"]["images"], "image")
        return f"{table(*self._cells())}\n{self.judged_by} on {judged}; time on {self.measured_on}"

    def _repr_html_(self) -> str:
        return rows_table(*self._cells())

    def plot(self, axes: Any = None) -> Any:
        """Accuracy over the share of parameters and over milliseconds, drawn with matplotlib; the axes are returned."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(8, 3.5)).subplots(1, 2)
        rows = self.table()
        for panel, key, label in zip(
            axes, ("parameters", "ms"), ("share of the parameters", "ms per image"), strict=True
        ):
            panel.plot([row[key] for row in rows], [row["accuracy"] for row in rows], marker="o")
            panel.set(xlabel=label, ylabel=self.judged_by)
        return axes
