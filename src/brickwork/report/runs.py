"""What a report can be made of: files and folders that other verbs wrote, recognised by what is in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brickwork.errors import BadData, RequestError
from brickwork.report.book import Book
from brickwork.report.drawing import Drawing
from brickwork.report.figure_file import KIND, from_json
from brickwork.report.matrix import draw_matrix, draw_times
from brickwork.report.parts import chapters
from brickwork.report.study_rows import draw_sizes, draw_study

if TYPE_CHECKING:
    from brickwork.store import folder

BUDGETS = "tradeoff.json"  # what compress with several budgets writes
FIGURES = "figures"  # the folder in which a run keeps its figures
READABLE = (
    "a figure (.json, written by routes, sweep, cancel, transplant show with --out x.json), the result of a study (.json), "
    "a folder of sweep, continual, demo or of compress with several budgets, a dependency map, or a pool"
)


def report(runs: Sequence[str | Path], *, title: str = "Brickwork report", arch: folder.Arch | None = None) -> Book:
    """A page of what these runs found; each must be something that a verb of brickwork wrote.

    arch: what builds the network of a pool, as in `brickwork.load`.
    """
    if not runs:
        raise RequestError(f"a report needs at least one run: {READABLE}.")
    return Book(title, chapters([figure for run in runs for figure in figures_of(Path(run), arch)]))


def figures_of(run: Path, arch: folder.Arch | None = None) -> list[Drawing]:
    """The figures of one run."""
    if run.is_file():
        return _of_file(run)
    if not run.is_dir():
        raise BadData(f"{run} is not there; a report is made of {READABLE}.")
    if (run / FIGURES).is_dir():
        figures = [figure for file in sorted((run / FIGURES).glob("*.json")) for figure in _of_file(file)]
        # a map is its own figure: it is read, not copied
        return figures + [_map(file.parent) for file in sorted(run.glob("*/map.json"))]
    if (run / "map.json").is_file():
        return [_map(run)]
    if (run / "pool.json").is_file():
        return _pool(run, arch)
    if (run / BUDGETS).is_file():
        return _of_file(run / BUDGETS)
    raise BadData(f"{run} holds nothing that can be shown; a report is made of {READABLE}.")


def save_figures(folder: Path, figures: Sequence[Drawing]) -> None:
    """Drawings into the folder of figures of a run, in their order."""
    (folder / FIGURES).mkdir(exist_ok=True)
    for number, figure in enumerate(figures):
        figure.save(folder / FIGURES / f"{number:02d}.json")


def _of_file(file: Path) -> list[Drawing]:
    try:
        text = file.read_text(encoding="utf-8")
        value = json.loads(text)
    except ValueError as error:
        raise BadData(f"{file} is no JSON ({error}); a report is made of {READABLE}.") from error
    if file.name == BUDGETS:
        from brickwork.report.tradeoff import read_tradeoff

        return [read_tradeoff(file)]
    if isinstance(value, dict) and value.get("kind") == KIND:
        return [from_json(text, str(file))]
    if isinstance(value, dict) and _is_study(value):
        return draw_result(value)
    raise BadData(f"{file} is neither a figure nor the result of a study; a report is made of {READABLE}.")


def draw_result(value: dict[str, Any]) -> list[Drawing]:
    """The figures of a study's result: what it costs, what each method does on each task, and its rows."""
    special = [draw(value) for draw in (draw_sizes, draw_matrix, draw_times)]
    return [*(figure for figure in special if figure is not None), draw_study(value)]


def _is_study(value: dict[str, Any]) -> bool:
    rows = value.get("rows")
    if not (isinstance(value.get("name"), str) and isinstance(rows, list) and rows):
        return False
    return all(isinstance(row, dict) and isinstance(row.get("what"), str) for row in rows)


def _map(run: Path) -> Drawing:
    from brickwork.dependencies import DependencyMap
    from brickwork.report.dependencies import map_figure

    return map_figure(DependencyMap.load(run), f"brickwork depend show {run}")


def _pool(run: Path, arch: folder.Arch | None) -> list[Drawing]:
    from brickwork.pools import PoolFolder
    from brickwork.report.pools import draw_pool

    opened = PoolFolder.open(run, arch=arch)
    tasks = {name: opened.task(name) for name in opened.tasks}
    sizes = {name: opened.bytes(name) for name in tasks}
    return draw_pool(opened.pool, tasks, sizes=sizes).drawings
