"""`sweep`: αθ_A + βθ_B, or θ_0 + αg_A + βg_B, over a grid of α and β, on every data set (paper 1, §5 and appendix).

Weights are loaded and images prepared once; cells are combined on the device, and small networks run several at once.
"""

import hashlib
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.algebra.cells import BATCH, Cells
from brickwork.algebra.inputs import batches_of
from brickwork.algebra.options import BalancedPointOptions, SweepOptions, SweepRunOptions
from brickwork.algebra.plane import Cell, Plane
from brickwork.algebra.repairing import has_statistics
from brickwork.algebra.sweep_result import SweepResult
from brickwork.atomic import write_file
from brickwork.data.datasets import pair_of_dataset
from brickwork.data.images import ImageData, drawn_images
from brickwork.data.pixels import as_input
from brickwork.devices import DeviceLike, pick
from brickwork.errors import BadData, BadFile, JobFailed, NegativeVariance, RequestError
from brickwork.options import takes
from brickwork.origin import origin_of
from brickwork.progress import bar
from brickwork.words import counted, some_of

Data = Any  # an ImageData, (images, labels), a torch Dataset or DataLoader
CALIBRATION, CALIBRATION_BATCH = 1000, 250  # images on which statistics are measured, and in a pass


@takes(SweepOptions)
def sweep(
    a: nn.Module,
    b: nn.Module | None = None,
    *,
    base: nn.Module | None = None,
    data: Sequence[Data] | Mapping[str, Data],
    device: DeviceLike | None = None,
    progress: bool = True,
    options: SweepOptions,
) -> SweepResult:
    """Accuracy of every combination of α and β on every data set; the networks given are left unchanged.

    With base θ_0: θ_0 + α(a − θ_0) + β(b − θ_0); without: αa + βb. data: test splits of ImageData, whose classes are found
    by name among a's or b's and else stand for the outputs in their order; or (images, labels), label k being output k.
    Where a and b normalise images differently, the first data set is prepared as a wants it and the second as b does.
    bn: batch-norm statistics are measured in every cell on 1000 images of all sets, training images where there are some,
    mixed ("recalibrate", if not asked otherwise); are those of every batch of test images, drawn from all classes, by
    itself ("batch"); are combined like everything else, a variance below 0 counting as 0 with a warning ("linear"); or
    are the base's, or a's ("keep"). cells, batch_size: how many cells run in one pass, and how many images (500 with
    "batch"); chosen by the network's size and the device if left out. precision: the networks' own ("auto"), or "bf16":
    faster on a GPU, and accuracies may differ by a few tenths of a point.
    journal: a file that every cell is written to; a sweep that was stopped goes on from it.

    >>> _ = torch.manual_seed(0)
    >>> net, x = nn.Linear(4, 3), torch.randn(60, 4)
    >>> found = sweep(net, data={"x": (x, net(x).argmax(1))}, alpha=[-1.0, 1.0], progress=False)
    >>> found.table()[1], found.table()[0]["accuracy"] < 0.5
    ({'alpha': 1.0, 'beta': 0.0, 'data': 'x', 'accuracy': 1.0}, True)
    """
    beta = options.beta if options.beta is not None else options.alpha if b is not None else (0.0,)
    grid = [(x, y) for y in beta for x in options.alpha]
    _check(b, beta)
    survey = _Survey(a, b, base, data, options, device)
    with bar("sweeping", len(grid), show=progress) as advance:
        survey.look(grid, advance)
    return survey.result(grid, options)


@takes(BalancedPointOptions)
def balanced_point(
    a: nn.Module,
    b: nn.Module,
    *,
    base: nn.Module | None = None,
    data: Sequence[Data] | Mapping[str, Data],
    device: DeviceLike | None = None,
    progress: bool = True,
    options: BalancedPointOptions,
) -> SweepResult:
    """Search for the cell whose worst data set is best, without the whole grid: uphill in ever smaller steps.

    start, step: where it begins, and how far it looks at first; it ends below `smallest` or after about `tries` cells.
    The other options are those of `sweep`. The result holds every cell that was looked at.
    """
    here, step, tries = (options.start[0], options.start[1]), options.step, options.tries
    survey = _Survey(a, b, base, data, options, device)
    seen: dict[Cell, tuple[float, float]] = {}
    with bar("searching", tries, show=progress) as advance:

        def look(group: list[Cell]) -> None:
            fresh = [cell for cell in group if cell not in seen]
            survey.look(fresh, advance)
            for cell in fresh:
                rates = [row[3] for row in survey.rows([cell])]
                seen[cell] = min(rates), sum(rates)

        look([here])
        while step >= options.smallest and len(seen) < tries:
            around = [
                (round(here[0] + dx * step, 6), round(here[1] + dy * step, 6))
                for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1))
            ]
            look(around)
            top = max(around, key=seen.__getitem__)
            if seen[top] > seen[here]:
                here = top
            else:
                step /= 2
    return survey.result(list(seen), options)


