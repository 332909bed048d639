"""Two networks into one without labels: every way beside the paper's, judged on both tasks.

Whatever has to be chosen (how much a task counts) is chosen without labels too: by how often the merged network agrees
with each network on unlabelled training images of its task.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.algebra import balanced_point, merge, merge_on, own_heads, rebasin, refit_head, repair
from brickwork.data.images import ImageData
from brickwork.data.pixels import as_input
from brickwork.devices import device_of
from brickwork.origin import origin_of
from brickwork.prediction import predict
from brickwork.training import train
from brickwork_lab.judging import share_right
from brickwork_lab.studies.registry import Row

SMOKE = {"epochs": 2, "batch_size": 50, "augment": "none"}
BALANCED = {"fuse": 62.2, "assign": 61.4}  # the paper's worse task at its balanced cells (Tables 6, 1 and 10, 11)

Judged = tuple[np.ndarray, np.ndarray]  # images and labels
Two = tuple[nn.Module, nn.Module]  # what answers for task A, and for task B; often the same


@dataclass
class Pair:
    """Two networks that share their outputs, and their tasks."""

    networks: list[nn.Module]
    tasks: list[ImageData]
    full: bool
    progress: bool

    def unlabelled(self, count: int) -> list[np.ndarray]:
        """Training images of both tasks, of all classes, always the same ones; none of those that choose."""
        return [task.train_images[order[self._held :][:count]] for task, order in self._orders()]

    @property
    def test_sets(self) -> dict[str, Judged]:
        return {who: (task.test_images, task.test_labels) for who, task in zip("AB", self.tasks, strict=True)}

    def accuracies(self, model: nn.Module, judged: dict[str, Judged] | None = None) -> list[float]:
        """Per cent right on both tasks' test images (or others), label k being output k."""
        sets = judged or self.test_sets
        return [round(100 * share_right(model, *sets[who], batch_size=2000), 2) for who in "AB"]

    def best(self, candidates: Iterable[Two]) -> Two:
        """What agrees best with the network that it agrees least with, on images kept for that."""
        images = [task.train_images[order[: self._held]] for task, order in self._orders()]
        wanted = [predict(net, some).argmax(1) for net, some in zip(self.networks, images, strict=True)]

        def worst(two: Two) -> float:
            rates = [(predict(m, x).argmax(1) == y).float().mean() for m, x, y in zip(two, images, wanted, strict=True)]
            return float(min(rates))

        return max(candidates, key=worst)

    @property
    def _held(self) -> int:
        return 1000 if self.full else 100

    def _orders(self) -> Iterator[tuple[ImageData, np.ndarray]]:
        for task in self.tasks:
            yield task, np.random.default_rng(0).permutation(len(task.train_labels))


