"""Builds, one at a time, beside the page that asked for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from brickwork.errors import BrickworkError

MOST = 20  # that may wait
Work = Callable[[Callable[[float, str], None]], dict[str, Any]]


@dataclass
class BuildJob:
    """How far a build is, its result, or what went wrong."""

    job: int
    share: float = 0.0
    words: str = "waiting"
    result: dict[str, Any] | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        state = "failed" if self.error else "done" if self.result else "running"
        return {**asdict(self), "state": state, "share": round(self.share, 3)}


@dataclass
class Jobs:
    """The builds of one studio."""

    _all: dict[int, BuildJob] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "studio"))

    def start(self, work: Work) -> BuildJob | None:
        """Put a build in line; None where too many wait."""
        with self._lock:
            if sum(j.result is None and j.error is None for j in self._all.values()) >= MOST:
                return None
            job = self._all[len(self._all)] = BuildJob(len(self._all))
        self._worker.submit(self._run, job, work)
        return job

    def get(self, number: int) -> BuildJob | None:
        return self._all.get(number)

    def _run(self, job: BuildJob, work: Work) -> None:
        def say(share: float, words: str) -> None:
            job.share, job.words = share, words

        try:
            result = work(say)
            job.share, job.words, job.result = 1.0, "done", result
        except BrickworkError as error:
            job.error = str(error)
        except Exception as error:  # a page must be told of a fault as well, or it would wait for ever
            job.error = f"{type(error).__name__}: {error}"