class _Survey:
    """Cells of one plane, each looked at once."""

    def __init__(
        self,
        a: nn.Module,
        b: nn.Module | None,
        base: nn.Module | None,
        data: Any,
        options: SweepRunOptions,
        device: DeviceLike | None,
    ) -> None:
        where = pick(device, of=a)
        self.began = time.perf_counter()
        bn = options.statistics(images=True) if has_statistics(a) else "linear"
        self.plane = Plane(a, b, base, bn=bn, where=where)
        self.tests = _tests(data, a, b, where)
        batch = options.batch_size
        calibration: list[Tensor] = []
        if bn == "batch":
            self.tests = [(name, _mixed(images), _mixed(labels)) for name, images, labels in self.tests]
            batch = batch or BATCH
        elif bn == "recalibrate":
            calibration = _calibration(data, self.tests, a, b, where)
        self.done = _Journal(options.journal, _key(self.plane, self.tests, calibration, options.precision, batch))
        self.runner = Cells(
            self.plane,
            self.tests[0][1][:2],
            cells=options.cells,
            batch=batch,
            bf16=options.precision == "bf16",
            calibration=calibration,
        )

    def look(self, cells: Sequence[Cell], advance: Callable[..., None]) -> None:
        """The accuracies of these cells on every data set, where they are not known yet."""
        known, names = self.done.rows, [name for name, _, _ in self.tests]
        missing = [cell for cell in cells if not all((*cell, name) in known for name in names)]
        advance(len(cells) - len(missing))
        negative = self.plane.negative(cells) if self.plane.bn == "linear" and cells else 0
        if negative:
            warnings.warn(
                f"in {negative} of {counted(len(cells), 'cell')} a batch norm would have a negative variance, which counts "
                "as 0: what is measured there says nothing of the weights. bn='recalibrate' measures the statistics.",
                NegativeVariance,
                stacklevel=4,
            )
        for start in range(0, len(missing), self.runner.at_once):
            group = missing[start : start + self.runner.at_once]
            for name, images, labels in self.tests:
                try:
                    accuracies = self.runner.accuracies(group, images, labels)
                except (RuntimeError, MemoryError) as error:  # torch's; the other cells may fit
                    self.done.miss(group, name, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
                    continue
                for cell, accuracy in zip(group, accuracies, strict=True):
                    self.done.add(*cell, name, accuracy)
            advance(len(group))
        refuse_missing("cell", self.done.missing, len(cells), self.done.path)

    def rows(self, cells: Sequence[Cell]) -> tuple[tuple[float, float, str, float], ...]:
        return tuple((x, y, name, self.done.rows[x, y, name]) for x, y in cells for name, _, _ in self.tests)

    def result(self, cells: Sequence[Cell], options: SweepRunOptions) -> SweepResult:
        return SweepResult(
            self.rows(cells), self.plane.formula, round(time.perf_counter() - self.began, 3), options, self.plane.hashes
        )


class _Journal:
    """Rows as they come, one line of JSON each, under a first line that says what they belong to."""

    def __init__(self, path: str | Path | None, key: dict[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self.rows: dict[tuple[float, float, str], float] = {}
        self.missing: dict[str, str] = {}  # cells that could not be measured, and why
        if self.path is None:
            return
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        entries = []
        for number, line in enumerate(lines):
            try:
                entries.append(json.loads(line))
            except ValueError as error:
                if number + 1 < len(lines) or not number:  # only the last may have been cut by a kill
                    raise BadFile(f"{self.path} is not the journal of a sweep: {error}.") from error
        if entries and entries[0] != key:
            raise RequestError(f"{self.path} is the journal of another sweep; choose another file.")
        entries = [
            entry for entry in entries if entry == key or isinstance(entry, list)
        ]  # what was missing is tried again
        self.rows = {(x, y, name): value for x, y, name, value in entries[1:]}
        with write_file(self.path) as draft:  # whole lines only: the next one must not go on where a kill broke off
            draft.write_text("".join(json.dumps(entry) + "\n" for entry in entries or [key]), encoding="utf-8")

    def add(self, alpha: float, beta: float, name: str, accuracy: float) -> None:
        self.rows[alpha, beta, name] = accuracy
        self._write([alpha, beta, name, accuracy])

    def miss(self, cells: Sequence[Cell], name: str, cause: str) -> None:
        for alpha, beta in cells:
            self.missing[f"α = {alpha:g}, β = {beta:g} on {name}"] = cause
            self._write({"missing": [alpha, beta, name], "cause": cause})

    def _write(self, entry: Any) -> None:
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")


def refuse_missing(noun: str, missing: Mapping[str, str], of: int, journal: Path | None) -> None:
    """After all that could be measured is: say what could not."""
    if missing:
        which = some_of([f"{name} ({cause.rstrip('.')})" for name, cause in missing.items()], 8)
        kept = (
            f"the others are in {journal}, and the same call measures only these"
            if journal
            else "no journal was asked for"
        )
        raise JobFailed(f"{len(missing)} of {counted(of, noun)} of this sweep failed: {which}; {kept}.")


def _key(
    plane: Plane,
    tests: Sequence[tuple[str, Tensor, Tensor]],
    calibration: Sequence[Tensor],
    precision: str,
    batch: int | None,
) -> dict[str, Any]:
    """What a journal belongs to: all that its numbers depend on."""
    sizes = {
        name: [
            len(images),
            float(images.double().mean()),
            hashlib.sha256(labels.cpu().long().numpy().tobytes()).hexdigest(),
        ]
        for name, images, labels in tests
    }
    key: dict[str, Any] = {"networks": plane.hashes, "bn": plane.bn, "data": sizes}
    key |= {"calibration": [float(some.double().mean()) for some in calibration]} if calibration else {}
    key |= {"batch": batch} if plane.bn == "batch" else {}
    return key if precision == "auto" else {**key, "precision": precision}


def _check(b: nn.Module | None, beta: Sequence[float]) -> None:
    if b is None and any(value != 0 for value in beta):
        raise RequestError("`beta` belongs to the second network, and there is none.")


def _mixed(tensor: Tensor) -> Tensor:
    """The same images in an order that knows no classes: a batch of one class has other statistics than a set."""
    return tensor[torch.randperm(len(tensor), generator=torch.Generator().manual_seed(0)).to(tensor.device)]


def _calibration(data: Any, tests: Sequence[tuple[str, Tensor, Tensor]], a: Any, b: Any, where: Any) -> list[Tensor]:
    """Batches of images of all sets on which statistics are measured: as many of each, mixed."""
    share = -(-CALIBRATION // len(tests))
    sets = list(data.values()) if isinstance(data, Mapping) else list(data)
    some = []
    for number, (one, (_, images, _)) in enumerate(zip(sets, tests, strict=True)):
        chosen = images
        if isinstance(one, ImageData) and len(one.train_images):
            raw = drawn_images(one.train_images, share, 0)
            chosen = as_input(torch.as_tensor(raw), _ways(a, b)[number], where).to(images.dtype)
        some.append(_mixed(chosen)[:share])
    if len({one.shape[1:] for one in some}) > 1:
        return [batch for one in some for batch in batches_of(one, CALIBRATION_BATCH)]
    return list(batches_of(_mixed(torch.cat(some)), CALIBRATION_BATCH))


def _ways(a: nn.Module, b: nn.Module | None) -> Any:
    """How the images of the k-th set are prepared: as a wants it for the first, as b does from then on."""
    ways = [origin_of(m).preprocessing for m in (a, b) if m is not None]
    return defaultdict(lambda: ways[-1], {0: ways[0]})


def _tests(data: Any, a: nn.Module, b: nn.Module | None, where: torch.device) -> list[tuple[str, Tensor, Tensor]]:
    given = dict(data) if isinstance(data, Mapping) else {_name(d, k): d for k, d in enumerate(data)}
    if not given or (not isinstance(data, Mapping) and len(given) != len(data)):
        raise BadData("a sweep needs data sets, each with a name of its own.")
    dtype = next(p.dtype for p in a.parameters())
    result = []
    names = origin_of(a).classes
    for number, (name, one) in enumerate(given.items()):
        one = pair_of_dataset(one, names)
        images, labels = (one.test_images, _outputs(one, a, b)) if isinstance(one, ImageData) else one
        prepared = as_input(images, _ways(a, b)[number], where)
        answers = torch.as_tensor(labels).to(where)
        if answers.shape != (len(prepared),) or not len(answers):
            raise BadData(f"{name}: {len(prepared)} images and labels of shape {tuple(answers.shape)}.")
        prepared = prepared.to(dtype)
        if prepared.dim() == 4:
            prepared = prepared.contiguous(memory_format=torch.channels_last)
        result.append((name, prepared, answers))
    return result


def _outputs(data: ImageData, a: nn.Module, b: nn.Module | None) -> Any:
    """Which output each test image should have: by the classes' names as a or b has them, else by their order."""
    known = [origin_of(m).classes for m in (a, b) if m is not None]
    for names in known:
        if names is not None and set(data.classes) <= set(names):
            return np.array([names.index(name) for name in data.classes])[data.test_labels]
    outputs = max((len(names) for names in known if names is not None), default=len(data.classes))
    if len(data.classes) > outputs:
        raise BadData(
            f"{data.name} has {len(data.classes)} classes and the networks {outputs} outputs; select the classes they "
            "know, or as many, in the order of the outputs."
        )
    return data.test_labels


def _name(data: Any, number: int) -> str:
    return data.name if isinstance(data, ImageData) else f"data {number}"
