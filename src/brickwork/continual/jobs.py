"""A run as jobs of an engine, a method each. Their journals lie in the folder of the run, where `run` finds them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from brickwork import engine as engines
from brickwork.continual.options import ContinualOptions, SplitOptions
from brickwork.continual.running import run
from brickwork.continual.scenario import Scenario, sequence, split_classes
from brickwork.engine.options import EngineOptions
from brickwork.errors import JobFailed, RequestError
from brickwork.pools import PoolFolder
from brickwork.training.starts import find_start


def open_tasks(
    data: Sequence[Any],
    start: str,
    arg: Mapping[str, Any],
    size: int | None,
    split: SplitOptions,
    seed: int,
    arch: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
) -> tuple[Scenario, nn.Module]:
    """The tasks, and the network that every method starts from, by their names.

    names: what the sets are called, where `data` are the paths by which another process finds them.
    """
    begun = find_start(start, dict(arg), size)
    begun.check_arch(arch)
    if begun.segments:
        raise RequestError(f"{start} is a segmenter; tasks here are of classes.")
    sets = [begun.images(spec, seed) for spec in data]
    sets = sets if names is None else [replace(one, name=name) for one, name in zip(sets, names, strict=True)]
    if len(sets) > 1:
        scenario = sequence(sets)
    else:
        how: dict[str, Any] = {"tasks": split.tasks, "per": split.classes_per_task, "seed": split.class_seed}
        scenario = split_classes(sets[0], groups=split.groups, **how)
    scenario = scenario if split.holdout is None else scenario.held_out(split.holdout)
    return scenario, begun.network(None if begun.folder else len(scenario.tasks[0].classes), seed, arch=arch)


def run_methods(
    methods: Sequence[str], engine: EngineOptions, request: Mapping[str, Any], *, progress: bool = True
) -> None:
    """Each method in a process of its own, or on a cluster whose machines share the folder of the run.

    request: the other arguments of `run_one`.
    """
    jobs = [engines.Job(run_one, {"method": method, **request}, name=method) for method in methods]
    failed = [result for result in engines.run(jobs, progress=progress, options=engine) if not result.ok]
    if failed:
        names = ", ".join(result.job.name for result in failed)
        raise JobFailed(f"{names} did not finish ({failed[0].error}); the same command goes on from what is there.")


def run_one(
    method: str,
    data: list[str],
    start: str,
    arg: dict[str, Any],
    size: int | None,
    split: dict[str, Any],
    options: dict[str, Any],
    pool: str | None,
    out: str,
    device: str,
    arch: list[str] | None = None,
    names: list[str] | None = None,
) -> dict[str, Any]:
    """One method of a run, by JSON values alone; its files and journal are in `out`."""
    settings = ContinualOptions.from_dict(options)
    scenario, network = open_tasks(data, start, arg, size, SplitOptions.from_dict(split), settings.seed, arch, names)
    given = None if pool is None else PoolFolder.open(Path(pool), arch=arch).pool
    run(scenario, [method], network, out=out, pool=given, device=device, progress=False, options=settings)
    return {"method": method}
