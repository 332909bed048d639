"""A sweep of model folders on any engine: every β is a job that loads the folders itself, on whatever machine it runs."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brickwork import data as images_of
from brickwork import engine as engines
from brickwork import store
from brickwork.algebra.options import SweepOptions
from brickwork.algebra.sweep_result import SweepResult
from brickwork.algebra.sweeping import refuse_missing, sweep
from brickwork.devices import pick
from brickwork.engine.options import EngineOptions
from brickwork.errors import RequestError
from brickwork.options import takes
from brickwork.origin import origin_of


@takes(SweepOptions, running=EngineOptions)
def sweep_folders(
    folders: Mapping[str, str | Path],
    data: Sequence[str],
    *,
    device: str = "auto",
    progress: bool = True,
    options: SweepOptions,
    running: EngineOptions,
) -> SweepResult:
    """`sweep` of the folders "A", "B" and "base" on data sets by name, a job per row of the grid.

    Workers must see the folders under the same paths. journal: a folder of results; what is in it is not computed again,
    unless weights or request changed.
    """
    began = time.perf_counter()
    paths = {name: str(Path(folder).resolve()) for name, folder in folders.items()}
    weights = {name: store.read_config(path).weights.state_hash for name, path in paths.items()}
    beta = options.beta if options.beta is not None else options.alpha if "B" in paths else (0.0,)
    if "B" not in paths and any(beta):
        raise RequestError("`beta` belongs to the second network, and there is none.")
    shared = {n: v for n, v in options.to_dict().items() if n not in ("alpha", "beta", "journal")}
    jobs = [
        engines.Job(
            row,
            {
                "folders": paths,
                "weights": weights,
                "data": list(data),
                "alpha": list(options.alpha),
                "beta": float(b),
                "device": device,
                "options": shared,
            },
            name=f"β = {b:g}",
        )
        for b in beta
    ]
    results = engines.run(jobs, store=options.journal, progress=progress, options=running)
    refuse_missing("row", {r.job.name: r.cause for r in results if not r.ok}, len(results), options.journal)
    rows = tuple((a, b, str(name), v) for result in results for a, b, name, v in result.value["rows"])
    return SweepResult(rows, results[0].value["formula"], round(time.perf_counter() - began, 3), options, weights)


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
    chosen = SweepOptions(alpha=tuple(alpha), beta=(beta,), **options)
    result = sweep_here(folders, data, device=pick(device), progress=False, options=chosen)
    return {"rows": [list(r) for r in result.rows], "formula": result.formula}


def sweep_here(
    folders: Mapping[str, str | Path],
    data: Sequence[Any],
    *,
    arch: Any = None,
    device: Any,
    progress: bool = True,
    options: SweepOptions,
) -> SweepResult:
    """`sweep` of the folders "A", "B" and "base" on data sets by name, in this process and all rows at once."""
    models = {name: store.load(folder, arch=arch, device=device) for name, folder in folders.items()}
    prepared = origin_of(models["A"]).preprocessing
    sets = {str(spec): images_of.load_for(prepared, spec, progress=progress) for spec in data}
    others = models.get("B"), models.get("base")
    return sweep(models["A"], others[0], base=others[1], data=sets, progress=progress, options=options)
