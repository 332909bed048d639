"""Methods that keep sums over the images of each class and train nothing: the last layer follows in closed form.

Every class is described on the same features of the start, whatever task it came with, so that classes of different tasks
can be compared: these are the methods to beat where the task of an image is not known (`protocol="class"`).
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.continual.base import RewrittenFile
from brickwork.continual.bench import TRUNK, Bench
from brickwork.continual.files import write_tensors
from brickwork.continual.registry import method
from brickwork.copying import copy_module
from brickwork.data.images import ImageData, hold_out
from brickwork.errors import BadData
from brickwork.moments import Moments, solve_ridge
from brickwork.moments.readout import read_features
from brickwork.options import option
from brickwork.store.weights import read_safetensors

PROJECTED = 4096  # images projected at once
RIDGES = tuple(10.0**k for k in range(-6, 2))  # of the mean variance of a feature; the best is found on held-out images


class ClassStatistics(RewrittenFile):
    """A trunk that stays as it is, and one file of sums that grows by the classes of each task."""

    prefix = "statistics"

    def begin(self, bench: Bench) -> None:
        bench.keep_trunk()

    def own(self, bench: Bench, number: int) -> list[Path]:
        return []

    def shared(self, bench: Bench, after: int) -> list[Path]:
        return [bench.path(TRUNK), self.file(bench, after)]

    def opening(self, bench: Bench, number: int) -> nn.Module:
        return bench.trunk()

    @abstractmethod
    def last_layer(self, bench: Bench, after: int, rows: slice) -> nn.Module:
        """From the features to the logits of some of the classes so far."""

    def network(self, bench: Bench, number: int, after: int) -> nn.Module | None:
        return self._with(bench, self.last_layer(bench, after, _rows(bench, number)))

    def whole(self, bench: Bench, after: int) -> nn.Module | None:
        return self._with(bench, self.last_layer(bench, after, slice(0, _rows(bench, after).stop)))

    def _with(self, bench: Bench, layer: nn.Module) -> nn.Module:
        model = copy_module(bench.trunk())
        old: Any = model.get_submodule(bench.head)
        model.set_submodule(bench.head, layer.to(old.weight.dtype))
        return model.to(bench.device).eval()

    def features(self, bench: Bench, task: ImageData) -> Tensor:
        """Of the training images of a task, (n, d)."""
        return read_features(bench.trunk().to(bench.device), bench.head, task.train_images)

    def before(self, bench: Bench, number: int) -> dict[str, Tensor]:
        """The sums of the tasks so far."""
        return read_safetensors(self.file(bench, number - 1)) if number else {}


def _rows(bench: Bench, number: int) -> slice:
    """Where the classes of a task stand among all."""
    first = sum(len(task.classes) for task in bench.scenario.tasks[:number])
    return slice(first, first + len(bench.task(number).classes))


@method("ncm")
class NearestMean(ClassStatistics):
    """The class whose mean feature is nearest; a mean per class is all that is kept beside the start."""

    def learn(self, bench: Bench, number: int) -> None:
        task = bench.task(number)
        features, labels = self.features(bench, task), torch.as_tensor(task.train_labels)
        missing = [name for k, name in enumerate(task.classes) if not bool((labels == k).any())]
        if missing:
            raise BadData(f"{task.name} has no training images of {missing[0]!r}, so that there is no mean; give some.")
        new = torch.stack([features[labels == k].mean(0) for k in range(len(task.classes))]).float()
        known = self.before(bench, number).get("means", new[:0])
        write_tensors(self.file(bench, number), {"means": torch.cat([known, new])})

    def last_layer(self, bench: Bench, after: int, rows: slice) -> nn.Module:
        means = read_safetensors(self.file(bench, after))["means"][rows].double()
        return _linear(means, -means.square().sum(1) / 2)  # the nearest mean has the largest x·m − |m|²/2


@method("ranpac")
class RandomProjection(ClassStatistics):
    """Features projected at random, past a ReLU, and ridge regression onto the labels of all classes (2307.02251).

    The paper first adapts its network to the first task; this is what it does afterwards. The ridge is chosen on a fifth of each
    task's training images.
    """

    width: int = option(default=2000, at_least=1, help="Random features.")

    def learn(self, bench: Bench, number: int) -> None:
        task = bench.task(number)
        rows, total = _rows(bench, number), _rows(bench, number).stop
        features = self.features(bench, task).float()
        target = torch.zeros(len(features), total)
        target[torch.arange(len(features)), torch.as_tensor(task.train_labels) + rows.start] = 1
        stored = self.before(bench, number)
        known = Moments.empty(self.width, total)
        if stored:
            known.gram.copy_(stored["gram"])
            known.cross[:, : rows.start].copy_(stored["cross"])
            known.sum_x.copy_(stored["sum_x"])
            known.sum_y[: rows.start].copy_(stored["sum_y"])
            known.rows = float(stored["sum_y"].sum())  # every image has one class
        known.sum_yy.copy_(known.sum_y)  # the squares of ones
        use, held = (torch.from_numpy(some) for some in hold_out(task.train_labels))
        for some in use.split(PROJECTED):  # all of them together are many times the features
            known.add(self.projected(bench, features[some]), target[some])
        x = self.projected(bench, features[held])
        ridge = _best_ridge(known, x, target[held]) if len(held) else RIDGES[len(RIDGES) // 2]
        known.add(x, target[held])
        kept = {"gram": known.gram, "cross": known.cross, "sum_x": known.sum_x, "sum_y": known.sum_y}
        write_tensors(
            self.file(bench, number), {name: t.float() for name, t in kept.items()} | {"ridge": torch.tensor(ridge)}
        )

    def last_layer(self, bench: Bench, after: int, rows: slice) -> nn.Module:
        fit = self._solved(bench, after)
        head = _linear(fit["weight"][:, rows].mT, fit["bias"][rows])
        return nn.Sequential(_Projected(self.directions(bench)), nn.ReLU(), head)

    def directions(self, bench: Bench) -> Tensor:
        """(d, width), the same for the same seed; of unit variance on features of unit size."""
        head: Any = bench.start.get_submodule(bench.head)
        drawn = torch.Generator().manual_seed(bench.seed)
        return torch.randn(head.in_features, self.width, generator=drawn) / head.in_features**0.5

    def projected(self, bench: Bench, features: Tensor) -> Tensor:
        return (features @ self.directions(bench)).relu()

    def _solved(self, bench: Bench, after: int) -> dict[str, Tensor]:
        """The last layer of all classes after a task; solved once."""
        place = str(self.file(bench, after))
        if bench.held.get("solved", (None,))[0] != place:
            stored = {name: t.double() for name, t in read_safetensors(self.file(bench, after)).items()}
            sums = {name: stored[name] for name in ("gram", "cross", "sum_x", "sum_y")}
            fit = solve_ridge(
                Moments(**sums, sum_yy=stored["sum_y"], rows=float(stored["sum_y"].sum())), ridge=float(stored["ridge"])
            )
            assert fit.bias is not None
            bench.held["solved"] = place, {"weight": fit.weight, "bias": fit.bias}
        return bench.held["solved"][1]


def _best_ridge(seen: Moments, x: Tensor, target: Tensor) -> float:
    """The ridge whose answers are nearest to the labels of images that were not seen."""

    def error(ridge: float) -> float:
        fit = solve_ridge(seen, ridge=ridge)
        assert fit.bias is not None
        return float((x.double() @ fit.weight + fit.bias - target.double()).square().sum())

    return min(RIDGES, key=error)


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    """A linear layer with these values."""
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer


class _Projected(nn.Module):
    """Fixed linear features."""

    directions: Tensor

    def __init__(self, directions: Tensor) -> None:
        super().__init__()
        self.register_buffer("directions", directions)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim > 2:  # as features are read to learn: the mean over places, which then all answer the same
            x = x.flatten(1, -2).mean(1).reshape(len(x), *[1] * (x.ndim - 2), -1).expand_as(x)
        return x @ self.directions.to(x)
