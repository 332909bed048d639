"""Accuracies of some cells of a plane: how many at once, how many images a pass, and in which way."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from brickwork.algebra.folded import Folded
from brickwork.algebra.plan import STATISTICS
from brickwork.algebra.plane import Cell, Plane
from brickwork.algebra.stacked import stack
from brickwork.copying import copy_module
from brickwork.moments.batch_norm import reestimate_batch_norm
from brickwork.outputs import logits_of, of_classes
from brickwork.prediction import evaluating
from brickwork.store.weights import put_state

LIGHT = 30_000_000  # multiply-adds an image up to which a CPU gains from cells side by side
#: and from which a GPU has more from one network after another: resnet8 on an H200, side by side against that, 1.1 and
#: 1.3 ms a cell at 6 million, 2.1 and 1.7 at 24 million
ALONE = 12_000_000
BUSY = 2 * 10**11  # multiply-adds that keep a GPU busy for a launch's time several times over
CACHE = 12 * 2**20  # bytes of one activation that still stay near a CPU's core
ROOM = 2 * 2**30  # bytes of one activation on a GPU
BATCH = 500  # images of which batch norms take the statistics, on every device, so that answers are the same
AT_ONCE = {"cuda": 2**28}  # numbers of one activation while statistics are measured; elsewhere as many as caches like


class Cells:
    """Evaluates groups of at most `at_once` cells, folded and side by side where the network allows it.

    cells, batch: how many at once, and images in a pass; None chooses by the network's size and the device. calibration:
    batches on which a plane that recalibrates measures the statistics of every cell.
    """

    def __init__(
        self,
        plane: Plane,
        example: Tensor,
        *,
        cells: int | None,
        batch: int | None,
        bf16: bool = False,
        calibration: Sequence[Tensor] = (),
    ) -> None:
        self.where, self.plane = plane.where, plane
        self.gauge = _Gauge(plane, example, calibration) if plane.bn == "recalibrate" else None
        self.dtype = torch.bfloat16 if bf16 else example.dtype
        self.loaded: list[Cell] = []
        self.stacked: list[Cell] = []
        self.state: dict[str, Tensor] = {}
        self.folded = Folded(plane, example, batch=plane.bn == "batch")
        model = self.folded.model.to(self.dtype)
        self.at_once, self.batch = _sizes(self.folded, self.where, self.dtype.itemsize, cells, batch)
        graph = self.folded.graph
        with torch.inference_mode():
            self.stack = stack(model, graph, example.to(self.dtype)) if graph is not None else None
        heavy = self.where.type == "cuda" and (self.folded.macs or 0) > ALONE
        self.in_a_pass = 1 if cells is None and heavy else self.at_once
        if self.stack is None and cells is None and self.where.type == "cpu":
            self.at_once = 1  # what is left, vmap, is slower there than one after the other
        if self.where.type == "cuda":
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def accuracies(self, group: list[Cell], images: Tensor, labels: Tensor) -> list[float]:
        """The share of right answers of every cell of the group."""
        right = torch.zeros(len(group), dtype=torch.int64, device=self.where)
        with evaluating(self.folded.model):
            if self.loaded != group:  # the next data set looks at the same cells
                if self.gauge is not None:
                    self.plane.measured = self.gauge.statistics(group)
                self.state = {n: value.to(self.dtype) for n, value in self.folded.state(group).items()}
                self.loaded = list(group)
            # alike: a last one of few images would cost nearly as much
            pieces = -(-len(labels) // self.batch)
            for first in range(0, len(group), self.in_a_pass):
                some = slice(first, first + self.in_a_pass)
                run = self._together(group, some)
                for x, y in zip(images.tensor_split(pieces), labels.tensor_split(pieces), strict=True):
                    right[some] += (of_classes(run(x.to(self.dtype)), 2).argmax(2) == y[:, None]).sum(0)
        return [round(count / len(labels), 6) for count in right.tolist()]

    def _together(self, group: list[Cell], some: slice) -> Callable[[Tensor], Tensor]:
        """What gives logits (images, cells, classes) of some cells of the group."""
        state = {name: value[some] for name, value in self.state.items()}
        if self.stack is None:
            return lambda x: self._apart(state, x)
        if self.stacked != group[some]:
            self.stack.load(state)
            self.stacked = group[some]
        return self.stack

    def _apart(self, state: dict[str, Tensor], x: Tensor) -> Tensor:
        """The same of a network whose channels cannot be stacked."""
        model = self.folded.model
        fixed = {name: value for name, value in model.state_dict().items() if name not in state}

        def run(one: dict[str, Tensor]) -> Tensor:
            return logits_of(torch.func.functional_call(model, {**fixed, **one}, (x,)))

        if len(next(iter(state.values()))) == 1:
            return run({name: value[0] for name, value in state.items()})[:, None]
        return torch.vmap(run)(state).transpose(0, 1)


class _Gauge:
    """Measures the batch-norm statistics of cells: side by side where channels can be stacked, else one after another."""

    def __init__(self, plane: Plane, example: Tensor, batches: Sequence[Tensor]) -> None:
        self.plane, self.batches = plane, batches
        self.bare = Folded(plane, example, batch=True)
        graph = self.bare.graph
        with torch.inference_mode():
            self.stack = stack(self.bare.model, graph, example) if graph is not None else None

    def statistics(self, group: list[Cell]) -> dict[str, Tensor]:
        self.plane.measured = {}
        if self.stack is None:
            return self._one_by_one(group)
        some = max(
            1, AT_ONCE.get(self.plane.where.type, 2**22) // (max(1, self.bare.largest or 1) * len(self.batches[0]))
        )
        pieces = []
        for start in range(0, len(group), some):
            self.stack.load(self.bare.state(group[start : start + some]))
            pieces.append(self.stack.measure(self.batches))
        result = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
        dtype = torch.promote_types(self.batches[0].dtype, torch.float32)
        return {name: value.to(dtype) for name, value in result.items()}

    def _one_by_one(self, group: list[Cell]) -> dict[str, Tensor]:
        each: list[dict[str, Tensor]] = []
        for cell in group:
            model = copy_module(self.plane.model)
            put_state(model, {name: self.plane.at(name, [cell])[0] for name in model.state_dict()})
            state = reestimate_batch_norm(model, self.batches).state_dict()
            each.append({name: value for name, value in state.items() if name.rpartition(".")[2] in STATISTICS})
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}


def _sizes(folded: Folded, where: torch.device, item: int, cells: int | None, batch: int | None) -> tuple[int, int]:
    if folded.macs is None or folded.largest is None:
        return cells or 1, batch or 512
    macs, largest = max(1, folded.macs), folded.largest * item
    if where.type == "cuda":
        images = batch or min(4096, max(1, ROOM // largest))
        room = max(1, ROOM // (largest * min(images, 1024)))
        return cells or max(1, min(64, room, BUSY // (macs * min(images, 1024)))), images
    light = macs <= LIGHT and (batch is None or 8 * largest * batch <= 8 * CACHE)
    at_once = cells or (8 if light else 1)
    return at_once, batch or min(512, max(64 if at_once > 1 else 128, CACHE // (largest * at_once)))
