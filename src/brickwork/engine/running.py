"""A list of independent jobs, run here, in processes, or on Ray, and never run twice."""

from __future__ import annotations

import os
from collections.abc import Sequence

from brickwork.engine.executors import find_executor
from brickwork.engine.jobs import Job, JobResult, ResultStore
from brickwork.engine.options import EngineOptions
from brickwork.options import takes
from brickwork.progress import bar


@takes(EngineOptions)
def run(
    jobs: Sequence[Job], *, store: str | os.PathLike[str] | None = None, progress: bool = True, options: EngineOptions
) -> list[JobResult]:
    """Run jobs and return their results in the same order. A failed job is reported; the others go on.

    `engine` is inline, processes[:N] or ray[:ADDRESS]; there `gpu_share` 0.25 lets four jobs share a GPU, and without
    one jobs see none. With `store`, a folder, every result is kept as soon
    as it is there, so that a second run computes only what is missing; `missing.json` in it names the jobs
    that failed. Values come back as JSON has them (a tuple as a list), stored or not; numpy arrays and
    tensors come back as arrays.

    >>> first, second = run([Job("builtins:dict", {"a": 1}), Job("builtins:dict.pop")])
    >>> first.value, second.ok
    ({'a': 1}, False)
    """
    work = find_executor(options)
    kept = None if store is None else ResultStore(store)
    results: dict[str, JobResult] = {}
    missing: dict[str, Job] = {}
    for job in jobs:
        matches = kept.get(job) if kept is not None else None
        if matches is not None:
            results[job.key] = JobResult(job, matches.value, None, matches.seconds, stored=True)
        elif job.key not in missing:
            missing[job.key] = job
    waiting = list(missing.values())
    with bar("jobs", len(waiting) + len(results), show=progress) as advance:
        advance(len(results))
        # The jobs run elsewhere, but results are written here: a worker needs no shared disk.
        for index, outcome in work(waiting) if waiting else ():
            job = waiting[index]
            if outcome.error is None and kept is not None:
                kept.put(job, outcome)
            value = None if outcome.error else outcome.value
            results[job.key] = JobResult(job, value, outcome.error, outcome.seconds)
            failed = sum(not result.ok for result in results.values())
            advance(1, f"{failed} failed" if failed else job.name)
    if kept is not None:
        kept.note_missing([result for result in results.values() if not result.ok])
    return [results[job.key] for job in jobs]
