"""What a piece of work costs: CPU seconds, wall seconds and peak memory, in a fresh process or in this one.

A contender is a function that prepares (imports, builds, loads) and returns the work, a function without
arguments; only the work is measured. The work may return a dictionary of further numbers, or a function that finds
them once the clock has stopped.
Contenders take turns, so that a busy spell of the machine does not hit one of them alone; medians are kept.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from brickwork.errors import JobFailed

Facts = Mapping[str, float] | None
Work = Callable[[], Facts | Callable[[], Facts]]
Row = dict[str, Any]
#: a function that prepares, or its `module:name`; with arguments of its own, if it has any
Contender = str | Callable[..., Work] | tuple[Callable[..., Work], Mapping[str, Any]]


def measured(work: Work) -> dict[str, float]:
    """Run the work here: cpu_s, wall_s, peak_mb (of the process), grown_mb (above what it held before).

    >>> cost = measured(lambda: {"answer": 42.0})
    >>> sorted(cost)
    ['answer', 'cpu_s', 'grown_mb', 'peak_mb', 'wall_s']
    """
    gc.collect()
    _forget_peak()
    before = memory("VmRSS")
    cpu, wall = time.process_time(), time.perf_counter()
    extra = work()
    cost = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    peak = memory("VmHWM")
    extra = (extra() if callable(extra) else extra) or {}
    return {**cost, "peak_mb": peak, "grown_mb": max(0.0, peak - before), **extra}


def apart(contender: str, arguments: Mapping[str, Any]) -> dict[str, float]:
    """Measure `module:function(**arguments)` in a process of its own; arguments are JSON values."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    source = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    env["PYTHONPATH"] = os.pathsep.join([source, *filter(None, [env.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "brickwork_lab.benchmarks.measure", contender],
        input=json.dumps(dict(arguments)),
        capture_output=True,
        text=True,
        env=env,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise JobFailed(f"{contender} failed: {last}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def in_turn(
    contenders: Mapping[str, Contender],
    arguments: Mapping[str, Any],
    *,
    repeat: int,
    separate: bool = True,
    tell: Callable[..., None] = lambda done, who: None,
) -> list[Row]:
    """Measure contenders alternately, `repeat` times each: a row for each with the medians."""
    costs: dict[str, list[dict[str, float]]] = {who: [] for who in contenders}
    for turn in range(repeat):
        for who in list(contenders)[:: 1 if turn % 2 == 0 else -1]:
            contender, own = _named(contenders[who])
            given = {**arguments, **own}
            cost = apart(contender, given) if separate else measured(find_contender(contender)(**given))
            costs[who].append(cost)
            tell(1, who)
    return [{"who": who, **medians(runs), "runs": repeat} for who, runs in costs.items()]


def medians(runs: list[dict[str, float]], digits: int = 6) -> dict[str, float]:
    return {name: round(statistics.median(run[name] for run in runs), digits) for name in runs[0]}


def _named(contender: Contender) -> tuple[str, Mapping[str, Any]]:
    function, own = contender if isinstance(contender, tuple) else (contender, {})
    return (function if isinstance(function, str) else f"{function.__module__}:{function.__name__}"), own


def ratios(rows: list[Row], ours: str, columns: tuple[str, ...]) -> dict[str, float]:
    """Peer ÷ ours: above 1, ours needs less."""
    mine = next(row for row in rows if row["who"] == ours)
    return {
        f"{row['who']} / {ours}: {column}": round(row[column] / mine[column], 3)
        for row in rows
        if row["who"] != ours
        for column in columns
        if mine[column]
    }


def find_contender(contender: str) -> Callable[..., Work]:
    module, _, name = contender.partition(":")
    return getattr(importlib.import_module(module), name)


def _busy(rounds: int) -> Work:
    """A contender that only counts, to try the measuring itself."""
    return lambda: {"total": float(sum(range(rounds)))}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A peer's warnings and printing stay out of the table."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def memory(field: str, process: int | str = "self") -> float:
    """A field of a process's status in MB; where there is none, the peak that the system keeps of this one."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def _forget_peak() -> None:
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # Linux: the peak starts again from now


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # a contender may print
        result = measured(find_contender(sys.argv[1])(**json.load(sys.stdin)))
    print(json.dumps(result))
