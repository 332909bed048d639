"""A pool on disk: `pool.safetensors`, `pool.json`, `base.task`, what it grew by, and one file per task under `tasks/`.

There is no list of tasks beside the files, so that two processes can add at once and none is lost. A lock is held only
while a file is put in place or removed. No file is ever changed by a later task: a pool grows by files of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brickwork.atomic import check_file, recovered, write_file, write_folder
from brickwork.devices import DeviceLike
from brickwork.errors import BadFile, OutputExists, RequestError, UnknownName
from brickwork.html_table import rows_table
from brickwork.pools.growth import Growth, settle
from brickwork.pools.growth_file import growth_files, growth_path, write_growth
from brickwork.pools.options import CodebookOptions
from brickwork.pools.pool import KernelPool
from brickwork.pools.pool_file import BOOKS, POOL, read_pool, with_growths, write_pool
from brickwork.pools.task import PoolTask
from brickwork.pools.taskfile import read_header, read_task, write_task
from brickwork.store.folder import Arch, load
from brickwork.words import table

BASE, TASKS = "base", "tasks"


class PoolFolder:
    """A pool and its tasks in a folder. A task never changes another: each is a file of its own.

    >>> import tempfile
    >>> from brickwork import zoo
    >>> folder = PoolFolder.create(tempfile.mkdtemp() + "/pool", KernelPool.cluster([zoo.build("lenet", seed=0)], size=16))
    >>> folder.add("first", folder.pool.base).name, folder.tasks
    ('first.task', ['first'])
    """

    def __init__(self, path: Path, pool: KernelPool) -> None:
        self.path, self.pool = path, pool

    @classmethod
    def create(cls, path: str | Path, pool: KernelPool, *, force: bool = False) -> PoolFolder:
        """Write a pool without tasks; `force` replaces a pool that is there, with its tasks."""
        path = Path(path)
        if any(book.dtype != torch.float32 for book in pool.layers.values()):
            raise RequestError("only a pool in float32 can be written; make it from model.float().")
        with write_folder(path, force=force, owns=(POOL,)) as temporary:
            write_pool(pool, temporary)
            (temporary / TASKS).mkdir()
            if pool.base is not None:
                (temporary / f"{BASE}.task").write_bytes(write_task(pool.base, pool))
        return cls(path, pool)

    @classmethod
    def open(cls, path: str | Path, *, arch: Arch | None = None) -> PoolFolder:
        """A pool that was written; `arch` as in `brickwork.load`, for a network that Brickwork cannot build by itself."""
        path = recovered(path)
        pool = read_pool(path, arch)
        base = path / f"{BASE}.task"
        return cls(path, replace(pool, base=read_task(base.read_bytes(), pool, base)) if base.exists() else pool)

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks, sorted."""
        return sorted(p.stem for p in (self.path / TASKS).glob("*.task") if not p.name.startswith("."))

    def add(self, name: str, task: PoolTask, *, force: bool = False, relative: str | None = "auto") -> Path:
        """Write a task under a name. relative: "auto" takes what gives the smallest file; a task's name, "base" or None.

        Relative to what it started from where that is in the folder, to the base, or on its own. A task that another is
        relative to cannot be replaced: the other would change. Kernels that the task brings are added to the pool, behind
        those that other processes may have added since: `pool` has them then.
        """
        self.pool.rebuild(task)  # refuses what does not fit, before anything is written
        with self._lock():
            path = self.check_new(name, force=force)
            pool, task, growths = settle(self._stored(), self.pool, task)
            data = min((write_task(task, pool, r) for r in self._references(name, task, relative, pool)), key=len)
            budget = task.facts.get("budget", len(data))
            if relative == "auto" and len(data) > budget:
                raise RequestError(
                    f"{name!r} was learned for {budget} bytes and would take {len(data)}: what it started from is not in "
                    f"{self.path}, or has a very long name. Add that first, or learn it again from the pool's base."
                )
            with self._grown(pool, growths), write_file(path) as temporary:
                temporary.write_bytes(data)
            self.pool = pool
        return path

    def check_new(self, name: str, *, force: bool = False) -> Path:
        """Where a task of that name goes; refused before any work is done for it."""
        path = self._file(name)
        if name == BASE:
            raise RequestError(f"{BASE!r} is the network the pool was made from; choose another name.")
        if path.exists() and not force:
            raise OutputExists(path, "name")
        if path.exists() and (bound := self.relatives(name)):
            raise RequestError(f"{name!r} cannot be replaced: {', '.join(bound)} is stored relative to it. {_DETACH}")
        check_file(path, force=True)  # a disk that is closed to us is found before the training, not behind it
        return path

    def task(self, name: str) -> PoolTask:
        """The task of that name."""
        path = self._file(name)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise UnknownName("task", name, self.tasks) from None
        if name == BASE and self.pool.base is not None:
            return self.pool.base
        header = read_header(data, path)
        if header["pool"] not in self.pool.versions:
            self.pool = self._stored()  # another process may have let it grow
        return read_task(data, self.pool, path, self._find, header)

    def start(self, name: str, *, arch: Arch | None = None) -> PoolTask | nn.Module | str | None:
        """What a task can start from, by its name: base (None), random, a task, or a model folder, in this order."""
        if name in (BASE, "random"):
            return None if name == BASE else name
        if name in self.tasks:
            return self.task(name)
        if (Path(name) / "config.json").is_file():
            return load(name, arch=arch)
        raise UnknownName("start", name, [BASE, "best", "random", *self.tasks], "A model folder is taken too.")

    def rebuild(self, name: str, *, device: DeviceLike = "cpu") -> nn.Module:
        """The network of a task: an ordinary module."""
        return self.pool.rebuild(self.task(name), device=device)

    def remove(self, name: str, *, detach: bool = False, trim: bool = False) -> None:
        """Delete a task. One that others are relative to is refused, or with `detach` they are stored on their own first.

        The pool keeps the kernels that it grew by; trim: but for those at its end that no task was made with.
        """
        path = self._file(name)
        with self._lock():
            if name not in self.tasks:
                raise UnknownName("task", name, self.tasks)
            bound = self.relatives(name)
            if bound and not detach:
                raise RequestError(
                    f"{name!r} cannot be removed: {', '.join(bound)} is stored relative to it. {_DETACH}"
                )
            for other in bound:
                task = self.task(other)
                data = min((write_task(task, self.pool, r) for r in (None, *self._base())), key=len)
                with write_file(self._file(other)) as temporary:
                    temporary.write_bytes(data)
            path.unlink()
            if trim:
                self._trim()

    def trim(self, *, keep: int = 0) -> int:
        """Remove what the pool grew by after the last of its tasks was made; the bytes that are free now.

        keep: so many growths stay in any case.
        """
        with self._lock():
            return self._trim(keep)

    def relatives(self, name: str) -> list[str]:
        """The tasks whose files are relative to this one."""
        return [other for other in self.tasks if (self.header(other)["reference"] or [None])[0] == name]

    def header(self, name: str) -> dict[str, Any]:
        """What a task's file says of itself, without decoding it."""
        path = self._file(name)
        if not path.exists():
            raise UnknownName("task", name, self.tasks)
        return read_header(path.read_bytes(), path)

    def bytes(self, name: str | None = None) -> int:
        """Bytes on disk of a task; without a name, of everything that is there once: codebooks, growths, base."""
        if name is not None:
            self.header(name)
            return self._file(name).stat().st_size
        return sum(p.stat().st_size for p in self.shared)

    @property
    def shared(self) -> list[Path]:
        """The files that are there once for all tasks."""
        fixed = (self.path / POOL, self.path / BOOKS, self.path / f"{BASE}.task")
        return [*(p for p in fixed if p.exists()), *growth_files(self.path)]

    def shared_by(self, name: str) -> list[Path]:
        """Those of the shared files that a task is read with: no growth of the pool that came later."""
        version = self.header(name)["pool"]
        if version not in self.pool.versions:
            self.pool = self._stored()
        if version not in self.pool.versions:
            raise BadFile(f"{self._file(name)} uses kernels that this pool does not have.")
        later = growth_files(self.path)[list(self.pool.versions).index(version) :]
        return [path for path in self.shared if path not in later]

    @property
    def options(self) -> CodebookOptions | None:
        """How the pool was made."""
        return self.pool.options

    @property
    def provenance(self) -> dict[str, Any]:
        """What the pool was made from, by hash, and how."""
        return self.pool.provenance

    def to_dict(self) -> dict[str, Any]:
        """JSON values: what the pool holds, what it grew by, its tasks, and bytes on disk."""
        tasks = [self.row(name) for name in self.tasks]
        return {
            "folder": str(self.path),
            **self.pool.to_dict(),
            "bytes": self.bytes(),
            "base_bytes": self.bytes(BASE) if self.pool.base is not None else 0,
            "grown": self._growths(),
            "tasks": tasks,
            "total_bytes": self.bytes() + sum(row["bytes"] for row in tasks),
        }

    def row(self, name: str) -> dict[str, Any]:
        """What is known of a task without decoding it."""
        header = self.header(name)
        return {
            "name": name,
            "classes": len(header["origin"]["classes"] or ()),
            "bytes": self.bytes(name),
            "relative_to": (header["reference"] or [None])[0],
            "how": header["facts"].get("how", ""),
        }

    def _growths(self) -> list[dict[str, Any]]:
        """What the pool grew by: kernels, bytes on disk, and the tasks that use any of them."""
        sizes = list(self.pool.versions.values())
        tasks = {name: self.task(name) for name in self.tasks} if self.pool.grown else {}
        growths = []
        for (old, new), file in zip(itertools.pairwise(sizes), growth_files(self.path), strict=True):
            users = [
                name
                for name, task in tasks.items()
                if any(bool(((codes >= old[k]) & (codes < new[k])).any()) for k, codes in task.codes.items())
            ]
            kernels = sum(new.values()) - sum(old.values())
            growths.append({"kernels": kernels, "bytes": file.stat().st_size, "tasks": users})
        return growths

    def __str__(self) -> str:
        facts = self.to_dict()
        lines = [str(self.pool), f"there once: {facts['bytes']:,} bytes, {facts['base_bytes']:,} of them the base"]
        for growth in facts["grown"]:
            users = ", ".join(growth["tasks"]) or "no task"
            lines.append(f"grown by {growth['kernels']} kernels, {growth['bytes']:,} of these bytes, used by {users}")
        if facts["tasks"]:
            cells = [
                [r["name"], r["classes"], r["bytes"], r["relative_to"] or "itself", r["how"]] for r in facts["tasks"]
            ]
            lines.append(table(["task", "classes", "bytes", "relative to", "how"], cells))
        return "\n".join([*lines, f"all together {facts['total_bytes']:,} bytes"])

    def _repr_html_(self) -> str:
        head = ["name", "classes", "bytes", "relative_to", "how"]
        rows = [[str(self.row(name)[key] or "") for key in head] for name in self.tasks]
        return rows_table(head, rows, lines=[str(self.pool), f"{self.bytes():,} bytes for all tasks"])

    def _file(self, name: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", name):
            raise RequestError(f"a task cannot be called {name!r}; letters, digits, '.', '_', '+' and '-' make a name.")
        if len(name) > 200:
            raise RequestError(f"a task cannot be called {name[:20]}…: {len(name)} letters; at most 200 make a name.")
        return self.path / f"{BASE}.task" if name == BASE else self.path / TASKS / f"{name}.task"

    def _references(
        self, name: str, task: PoolTask, relative: str | None, pool: KernelPool
    ) -> list[tuple[str, PoolTask] | None]:
        """What the task could be stored relative to. A chain is two long at most: a task is quick to load.

        A budget was kept relative to what the task started from, however long that makes the chain.
        """
        if relative is None:
            return [None]
        if relative == name:
            raise RequestError(f"{name!r} cannot be stored relative to itself; name another task, or base.")
        if relative != "auto":
            return [(relative, self.task(relative))]
        references: list[tuple[str, PoolTask] | None] = [None, *self._base()]
        wanted = task.reference
        for other in self.tasks if wanted is not None else []:
            header = self.header(other)
            short = (header["reference"] or [BASE])[0] == BASE or "budget" in task.facts
            known = header["pool"] in pool.at(task.pool).versions
            if other != name and header["task"] == wanted.hash and short and known:  # type: ignore[union-attr]
                references.append((other, self.task(other)))
        return references

    def _stored(self) -> KernelPool:
        """The pool as it is on the disk now."""
        return with_growths(self.path, self.pool.at(next(iter(self.pool.versions))))

    @contextlib.contextmanager
    def _grown(self, pool: KernelPool, growths: Sequence[Growth]) -> Iterator[None]:
        """Growths are put in place before the block and taken back if it fails."""
        written: list[Path] = []
        try:
            for growth in growths:
                path = growth_path(self.path, len(growth_files(self.path)) + 1)
                with write_file(path, force=False) as temporary:
                    write_growth(growth, pool.at(growth.after), temporary)
                written.append(path)
            yield
        except BaseException:
            for path in reversed(written):
                path.unlink()
            raise

    def _trim(self, keep: int = 0) -> int:
        stored = self._stored()
        needed = {self.header(name)["pool"] for name in self.tasks}
        last = max(k for k, version in enumerate(stored.versions) if k <= keep or version in needed)
        free = 0
        for path in reversed(growth_files(self.path)[last:]):  # from the end: whenever it is killed, a chain is left
            free += path.stat().st_size
            path.unlink()
        self.pool = stored.at(list(stored.versions)[last])
        return free

    def _base(self) -> list[tuple[str, PoolTask]]:
        return [] if self.pool.base is None else [(BASE, self.pool.base)]

    def _find(self, name: str, wanted: str) -> PoolTask:
        task = self.task(name)
        if task.hash != wanted:
            raise BadFile(f"{self._file(name)} is not the task that another was stored relative to; it was replaced.")
        return task

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """One process at a time; where the system has no such locks, nothing keeps two apart."""
        with (self.path / ".lock").open("a") as file:
            with contextlib.suppress(ImportError):  # Windows has no fcntl
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)  # let go when the file is closed, however the process ends
            yield

    def __repr__(self) -> str:
        return f"PoolFolder({self.path}: {self.pool!r}, {len(self.tasks)} tasks)"


_DETACH = "Remove that first, or give `detach`: it is stored on its own then."
