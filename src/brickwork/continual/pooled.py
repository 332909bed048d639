"""Weight search (paper 4): a task is a choice of kernels from a frozen pool, by training or from a trained network."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from torch import nn

from brickwork import zoo
from brickwork.continual.base import ContinualMethod
from brickwork.continual.bench import Bench
from brickwork.continual.options import passes, rate
from brickwork.continual.registry import method
from brickwork.copying import copy_module
from brickwork.errors import RequestError
from brickwork.options import fields_of, option
from brickwork.origin import Origin, origin_of
from brickwork.pools import KernelPool, PoolFolder, PoolTask, encode, learn, rank_starts
from brickwork.pools.folder import BASE, TASKS
from brickwork.pools.options import STORED, GrowOptions, SearchOptions, bits_rule
from brickwork.training.options import OPTIMIZERS

SIZE = 512  # kernels per layer where none are given
SMALL, GROW = 64, 32  # of a pool that is to grow: what it begins with, and what a task may add


class Pooled(ContinualMethod):
    """A pool folder, and one file of indices per task in it."""

    size: int | None = option(default=None, at_least=1, help="Kernels per layer of a pool that is not given.")

    pooled = True
    usual_size = SIZE

    def begin(self, bench: Bench) -> None:
        if bench.pool is not None and self.size is not None:
            raise RequestError(
                f"`size` is {self.size}, and a pool is given, which has its size; leave one of them out."
            )
        size = self.size or self.usual_size
        pool = bench.pool or KernelPool.cluster([bench.start], size=size, seed=bench.seed, device=bench.device)
        PoolFolder.create(bench.path("pool"), pool, force=True)

    def network(self, bench: Bench, number: int, after: int) -> nn.Module | None:
        return self.folder(bench).rebuild(self.name(number), device=bench.device)

    def own(self, bench: Bench, number: int) -> list[Path]:
        return [bench.path("pool") / TASKS / f"{self.name(number)}.task"]

    def shared(self, bench: Bench, after: int) -> list[Path]:
        return self.folder(bench).shared

    def sources(self, bench: Bench, number: int, after: int) -> list[Path]:
        """With the files of tasks that this one is relative to, and without growths of the pool that came later."""
        folder, name = self.folder(bench), self.name(number)
        files = [*self.own(bench, number), *folder.shared_by(name)]
        while (reference := folder.header(name)["reference"]) and reference[0] != BASE:
            name = reference[0]
            files.append(bench.path("pool") / TASKS / f"{name}.task")
        return files

    def folder(self, bench: Bench) -> PoolFolder:
        """Opened once for a bench: what is in a pool does not change, and what is added it reads by itself."""
        if "pool" not in bench.held:
            # a network that Brickwork did not build has no name to build it by; the start is one of its kind, and what the
            # user let build the start may build the pool's network
            origin = origin_of(bench.start)
            own = [part.arch for part in _leaves(origin) if part.arch and zoo.needs_import(part.arch)]
            foreign: Any = own or None if origin.arch else (lambda **_: copy_module(bench.start))
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


def _leaves(origin: Origin) -> list[Origin]:
    """The record of a network, or those of the networks that it was joined from."""
    return [leaf for part in origin.parts for leaf in _leaves(part)] if origin.parts else [origin]


class Started(Pooled):
    """A method whose tasks start from the pool's network or from other tasks."""

    start: Literal["pretrained", "previous", "best", "network", "random"] = option(
        default="pretrained",
        help="The pool's own network; the task before, as in the paper; of both and all earlier ones the one whose features "
        "tell the new classes apart best; what everything starts from, not yet in kernels; or random kernels.",
    )

    def opening(self, bench: Bench, number: int) -> nn.Module:
        start = self._start(bench, number)
        if isinstance(start, PoolTask):
            return self.folder(bench).pool.rebuild(start, device=bench.device)
        return bench.start

    def _start(self, bench: Bench, number: int) -> PoolTask | nn.Module | str | None:
        if self.start in ("network", "random"):
            return bench.start if self.start == "network" else "random"
        folder = self.folder(bench)
        earlier = {self.name(k): folder.task(self.name(k)) for k in range(number)} if self.start == "best" else {}
        if earlier and folder.pool.base is not None:
            task, known = bench.task(number), {BASE: folder.pool.base, **earlier}
            drawn: dict[str, Any] = {"seed": bench.seed, "device": bench.device}
            return known[next(iter(rank_starts(folder.pool, known, task.train_images, task.train_labels, **drawn)))]
        if self.start == "previous" and number > 0:
            return folder.task(self.name(number - 1))
        return folder.pool.base


@method("pool")
class WeightSearch(SearchOptions, Started):
    """Train temporary kernels, use the pool's nearest, keep the indices; the file holds what differs from the start.

    The options of the search are those of `brickwork.pools.learn`.
    """

    optimizer: str = option(default="sgd", choices=OPTIMIZERS, help="Optimizer.")
    # decay would draw temporary kernels away from the pool's for nothing
    weight_decay: float = option(default=0.0, at_least=0, help="Weight decay.")
    lr: float = rate(0.02)
    epochs: int | None = passes()

    def learn(self, bench: Bench, number: int) -> None:
        folder, task = self.folder_for(bench, number), bench.task(number)
        own = {name: getattr(self, name) for name in (*fields_of(SearchOptions), "lr", "optimizer", "weight_decay")}
        settings = bench.settings(number, len(task.train_labels), self.epochs) | own | self.growing()
        learned = learn(folder.pool, task, start=self._start(bench, number), **settings)
        folder.add(self.name(number), learned, force=True)


@method("pool-encode")
class Encoded(Pooled):
    """Fine-tune as usual, then encode the network in kernels of the pool without training; norms are measured anew.

    soup: fine-tune so many times and encode the average of the networks, in as many bytes as one.
    """

    metric: Literal["gram", "weight"] = option(
        default="gram", help="Choose kernels by a layer's responses, or by its weights."
    )
    bits: int = option(default=16, help=STORED)
    lr: float = rate(0.02)
    epochs: int | None = passes()
    soup: int = option(default=1, at_least=1, help="Trainings whose average is kept.")

    def rules(self) -> Iterator[str]:
        yield from super().rules()
        yield from bits_rule(self.bits)

    def learn(self, bench: Bench, number: int) -> None:
        folder, task = self.folder_for(bench, number), bench.task(number)
        model = bench.fit_soup(number, self.soup, lr=self.lr, epochs=self.epochs)
        options = {"metric": self.metric, "bits": self.bits, "device": bench.device, **self.growing()}
        folder.add(self.name(number), encode(folder.pool, model, task, **options), force=True)


class Growing(GrowOptions, Pooled):
    """A pool that begins small and grows with the tasks; what earlier ones added is there for later ones."""

    grow: int | None = option(default=GROW, at_least=1, help="Kernels per layer that a task may add.")

    usual_size = SMALL

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
class GrowingWeightSearch(Growing, WeightSearch):
    """As `pool`, with a pool that begins small and grows: a task may add kernels that all later ones can use."""


@method("pool-encode-grow")
class GrowingEncoded(Growing, Encoded):
    """As `pool-encode`, with a pool that begins small and grows: a task may add kernels that all later ones can use."""
