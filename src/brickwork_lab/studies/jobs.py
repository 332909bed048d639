"""A study on an engine: parts of it as jobs in processes or on a Ray cluster.

Jobs find and leave trained networks in the folder of networks, which machines of a cluster share, and their rows are kept there
by the hash of what was asked, so that the same command goes on from what is done.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from brickwork import engine as engines
from brickwork.errors import JobFailed, RequestError
from brickwork_lab import studies
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Parts, Row, Study

FOLDER = "jobs"  # of the folder of networks
NAMES = ("archs", "sets", "starts")  # a study that does not say how it is split is split by these


def run_on_engine(
    study: Study, lab: Lab, options: dict[str, Any], running: engines.EngineOptions, *, version: str
) -> Iterator[Row]:
    """The rows of a study in its own order, as far as their jobs went well; then the first failure is raised.

    version: of the code, such as its commit; rows of another one are computed again.
    """
    if study.trains and lab.networks is None:
        raise RequestError("`engine` needs `networks`, a folder that all jobs see: there they leave what they make.")
    folder = None if lab.networks is None else str(Path(lab.networks).resolve())
    where: dict[str, Any] = {"full": lab.full, "seed": lab.seed, "device": lab.device, "networks": folder}
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    parts = (study.split or by_names)(Lab(**where), **given)
    keep = None if folder is None else Path(folder) / FOLDER

    def run(jobs: Sequence[engines.Job]) -> list[engines.JobResult]:
        return engines.run(jobs, store=keep, progress=lab.progress, options=running)

    for wave in parts.first:
        _raise_first([result for result in run(wave) if not result.ok])
    jobs = [
        engines.Job(rows_of, {"study": study.name, "where": where, "options": asked}, _name(study, asked), version)
        for asked in parts.rows
    ]
    results, seen = run(jobs), set()
    for row in (row for result in results for row in result.value or ()):
        if row["what"] not in seen:  # what several parts are compared with is a row of each
            seen.add(row["what"])
            yield row
    _raise_first([result for result in results if not result.ok])


def rows_of(study: str, where: dict[str, Any], options: dict[str, Any]) -> list[Row]:
    """The rows of one part of a study, by JSON values alone."""
    asked: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in options.items()}
    return list(studies.get(study).run(progress=False, **where, **asked))


def by_names(lab: Lab, **options: Any) -> Parts:
    """A part per network, set and start that was asked for by name.

    >>> [part["archs"] for part in by_names(Lab(False), archs=["lenet", "vgg16"], seeds=2).rows]
    [['lenet'], ['vgg16']]
    """
    split = [name for name in NAMES if options.get(name)]
    every = itertools.product(*([[value] for value in options[name]] for name in split))
    return Parts([{**options, **dict(zip(split, one, strict=True))} for one in every])


def _name(study: Study, options: dict[str, Any]) -> str:
    named = [str(value[0]) for value in options.values() if isinstance(value, list) and len(value) == 1]
    return " ".join([study.name, *named])


def _raise_first(failed: Sequence[engines.JobResult]) -> None:
    if failed:
        names = ", ".join(result.job.name for result in failed)
        raise JobFailed(f"{names} did not finish ({failed[0].cause}); the same command goes on from what is there.")
