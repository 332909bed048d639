"""Many studies side by side on one machine, from a list; a run that was stopped goes on where it was.

    python -m brickwork_lab.batch studies/queue.txt --folder runs --workers 6 --minutes 25 --device cuda

A line of the list is `NAME: STUDY OPTIONS`, or `NAME after OTHER, …: STUDY OPTIONS` where others have to be done first (they
leave networks that it finds). Rows come to runs/rows/NAME.json as they are measured; `python -m brickwork_lab.gather` takes
them from there. A job that was stopped begins anew, and its rows stay, as NAME.1.json. The list is read again whenever a
worker is free, so that it can be changed while it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from brickwork.errors import BadFile, RequestError


@dataclass(frozen=True)
class Line:
    """One study with its options, and what has to be done before it."""

    name: str
    words: tuple[str, ...]
    after: tuple[str, ...] = ()


def read_lines(text: str) -> list[Line]:
    """The jobs of a list; lines that begin with # say something to people.

    >>> read_lines("# first\\na: prune --arch lenet\\nb after a: prune --pick 'two words'")[1]
    Line(name='b', words=('prune', '--pick', 'two words'), after=('a',))
    """
    found: list[Line] = []
    for number, typed in enumerate(text.splitlines(), 1):
        if not typed.strip() or typed.lstrip().startswith("#"):
            continue
        head, colon, rest = typed.partition(":")
        name, _, others = head.partition(" after ")
        words = tuple(shlex.split(rest))
        if not colon or not words or not name.strip() or "/" in name:
            raise BadFile(
                f"line {number} is {typed.strip()!r}; it must be `NAME: STUDY OPTIONS` or `NAME after OTHER: …`."
            )
        found.append(Line(name.strip(), words, tuple(other.strip() for other in others.split(",") if other.strip())))
    names = [line.name for line in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadFile(f"the name {twice!r} stands twice in the list; give each job one of its own.")
    for line in found:
        for other in line.after:
            if other not in names:
                raise BadFile(f"{line.name} is to run after {other!r}, which is not in the list.")
    return found


@dataclass
class Batch:
    """The jobs of a list, run by so many workers until a moment."""

    file: Path
    folder: Path
    device: str = "auto"
    until: float = float("inf")
    full: bool = True
    patience: float = 10.0  # seconds that a job has to stop before it is asked again
    _read: list[Line] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)
    _running: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, workers: int) -> list[str]:
        """The names of the jobs that are done."""
        for part in ("rows", "log"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        self._read = read_lines(self.file.read_text(encoding="utf-8"))  # faults are known before anything starts
        threads = [threading.Thread(target=self._work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [line.name for line in self.lines() if self.done(line.name)]

    def rows(self, name: str) -> Path:
        return self.folder / "rows" / f"{name}.json"

    def done(self, name: str) -> bool:
        try:
            found = json.loads(self.rows(name).read_text(encoding="utf-8"))
            return bool(found["complete"] and found["full"] == self.full)
        except (OSError, ValueError, KeyError):
            return False

    def lines(self) -> list[Line]:
        """The list as it is now; as it was, while somebody is in the middle of writing it."""
        with contextlib.suppress(OSError, BadFile):
            self._read = read_lines(self.file.read_text(encoding="utf-8")) or self._read
        return self._read

    def _keep(self, name: str) -> None:
        """Rows of a run that was stopped lie beside those of the next one."""
        number = 1
        while (kept := self.rows(f"{name}.{number}")).exists():
            number += 1
        if self.rows(name).exists():
            self.rows(name).rename(kept)

    def command(self, line: Line) -> list[str]:
        size = ["--full"] if self.full else ["--smoke"]
        where = ["--device", self.device, "--networks", str(self.folder / "networks")]
        out = ["--out", str(self.rows(line.name)), "--force"]
        return [sys.executable, "-m", "brickwork", "study", *line.words, *size, *where, *out]

    def _next(self) -> Line | None:
        """The first job whose turn it is; None: all are taken."""
        while time.monotonic() < self.until:
            with self._lock:
                left = [line for line in self.lines() if line.name not in self._taken and not self.done(line.name)]
                for line in left:
                    if all(self.done(other) for other in line.after):
                        self._taken.add(line.name)
                        self._running.add(line.name)
                        return line
                if not any(set(line.after) & self._running for line in left):
                    return None  # what they wait for did not end well, or there are none
            time.sleep(0.2)
        return None

    def _work(self) -> None:
        while (line := self._next()) is not None:
            began = time.monotonic()
            self._keep(line.name)
            with (self.folder / "log" / f"{line.name}.txt").open("wb") as log:
                process = subprocess.Popen(self.command(line), stdout=log, stderr=subprocess.STDOUT)
                try:
                    code = process.wait(None if self.until == float("inf") else max(0.1, self.until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    code = self._stop(process)
            with self._lock:
                self._running.remove(line.name)
            print(f"{line.name}: exit {code} after {time.monotonic() - began:.0f} s", flush=True)

    def _stop(self, process: subprocess.Popen[bytes]) -> int:
        """Rows that are there stay. An interrupt can be lost, within an import say, so one is not enough."""
        for how in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            process.send_signal(how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(self.patience)
        process.kill()
        return process.wait()


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="where networks, rows and logs lie")
    parser.add_argument("--workers", type=int, default=6, help="jobs at once")
    parser.add_argument("--minutes", type=float, default=None, help="after so many what still runs is stopped")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--smoke", action="store_true", help="every job in seconds, on embedded data")
    asked = parser.parse_args(words)
    try:
        if asked.workers < 1:
            raise RequestError(f"workers is {asked.workers}; it must be 1 or more.")
        if not asked.list.is_file():
            raise BadFile(f"{asked.list} is not there; name the list of jobs.")
        until = float("inf") if asked.minutes is None else time.monotonic() + 60 * asked.minutes
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # jobs that share cores with two threads each are slower by far
        batch = Batch(asked.list, asked.folder, asked.device, until, full=not asked.smoke)
        done = batch.run(asked.workers)
    except (BadFile, RequestError) as error:
        parser.exit(2, f"{error}\n")
    print(f"{len(done)} of {len(batch.lines())} jobs are done; rows in {asked.folder / 'rows'}")


if __name__ == "__main__":
    main()
