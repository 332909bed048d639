"""A sweep of model folders on any engine: every β is a job that loads the folders itself, on whatever machine it runs."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brickwork import data as images_of
from brickwork import engine as engines
from brickwork import store, zoo
from brickwork.algebra.options import SweepOptions
from brickwork.algebra.sweep_result import SweepResult
from brickwork.algebra.sweeping import refuse_missing, sweep
from brickwork.atomic import file_hash
from brickwork.devices import pick
from brickwork.engine.options import EngineOptions
from brickwork.errors import RequestError
from brickwork.options import takes
from brickwork.origin import origin_of
from brickwork.zoo.external import factory_of


@takes(SweepOptions, running=EngineOptions)
def sweep_folders(
    folders: Mapping[str, str | Path],
    data: Sequence[str],
    *,
    arch: str | Sequence[str] | None = None,
    device: str = "auto",
    progress: bool = True,
    options: SweepOptions,
    running: EngineOptions,
) -> SweepResult:
    """`sweep` of the folders "A", "B" and "base" on data sets by name, a job per row of the grid.

    Workers must see the folders under the same paths. arch: for folders of an architecture of your own what builds it,
    "package.module:factory", which workers import, too. journal: a folder of results; what is in it is not computed again,
    unless weights, request or the module that `arch` names changed.
    """
    began = time.perf_counter()
    paths = {name: str(Path(folder).resolve()) for name, folder in folders.items()}
    weights = {name: store.read_config(path).weights.state_hash for name, path in paths.items()}
    beta = options.beta if options.beta is not None else options.alpha if "B" in paths else (0.0,)
    if "B" not in paths and any(beta):
        raise RequestError("`beta` belongs to the second network, and there is none.")
    shared = {n: v for n, v in options.to_dict().items() if n not in ("alpha", "beta", "journal")}
    own = {} if arch is None else {"arch": _files_of([arch] if isinstance(arch, str) else arch)}
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
                **own,
            },
            name=f"β = {b:g}",
        )
        for b in beta
    ]
    results = engines.run(jobs, store=options.journal, progress=progress, options=running)
    refuse_missing("row", {r.job.name: r.cause for r in results if not r.ok}, len(results), options.journal)
    rows = tuple((a, b, str(name), v) for result in results for a, b, name, v in result.value["rows"])
    return SweepResult(rows, results[0].value["formula"], round(time.perf_counter() - began, 3), options, weights)


def _files_of(arch: Sequence[Any]) -> dict[str, str]:
    """Of every architecture that other processes are to build, the hash of the module that it names."""
    result = {}
    for name in arch:
        if not isinstance(name, str):
            raise RequestError(f"`arch` is {name!r}; other processes import it by name, as package.module:factory.")
        file = getattr(sys.modules[factory_of(name).__module__], "__file__", None) if zoo.needs_import(name) else None
        result[name] = file_hash(Path(file)) if file else ""
    return result


def row(
    folders: dict[str, str],
    weights: dict[str, str],
    data: list[str],
    alpha: list[float],
    beta: float,
    device: str,
    options: dict[str, Any],
    arch: dict[str, str] | None = None,
) -> dict[str, Any]:
    """One β of a sweep. `weights`, and what `arch` says, are hashes: they are what makes a kept result this one's."""
    del weights
    chosen = SweepOptions(alpha=tuple(alpha), beta=(beta,), **options)
    own = list(arch) if arch else None
    result = sweep_here(folders, data, arch=own, device=pick(device), progress=False, options=chosen)
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