def methods(pair: Pair, zero: nn.Module, facts: Row, *, whole: bool) -> Iterator[Row]:
    """A row per method: the worse of both accuracies, and both of them."""
    nets = pair.networks
    images, many = (pair.unlabelled(n) for n in ((3000, 10_000) if pair.full else (150, 300)))
    shares = [[w, 1 - w] for w in ((0.35, 0.43, 0.5, 0.57, 0.65) if pair.full else (0.4, 0.6))]

    def row(what: str, two: Two, **more: Any) -> Row:
        a, b = (pair.accuracies(model)[k] for k, model in enumerate(two))
        what = f"{facts['setting']}: {what}"
        return {"what": what, "paper": None, "ours": min(a, b), "A": a, "B": b, **more, **facts}

    def one(model: nn.Module) -> Two:
        return model, model

    yield from _searched(pair, zero, facts)
    example = as_input(images[0][:2], origin_of(nets[0]).preprocessing, device_of(nets[0]))
    for word, others in (("", nets), ("re-basin, ", [nets[0], rebasin(nets[0], nets[1], example)])):
        means = (one(repair(merge(others, weights=w), _mixed(images))) for w in shares)
        yield row(f"{word}mean, new statistics", pair.best(means))
    began = time.perf_counter()
    even = merge_on(nets, images, "match", progress=pair.progress)
    yield row("responses matched", one(even), seconds=round(time.perf_counter() - began, 2))
    trunks = [merge_on(nets, images, "match", weights=w, progress=pair.progress) for w in shares]
    trunk = pair.best(one(t) for t in trunks)[0]
    yield row("responses matched, tasks weighted", one(trunk))
    pairs = [(t, w) for t, share in zip(trunks, shares, strict=True) for w in ([0.5, 0.5], share)]
    for goal, ridge in (("soft", 1e-3), ("entropy", 1e-2)):
        heads = (one(refit_head(t, nets, many, goal=goal, ridge=ridge, weights=w)) for t, w in pairs)
        yield row(f"responses matched, one head fitted ({goal})", pair.best(heads))
    apart = [own_heads(t, nets, many, goal="entropy", ridge=1e-2) for t in trunks]
    yield row("responses matched, own heads", pair.best((a, b) for a, b in apart))
    if not whole:
        return
    options: dict[str, Any] = {"goal": "teachers", "steps": 200 if pair.full else 10, "batch_size": 64, "lr": 1e-2}
    learned = merge_on(nets, images, "adamerging", base=zero, progress=pair.progress, **options)
    yield row("coefficients learned from the networks' answers", one(learned))
    began = time.perf_counter()
    taught = distilled(merge(nets), pair)
    seconds = round(time.perf_counter() - began, 2)
    yield row("mean, trained towards the networks' answers", one(taught), seconds=seconds)
    a, b = own_heads(taught, nets, many, goal="entropy", ridge=1e-2)
    yield row("mean, trained towards the networks' answers, own heads", (a, b))


def _searched(pair: Pair, zero: nn.Module, facts: Row) -> Iterator[Row]:
    """The paper's own method where it is best for both: found by search on the test images, as the paper's cells are."""
    options: dict[str, Any] = {"step": 0.2, "smallest": 0.02, "tries": 60, "bn": "batch", "progress": False}
    options["precision"] = "bf16" if device_of(pair.networks[0]).type == "cuda" else "auto"
    for way in ("fuse", "assign"):
        base = zero if way == "assign" else None
        best = balanced_point(*pair.networks, base=base, data=pair.test_sets, **options).balanced()
        a, b = (round(100 * best["accuracy"][who], 2) for who in "AB")
        what, paper = f"{facts['setting']}: {way}, the paper's way, balanced", BALANCED[way] if pair.full else None
        row: Row = {"what": what, "paper": paper, "ours": min(a, b), "A": a, "B": b}
        yield {**row, "alpha": best["alpha"], "beta": best["beta"], **facts}


def _mixed(images: list[np.ndarray]) -> np.ndarray:
    every = np.concatenate(images)
    return every[np.random.default_rng(0).permutation(len(every))]


def distilled(start: nn.Module, pair: Pair) -> nn.Module:
    """`start` trained on unlabelled images of both tasks, each towards what its own network says of it."""
    images = pair.unlabelled(10_000 if pair.full else 300)
    who = np.repeat([0, 1], [len(some) for some in images])

    def towards(x: Tensor, logits: Tensor, task: Tensor) -> Tensor:
        with torch.no_grad():
            answers = torch.stack([net(x).float().softmax(1) for net in pair.networks])
        return F.cross_entropy(logits.float(), answers[task, torch.arange(len(x), device=x.device)])

    settings: dict[str, Any] = {"seed": 0, "lr": 0.02, "weight_decay": 5e-4, "schedule": "onecycle"}
    settings |= {"epochs": 12, "batch_size": 256, "augment": "crop+flip"} if pair.full else SMOKE
    settings |= {"device": device_of(pair.networks[0]), "progress": pair.progress}
    train(start, np.concatenate(images), who, loss=lambda logits, _: 0 * logits.sum(), penalty=towards, **settings)
    return start.eval()
