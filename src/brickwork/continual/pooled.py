"""Weight search (paper 4): a task is a choice of kernels from a frozen pool, by training or from a network there is."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from brickwork.continual.base import Method, check_positive
from brickwork.continual.bench import Bench
from brickwork.continual.registry import method
from brickwork.errors import RequestError
from brickwork.origin import origin_of
from brickwork.pools import KernelPool, PoolFolder, Task, encode, learn, rank_starts
from brickwork.pools.folder import BASE, TASKS
from brickwork.pools.growing_search import FREE

SIZE = 512  # kernels a layer where none are given
SMALL, GROW = 64, 32  # of a pool that is to grow: what it begins with, and what a task may add
STARTS = ("pretrained", "previous", "best", "network", "random")


class Pooled(Method):
    """A pool folder, and a file of indices a task in it."""

    pooled = True
    size: int | None
    usual = SIZE

    def begin(self, bench: Bench) -> None:
        if bench.pool is not None and self.size is not None:
            raise RequestError(f"size is {self.size}, and a pool is given, which has its size; leave one of them out.")
        pool = bench.pool
        if pool is None:
            pool = KernelPool.cluster([bench.start], size=self.size or self.usual, seed=bench.seed, device=bench.device)
        PoolFolder.create(bench.path("pool"), pool, force=True)

    def network(self, bench: Bench, number: int, after: int) -> nn.Module | None:
        return self.folder(bench).rebuild(self.name(number), device=bench.device)

    def own(self, bench: Bench, number: int) -> list[Path]:
        return [bench.path("pool") / TASKS / f"{self.name(number)}.task"]

    def shared(self, bench: Bench, after: int) -> list[Path]:
        return self.folder(bench).shared

    def sources(self, bench: Bench, number: int, after: int) -> list[Path]:
        """With the files of tasks that this one is told relative to, and without growths of the pool that came later."""
        folder, name = self.folder(bench), self.name(number)
        found = [*self.own(bench, number), *folder.shared_by(name)]
        while (reference := folder.header(name)["reference"]) and reference[0] != BASE:
            name = reference[0]
            found.append(bench.path("pool") / TASKS / f"{name}.task")
        return found

    def folder(self, bench: Bench) -> PoolFolder:
        """Opened once for a bench: what is in a pool does not change, and what is added it reads by itself."""
        if "pool" not in bench.held:
            # a network that Brickwork did not build has no name to build it by; the start is one of its kind
            foreign = None if origin_of(bench.start).arch else (lambda **_: copy.deepcopy(bench.start))
            bench.held["pool"] = PoolFolder.open(bench.path("pool"), arch=foreign)
        return bench.held["pool"]

    def name(self, number: int) -> str:
        return f"task-{number:03d}"

    def folder_for(self, bench: Bench, number: int) -> PoolFolder:
        """The pool to learn a task with."""
        return self.folder(bench)

    def growing(self) -> dict[str, Any]:
        """How far the pool may grow for a task: not at all."""
        return {}


@method("pool")
@dataclass(frozen=True)
class WeightSearch(Pooled):
    """Train temporary kernels, use the pool's nearest, keep the indices; the file tells them relative to the start.

    start: "pretrained" (the pool's own network), "previous" (the task before, as in the paper), "best" (of both and all
    earlier ones the one whose features tell the new classes apart best), "network" (what everything starts from, not yet
    said in kernels), "random". The other options are those of `brickwork.pools.learn`.
    """

    size: int | None = None
    start: str = "pretrained"
    beta: float = 0.5
    refresh: int = 4
    free: float = 0.0
    stay: float = 0.0
    anneal: bool = False
    scale: bool = False
    budget: int | None = None
    norms: str = "running"
    fold: bool = False
    precision: int = 16
    optimizer: str = "sgd"
    weight_decay: float = 0.0  # decay would draw temporary kernels away from the pool's for nothing
    lr: float = 0.02
    epochs: int | None = None

    def __post_init__(self) -> None:
        check_positive(size=self.size, lr=self.lr, epochs=self.epochs, budget=self.budget)
        if not 0 <= self.free < 1:
            raise RequestError(f"free is {self.free}; it must be 0 or more and below 1.")
        if self.start not in STARTS:
            raise RequestError(f"start is {self.start!r}; it must be {', '.join(STARTS)}.")

    def learn(self, bench: Bench, number: int) -> None:
        folder, task = self.folder_for(bench, number), bench.task(number)
        found = learn(
            folder.pool,
            task.train_images,
            task.train_labels,
            classes=task.classes,
            start=self._start(bench, number),
            beta=self.beta,
            lr=self.lr,
            refresh=self.refresh,
            stay=self.stay,
            anneal=self.anneal,
            scale=self.scale,
            free=self.free,
            budget=self.budget,
            norms=self.norms,
            fold=self.fold,
            precision=self.precision,
            **{
                **bench.settings(number, len(task.train_labels), self.epochs),
                "optimizer": self.optimizer,
                "weight_decay": self.weight_decay,
                **self.growing(),
            },
        )
        folder.add(self.name(number), found, force=True)

    def opening(self, bench: Bench, number: int) -> nn.Module:
        start = self._start(bench, number)
        if isinstance(start, Task):
            return self.folder(bench).pool.rebuild(start, device=bench.device)
        return bench.start

    def _start(self, bench: Bench, number: int) -> Task | nn.Module | str | None:
        if self.start in ("network", "random"):
            return bench.start if self.start == "network" else "random"
        folder = self.folder(bench)
        earlier = {self.name(k): folder.task(self.name(k)) for k in range(number)} if self.start == "best" else {}
        if earlier and folder.pool.base is not None:
            task = bench.task(number)
            ranked = rank_starts(
                folder.pool,
                {BASE: folder.pool.base, **earlier},
                task.train_images,
                task.train_labels,
                seed=bench.seed,
                device=bench.device,
            )
            return {BASE: folder.pool.base, **earlier}[next(iter(ranked))]
        if self.start == "previous" and number > 0:
            return folder.task(self.name(number - 1))
        return folder.pool.base


@method("pool-encode")
@dataclass(frozen=True)
class Encoded(Pooled):
    """Fine-tune as usual, then say the network in kernels of the pool without training; norms are measured anew.

    soup: fine-tune so many times and say the average of the networks, in as many bytes as one.
    """

    size: int | None = None
    metric: str = "gram"
    precision: int = 16
    lr: float = 0.02
    epochs: int | None = None
    soup: int = 1

    def __post_init__(self) -> None:
        check_positive(size=self.size, lr=self.lr, epochs=self.epochs, soup=self.soup)

    def learn(self, bench: Bench, number: int) -> None:
        folder, task = self.folder_for(bench, number), bench.task(number)
        model = bench.fit_soup(number, self.soup, lr=self.lr, epochs=self.epochs)
        found = encode(
            folder.pool,
            model,
            task.train_images,
            metric=self.metric,
            precision=self.precision,
            device=bench.device,
            **self.growing(),
        )
        folder.add(self.name(number), found, force=True)


class Growing(Pooled):
    """A pool that begins small and grows with the tasks; what earlier ones added is there for later ones."""

    usual = SMALL
    grow: int
    grow_bytes: int | None

    def folder_for(self, bench: Bench, number: int) -> PoolFolder:
        """Without what a run left that was killed before the task was on record."""
        folder = self.folder(bench)
        if self.name(number) in folder.tasks:
            folder.remove(self.name(number))
        folder.trim(keep=0 if bench.pool is None else len(bench.pool.grown))
        return folder

    def growing(self) -> dict[str, Any]:
        return {"grow": self.grow, "grow_bytes": self.grow_bytes}


@method("pool-grow")
@dataclass(frozen=True)
class GrowingWeightSearch(Growing, WeightSearch):
    """As `pool`, with a pool that begins small and grows: a task may add kernels that all later ones can use.

    size: kernels a layer to begin with. grow, grow_bytes, free: as in `brickwork.pools.learn`.
    """

    grow: int = GROW
    grow_bytes: int | None = None
    free: float = FREE

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(grow=self.grow, grow_bytes=self.grow_bytes)


@method("pool-encode-grow")
@dataclass(frozen=True)
class GrowingEncoded(Growing, Encoded):
    """As `pool-encode`, with a pool that begins small and grows: a task may add kernels that all later ones can use."""

    grow: int = GROW
    grow_bytes: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(grow=self.grow, grow_bytes=self.grow_bytes)
