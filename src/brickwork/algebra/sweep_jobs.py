"""A sweep of model folders on any engine: every β is a job that loads the folders itself, on whatever machine it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brickwork import data as images_of
from brickwork import engine as engines
from brickwork import store
from brickwork.algebra.sweep_result import SweepResult
from brickwork.algebra.sweeping import sweep
from brickwork.devices import pick
from brickwork.errors import JobFailed
from brickwork.origin import origin_of


def sweep_folders(
    folders: Mapping[str, str | Path],
    data: Sequence[str],
    *,
    alpha: Sequence[float],
    beta: Sequence[float] = (0.0,),
    engine: str = "processes",
    kept: str | Path | None = None,
    device: str = "auto",
    progress: bool = True,
    **options: Any,
) -> SweepResult:
    """`sweep` of the folders "A", "B" and "base" on data sets by name, a row of the grid a job.

    engine: inline, processes[:N] or ray[:ADDRESS]; workers must see the folders under the same paths. kept: a folder
    of results; what is in it is not computed again, unless weights or request changed. The options are those of `sweep`.
    """
    began = time.perf_counter()
    paths = {name: str(Path(folder).resolve()) for name, folder in folders.items()}
    weights = {name: store.read_config(path).weights.state_hash for name, path in paths.items()}
    jobs = [
        engines.Job(
            row,
            {
                "folders": paths,
                "weights": weights,
                "data": list(data),
                "alpha": [float(a) for a in alpha],
                "beta": float(b),
                "device": device,
                "options": options,
            },
            name=f"β = {b:g}",
        )
        for b in beta
    ]
    found = engines.run(jobs, engine=engine, store=kept, progress=progress)
    for result in found:
        if not result.ok:
            raise JobFailed(f"the row {result.job.name} failed: {(result.error or '').strip().splitlines()[-1]}")
    rows = tuple((a, b, str(name), v) for result in found for a, b, name, v in result.value["rows"])
    return SweepResult(rows, found[0].value["formula"], round(time.perf_counter() - began, 3))


def row(
    folders: dict[str, str],
    weights: dict[str, str],
    data: list[str],
    alpha: list[float],
    beta: float,
    device: str,
    options: dict[str, Any],
) -> dict[str, Any]:
    """One β of a sweep. `weights` are hashes: they are what makes a kept result this one's."""
    del weights
    where = pick(device)
    models = {name: store.load(folder, device=where) for name, folder in folders.items()}
    prepared = origin_of(models["A"]).preprocessing
    sets = {spec: images_of.load_for(prepared, spec, progress=False) for spec in data}
    found = sweep(
        models["A"],
        models.get("B"),
        base=models.get("base"),
        data=sets,
        alpha=alpha,
        beta=[beta],
        progress=False,
        **options,
    )
    return {"rows": [list(r) for r in found.rows], "formula": found.formula}
