"""Builds and other long work, one at a time, beside the page that asked for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from brickwork.errors import BrickworkError, RequestError

MOST, KEPT = 20, 200  # that may wait; that are remembered
Say = Callable[[float, str], None]
Work = Callable[[Say], dict[str, Any]]


class Cancelled(Exception):
    """Raised by `say` where whoever asked for the work wants it no more."""


@dataclass
class Job:
    """What was asked, how far it is, its result, or what went wrong."""

    job: int
    kind: str  # build, merge, map, add, forget, export
    title: str
    share: float = 0.0
    words: str = "waiting"
    result: dict[str, Any] | None = None
    error: str | None = None
    cancelled: bool = False
    began: float = field(default_factory=time.time)
    seconds: float | None = None
    over: bool = False

    @property
    def state(self) -> str:
        if not self.over:
            return "running"
        return "done" if self.result is not None else "failed" if self.error else "cancelled"

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        return {**self.summary(), "result": self.result}

    def summary(self) -> dict[str, Any]:
        """Everything but the result, which may be long."""
        names = ("job", "kind", "title", "words", "error", "cancelled", "began", "seconds")
        made = (self.result or {}).get("folder") or (self.result or {}).get("file")
        facts = {"state": self.state, "share": round(self.share, 3), "made": made}
        return {name: getattr(self, name) for name in names} | facts


@dataclass
class Jobs:
    """The work of one studio, the oldest of many forgotten."""

    _all: dict[int, Job] = field(default_factory=dict)
    _next: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "studio"))

    def start(self, kind: str, title: str, work: Work) -> Job | None:
        """Put work in line; None where too much waits."""
        with self._lock:
            if sum(not j.over for j in self._all.values()) >= MOST:
                return None
            job = self._all[self._next] = Job(self._next, kind, title)
            self._next += 1
            for number in [n for n, j in self._all.items() if j.over][: max(0, len(self._all) - KEPT)]:
                del self._all[number]
        self._worker.submit(self._run, job, work)
        return job

    def get(self, number: int) -> Job | None:
        return self._all.get(number)

    def cancel(self, job: Job) -> None:
        """Have a job end before its next step; what it has not saved yet is not saved."""
        if job.over:
            raise RequestError(f"{job.title} is {job.state} already; there is nothing to cancel.")
        job.cancelled = True

    def close(self) -> None:
        """Cancel everything, as when the studio ends."""
        for job in list(self._all.values()):
            job.cancelled = job.cancelled or not job.over

    def busy(self) -> bool:
        """Whether work runs or waits."""
        return any(not job.over for job in list(self._all.values()))

    def summaries(self) -> list[dict[str, Any]]:
        """All that are remembered, the newest first."""
        with self._lock:
            return [job.summary() for job in reversed(self._all.values())]

    def _run(self, job: Job, work: Work) -> None:
        def say(share: float, words: str) -> None:
            if job.cancelled:
                raise Cancelled
            job.share, job.words = share, words

        began = time.monotonic()
        try:
            say(0.0, "begun")
            job.result = work(say)
            job.share, job.words = 1.0, "done"
        except Cancelled:
            job.words = "cancelled"
        except BrickworkError as error:
            job.error = str(error)
        except Exception as error:  # a page must be told of a fault as well, or it would wait for ever
            job.error = f"{type(error).__name__}: {error}"
        job.seconds, job.over = round(time.monotonic() - began, 2), True
