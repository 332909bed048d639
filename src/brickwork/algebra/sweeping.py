"""`sweep`: αθ_A + βθ_B, or θ_0 + αg_A + βg_B, over a grid of α and β, on every data set (paper 1, §5 and appendix).

Weights are loaded once and every cell is combined in place; images are prepared once. On a GPU many cells run in one
launch, their parameters stacked.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.algebra.agreement import refuse_differences
from brickwork.algebra.plan import STATISTICS
from brickwork.algebra.sweep_result import SweepResult
from brickwork.atomic import write_file
from brickwork.data.images import ImageData
from brickwork.data.pixels import as_input
from brickwork.devices import pick
from brickwork.errors import BadData, BadFile, RequestError
from brickwork.origin import Preprocessing, origin_of
from brickwork.outputs import logits_of
from brickwork.prediction import device_of, evaluating
from brickwork.progress import bar
from brickwork.store import state_hash

Data = ImageData | tuple[Any, Any]


def sweep(
    a: nn.Module,
    b: nn.Module | None = None,
    *,
    base: nn.Module | None = None,
    data: Sequence[Data] | Mapping[str, Data],
    alpha: Sequence[float],
    beta: Sequence[float] = (0.0,),
    bn: str = "linear",
    batch_size: int = 512,
    cells: int | None = None,
    journal: str | Path | None = None,
    device: str | torch.device | None = None,
    progress: bool = True,
) -> SweepResult:
    """Accuracy of every combination of α and β on every data set; the networks given are left unchanged.

    With base θ_0: θ_0 + α(a − θ_0) + β(b − θ_0); without: αa + βb. data: test splits of ImageData, or (images, labels);
    label k is output k. Where a and b normalise images differently, the first data set is prepared as a wants it and
    the second as b does.
    bn: batch-norm statistics are combined like everything else, a variance below 0 counting as 0 ("linear"), or are
    the base's, or a's ("keep"). cells: how many cells run in one launch (16 on a GPU, 1 elsewhere).
    journal: a file that every cell is written to; a sweep that was stopped goes on from it.

    >>> _ = torch.manual_seed(0)
    >>> net, x = nn.Linear(4, 3), torch.randn(60, 4)
    >>> found = sweep(net, data={"x": (x, net(x).argmax(1))}, alpha=[-1.0, 1.0], progress=False)
    >>> found.table()[1], found.table()[0]["accuracy"] < 0.5
    ({'alpha': 1.0, 'beta': 0.0, 'data': 'x', 'accuracy': 1.0}, True)
    """
    grid = [(float(x), float(y)) for y in beta for x in alpha]
    _check(grid, bn, b, beta, batch_size, cells)
    where = device_of(a) if device is None else pick(device)
    space = _Space(a, b, base, bn, where)
    tests = _tests(data, a, b, where)
    done = _Journal(journal, space.key(tests))
    at_once = cells or (16 if where.type == "cuda" else 1)
    began = time.perf_counter()
    with bar("sweeping", len(grid), show=progress) as advance:
        missing = [cell for cell in grid if not all((*cell, name) in done.rows for name, _, _ in tests)]
        advance(len(grid) - len(missing))
        for group in _groups(missing, at_once):
            for name, images, labels in tests:
                for cell, accuracy in zip(
                    group, space.accuracies(group, images, labels, batch_size), strict=True
                ):
                    done.add(*cell, name, accuracy)
            advance(len(group))
    rows = tuple((x, y, name, done.rows[x, y, name]) for x, y in grid for name, _, _ in tests)
    return SweepResult(rows, space.formula, round(time.perf_counter() - began, 3))


def balanced_point(
    a: nn.Module, b: nn.Module, *, start: tuple[float, float] = (0.5, 0.5), step: float = 0.5, smallest: float = 0.02,
    tries: int = 80, **options: Any,
) -> SweepResult:  # fmt: skip
    """Search for the cell whose worst data set is best, without the whole grid: uphill in ever smaller steps.

    options: those of `sweep` but alpha and beta. The result holds every cell that was looked at.
    """
    seen: dict[tuple[float, float], list[tuple[float, float, str, float]]] = {}
    formula, seconds = "", 0.0

    def value(cell: tuple[float, float]) -> tuple[float, float]:
        nonlocal formula, seconds
        if cell not in seen:
            found = sweep(a, b, alpha=[cell[0]], beta=[cell[1]], **options)
            seen[cell], formula = list(found.rows), found.formula
            seconds += found.seconds
        rates = [row[3] for row in seen[cell]]
        return min(rates), sum(rates)

    here = (float(start[0]), float(start[1]))
    best = value(here)
    while step >= smallest and len(seen) < tries:
        around = [
            (round(here[0] + dx * step, 6), round(here[1] + dy * step, 6))
            for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1))
        ]
        top = max(around, key=value)
        if value(top) > best:
            here, best = top, value(top)
        else:
            step /= 2
    return SweepResult(tuple(row for rows in seen.values() for row in rows), formula, round(seconds, 3))


class _Space:
    """The plane of networks that α and β span: state = offset + α · first + β · second."""

    def __init__(
        self, a: nn.Module, b: nn.Module | None, base: nn.Module | None, bn: str, where: torch.device
    ) -> None:
        # channels last: resnet8 runs 1.5 times as fast on a CPU that way, and no slower elsewhere
        self.model = copy.deepcopy(a).to(where).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
        states = {"a": a.state_dict()}
        states |= {"b": b.state_dict()} if b is not None else {}
        states |= {"base": base.state_dict()} if base is not None else {}
        refuse_differences({n: {k: tuple(t.shape) for k, t in s.items()} for n, s in states.items()})
        self.hashes = {name: state_hash(dict(state)) for name, state in states.items()}
        self.bn, self.where = bn, where
        zero = states.get("base")
        self.formula = "θ₀ + α(a − θ₀)" if base is not None else "αa"
        self.formula += (" + β(b − θ₀)" if base is not None else " + βb") if b is not None else ""
        self.parts: dict[str, tuple[Tensor, Tensor, Tensor | None]] = {}
        for name, value in states["a"].items():
            kept = bn == "keep" and name.rpartition(".")[2] in STATISTICS
            if not value.is_floating_point() or kept:
                continue
            wide = torch.promote_types(value.dtype, torch.float32)
            first = value.to(where, wide)
            second = states["b"][name].to(where, wide) if b is not None else None
            offset = zero[name].to(where, wide) if zero is not None else torch.zeros_like(first)
            if zero is not None:
                first, second = first - offset, None if second is None else second - offset
            self.parts[name] = offset, first, second
        if bn == "keep" and zero is not None:
            own = self.model.state_dict()
            for name in own:
                if name.rpartition(".")[2] in STATISTICS:
                    own[name].copy_(zero[name])

    def key(self, tests: Sequence[tuple[str, Tensor, Tensor]]) -> dict[str, Any]:
        sizes = {name: [len(images), float(images.double().mean())] for name, images, _ in tests}
        return {"networks": self.hashes, "bn": self.bn, "data": sizes}

    def _at(self, name: str, alpha: float, beta: float) -> Tensor:
        offset, first, second = self.parts[name]
        value = torch.add(offset, first, alpha=alpha)
        if second is not None:
            value.add_(second, alpha=beta)
        return value.clamp_(min=0) if name.endswith("running_var") else value

    def accuracies(
        self, group: list[tuple[float, float]], images: Tensor, labels: Tensor, batch: int
    ) -> list[float]:
        right = torch.zeros(len(group), dtype=torch.int64, device=self.where)
        with evaluating(self.model):
            if len(group) == 1:
                own = self.model.state_dict()
                for name in self.parts:
                    own[name].copy_(self._at(name, *group[0]))
                for x, y in zip(images.split(batch), labels.split(batch), strict=True):
                    right[0] += (logits_of(self.model(x)).argmax(1) == y).sum()
            else:
                stacked = {
                    name: torch.stack([self._at(name, *cell) for cell in group]) for name in self.parts
                }
                kept = {n: t for n, t in self.model.state_dict().items() if n not in stacked}

                def run(state: dict[str, Tensor], x: Tensor) -> Tensor:
                    return logits_of(torch.func.functional_call(self.model, {**kept, **state}, (x,)))

                for x, y in zip(images.split(batch), labels.split(batch), strict=True):
                    logits = torch.vmap(run, in_dims=(0, None))(stacked, x)
                    right += (logits.argmax(2) == y[None]).sum(1)
        return [round(int(count) / len(labels), 6) for count in right.tolist()]


class _Journal:
    """Rows as they come, one line of JSON each, under a first line that says what they belong to."""

    def __init__(self, path: str | Path | None, key: dict[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self.rows: dict[tuple[float, float, str], float] = {}
        if self.path is None:
            return
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        told = []
        for number, line in enumerate(lines):
            try:
                told.append(json.loads(line))
            except ValueError as error:
                if number + 1 < len(lines) or not number:  # only the last may have been cut by a kill
                    raise BadFile(f"{self.path} is not the journal of a sweep: {error}.") from error
        if told and told[0] != key:
            raise RequestError(f"{self.path} is the journal of another sweep; choose another file.")
        self.rows = {(x, y, name): value for x, y, name, value in told[1:]}
        with write_file(
            self.path
        ) as draft:  # whole lines only: the next one must not go on where a kill broke off
            draft.write_text("".join(json.dumps(entry) + "\n" for entry in told or [key]), encoding="utf-8")

    def add(self, alpha: float, beta: float, name: str, accuracy: float) -> None:
        self.rows[alpha, beta, name] = accuracy
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([alpha, beta, name, accuracy]) + "\n")


def _check(grid: Any, bn: str, b: Any, beta: Sequence[float], batch_size: int, cells: int | None) -> None:
    if not grid:
        raise RequestError("the grid is empty; give at least one alpha and one beta.")
    if not all(math.isfinite(x) and math.isfinite(y) for x, y in grid):
        raise RequestError("alpha and beta must be numbers.")
    if len(set(grid)) != len(grid):
        raise RequestError("alpha or beta names a value twice.")
    if bn not in ("linear", "keep"):
        raise RequestError(f"bn is {bn!r}; it must be linear or keep.")
    if b is None and any(value != 0 for value in beta):
        raise RequestError("beta belongs to the second network, and there is none.")
    if batch_size < 1 or (cells is not None and cells < 1):
        raise RequestError(f"batch_size is {batch_size} and cells {cells}; both must be 1 or more.")


def _tests(
    data: Any, a: nn.Module, b: nn.Module | None, where: torch.device
) -> list[tuple[str, Tensor, Tensor]]:
    given = dict(data) if isinstance(data, Mapping) else {_name(d, k): d for k, d in enumerate(data)}
    if not given or (not isinstance(data, Mapping) and len(given) != len(data)):
        raise BadData("a sweep needs data sets, each with a name of its own.")
    ways: list[Preprocessing | None] = [origin_of(m).preprocessing for m in (a, b) if m is not None]
    dtype = next(p.dtype for p in a.parameters())
    found = []
    for number, (name, one) in enumerate(given.items()):
        images, labels = (one.test_images, one.test_labels) if isinstance(one, ImageData) else one
        prepared = as_input(torch.as_tensor(images), ways[min(number, len(ways) - 1)], where)
        answers = torch.as_tensor(np.asarray(labels)).to(where)
        if answers.shape != (len(prepared),) or not len(answers):
            raise BadData(f"{name}: {len(prepared)} images and labels of shape {tuple(answers.shape)}.")
        prepared = prepared.to(dtype)
        if prepared.dim() == 4:
            prepared = prepared.contiguous(memory_format=torch.channels_last)
        found.append((name, prepared, answers))
    return found


def _name(data: Any, number: int) -> str:
    return data.name if isinstance(data, ImageData) else f"data {number}"


def _groups(cells: list[tuple[float, float]], size: int) -> Iterator[list[tuple[float, float]]]:
    for start in range(0, len(cells), size):
        yield cells[start : start + size]
