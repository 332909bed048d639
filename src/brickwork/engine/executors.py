"""Where jobs run: here, in processes, on Ray. Each executor yields (index, outcome) as jobs finish."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from brickwork.engine.jobs import Job, Outcome, execute
from brickwork.engine.options import EngineOptions
from brickwork.errors import MissingExtra, RequestError

Finished = Iterator[tuple[int, Outcome]]
Executor = Callable[[Sequence[Job]], Finished]


def find_executor(options: EngineOptions) -> Executor:
    """What runs jobs where the options say."""
    kind, _, rest = options.engine.partition(":")
    if kind == "inline":
        return inline
    if kind == "processes":
        return lambda jobs: processes(jobs, int(rest) if rest else _cores())
    return lambda jobs: on_ray(jobs, rest or None, options.gpu_share)


def inline(jobs: Sequence[Job]) -> Finished:
    """One after the other, in this process."""
    for index, job in enumerate(jobs):
        yield index, execute(job.path, job.kwargs)


def processes(jobs: Sequence[Job], count: int) -> Finished:
    """In `count` fresh processes of one thread each. One that dies takes its own job with it, no other."""
    unfinished = dict(enumerate(jobs))
    try:
        for index, outcome in _pool(unfinished, min(count, len(jobs))):
            del unfinished[index]
            yield index, outcome
    except BrokenProcessPool:
        # Nobody says which job killed its process: run the rest one at a time to find out.
        for index, job in unfinished.items():
            try:
                yield from _pool({index: job}, 1)
            except BrokenProcessPool:
                yield index, Outcome(error=f"the process of {job.path} died (killed, or out of memory).")


def _pool(jobs: dict[int, Job], count: int) -> Finished:
    others = set(multiprocessing.active_children())
    # spawn: a fork of a process that runs torch threads may hang
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_prepare_process)
    try:
        futures = {pool.submit(execute, job.path, job.kwargs): index for index, job in jobs.items()}
        pending = set(futures)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda f: futures[f]):
                yield futures[future], future.result()
    except BaseException:  # Ctrl-C, a closed generator, a broken pool: leave no process behind
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _prepare_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the first one decides
    os.environ["OMP_NUM_THREADS"] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def on_ray(jobs: Sequence[Job], address: str | None, gpu_share: float = 0.0) -> Finished:
    """On a Ray cluster, or on one started for this call on this machine.

    A job whose worker or node is lost runs again elsewhere, twice at most. gpu_share: without one, Ray hides GPUs from jobs.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "jobs on Ray") from None
    with contextlib.redirect_stdout(sys.stderr):  # Ray tells of nodes that died, and stdout is for results
        yield from _on_ray(ray, jobs, address, gpu_share)


def _on_ray(ray: Any, jobs: Sequence[Job], address: str | None, gpu_share: float) -> Finished:
    started = not ray.is_initialized()
    if started:
        _refuse_dead(address)
        local: dict[str, Any] = {} if address else {"include_dashboard": False, "num_cpus": _cores()}
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
        except (ValueError, ConnectionError) as error:
            raise _no_ray(address, str(error).strip().splitlines()[0].rstrip(".")) from error
    try:
        if gpu_share and not ray.cluster_resources().get("GPU"):
            raise RequestError(f"`gpu_share` is {gpu_share:g}, and this Ray has no GPU; leave it out.")
        remote = ray.remote(num_cpus=1, num_gpus=gpu_share, max_retries=0)(_execute_with_path)
        path = [] if address else list(sys.path)
        running = {remote.remote(job.path, job.kwargs, path): index for index, job in enumerate(jobs)}
        lost = [0] * len(jobs)
        while running:
            done, _ = ray.wait(list(running), num_returns=1)
            index = running.pop(done[0])
            job = jobs[index]
            try:
                yield index, ray.get(done[0])
            except ray.exceptions.RayError as error:
                lost[index] += 1
                if lost[index] <= AGAIN:
                    running[remote.remote(job.path, job.kwargs, path)] = index
                else:
                    words = " ".join(str(error).split())
                    yield index, Outcome(error=f"Ray lost {job.path} {lost[index]} times: {words}")
    finally:
        if started:
            ray.shutdown()


AGAIN = 2  # times that a job is run again whose worker was lost
PATIENCE = 10.0  # seconds that a Ray may take to say that it is there; ray.init alone waits for minutes


def _refuse_dead(address: str | None) -> None:
    """Refuse an address at which nobody answers, or somebody else than Ray."""
    match = re.fullmatch(r"(ray://)?(?P<host>[^:/]+):(?P<port>\d+)", address or "")
    if match is None:
        return
    try:
        with socket.create_connection((match["host"], int(match["port"])), PATIENCE) as line:
            line.sendall(_HELLO)
            answer = line.recv(9)
    except (OSError, OverflowError) as error:
        raise _no_ray(address, str(error)) from error
    if answer[3:4] != b"\4":
        raise _no_ray(address, "what listens there does not answer as Ray does")


#: how HTTP/2, which Ray speaks, is begun; who speaks it answers with settings (a frame of type 4)
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def _no_ray(address: str | None, why: str) -> RequestError:
    return RequestError(
        f"there is no Ray at {address!r} ({why}); give HOST:PORT, auto for one that runs here, or leave it out."
    )


def _execute_with_path(path: str, kwargs: dict[str, Any], search: list[str]) -> Outcome:
    """Ray's workers do not inherit where this process finds its modules."""
    sys.path.extend(entry for entry in search if entry not in sys.path)
    return execute(path, kwargs)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
