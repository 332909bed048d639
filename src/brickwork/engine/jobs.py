"""A job: a function by name and its arguments; a result: JSON values and arrays, kept by the job's hash."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import time
import traceback
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from brickwork.atomic import write_file
from brickwork.errors import RequestError

MISSING = "missing.json"  # the jobs of a journal that have no result
ARRAY = "$array"  # stands in the JSON where an array was


@dataclass(frozen=True)
class Job:
    """A call to make: an importable function (or 'module:name') with JSON arguments.

    Change `version` when the function starts to give other results: earlier ones are then not used again.

    >>> job = Job("math:dist", {"p": [0, 0], "q": [3, 4]})
    >>> job.function, len(job.key)
    ('math:dist', 64)
    """

    function: str | Callable[..., Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    version: str = "1"

    def __post_init__(self) -> None:
        if not isinstance(self.function, str):
            module, name = self.function.__module__, self.function.__qualname__
            object.__setattr__(self, "function", f"{module}:{name}")
        if "<" in self.path or self.path.count(":") != 1:
            raise RequestError(
                f"{self.path!r} cannot be called from another process; a job needs a function at the top of "
                "a module, or 'module:name'."
            )
        try:
            same = json.loads(json.dumps(self.kwargs)) == self.kwargs
        except (TypeError, ValueError):
            same = False
        if not same:
            raise RequestError(f"arguments of {self.path} are {self.kwargs!r}; they must be JSON values.")

    @property
    def path(self) -> str:
        """The function as 'module:name'."""
        return str(self.function)

    @property
    def key(self) -> str:
        """A hash of everything that the result depends on."""
        facts = {"function": self.path, "kwargs": self.kwargs, "version": self.version}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class JobResult:
    """What became of a job: its value, or the error with its traceback."""

    job: Job
    value: Any = None
    error: str | None = None
    seconds: float = 0.0
    stored: bool = False  # found in the store, not computed this time

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def cause(self) -> str:
        """The last line of the error: what was wrong, without where."""
        return ((self.error or "").strip().splitlines() or [""])[-1]


@dataclass(frozen=True)
class Outcome:
    """What comes back from where a job ran: text and arrays, whatever the function returned."""

    text: str = "null"
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    error: str | None = None
    seconds: float = 0.0

    @property
    def value(self) -> Any:
        return json.loads(self.text, object_hook=lambda entry: _decoded(entry, self.arrays))


def execute(path: str, kwargs: dict[str, Any]) -> Outcome:
    """Call a function by name; an exception becomes the outcome's error."""
    began = time.perf_counter()
    try:
        module, name = path.split(":")
        function: Any = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
        arrays: dict[str, np.ndarray] = {}
        text = json.dumps(_encoded(function(**kwargs), arrays))
        return Outcome(text, arrays, None, time.perf_counter() - began)
    except Exception:  # whatever the job raises is its result; Ctrl-C and exit still go through
        return Outcome(error=traceback.format_exc(), seconds=time.perf_counter() - began)


class ResultStore:
    """A folder with KEY.json, and KEY.npz where arrays were returned. Nothing is pickled."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def get(self, job: Job) -> Outcome | None:
        """The stored outcome; None where there is none, or a damaged one, which is then computed again."""
        with contextlib.suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            entry = json.loads((self.folder / f"{job.key}.json").read_text(encoding="utf-8"))
            arrays: dict[str, np.ndarray] = {}
            if entry["arrays"]:
                with np.load(self.folder / f"{job.key}.npz", allow_pickle=False) as file:
                    arrays = {name: file[name] for name in entry["arrays"]}
            return Outcome(json.dumps(entry["value"]), arrays, None, entry["seconds"])
        return None

    def put(self, job: Job, outcome: Outcome) -> None:
        # The JSON last: a result is there when its JSON is.
        if outcome.arrays:
            with write_file(self.folder / f"{job.key}.npz") as draft, open(draft, "wb") as file:
                np.savez(file, **outcome.arrays)  # type: ignore[arg-type]
        entry = {
            "name": job.name,
            "function": job.path,
            "kwargs": job.kwargs,
            "version": job.version,
            "seconds": outcome.seconds,
            "arrays": list(outcome.arrays),
            "value": json.loads(outcome.text),
        }
        with write_file(self.folder / f"{job.key}.json") as draft:
            draft.write_text(json.dumps(entry, indent=1) + "\n", encoding="utf-8")

    def note_missing(self, failed: Sequence[JobResult]) -> None:
        """Which jobs of the last run have no result, and why; nothing where all have one."""
        path = self.folder / MISSING
        if not failed:
            path.unlink(missing_ok=True)
            return
        rows = [
            {"name": r.job.name or r.job.path, "key": r.job.key, "cause": r.cause, "error": (r.error or "").strip()}
            for r in failed
        ]
        with write_file(path) as draft:
            draft.write_text(json.dumps({"missing": rows}, indent=1) + "\n", encoding="utf-8")


def _encoded(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # a tensor, without importing torch for it
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        arrays[str(len(arrays))] = value
        return {ARRAY: str(len(arrays) - 1)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: _encoded(part, arrays) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(part, arrays) for part in value]
    return value


def _decoded(entry: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    return arrays[entry[ARRAY]] if entry.keys() == {ARRAY} else entry
