"""Merging beyond paper 1: networks without batch norm that were trained apart, numbers of a recipe searched, masks of tasks.

Nothing is chosen here: every method has its defaults, and the search chooses on the half of the test images that does not
judge it. The networks are small and trained on one thread of a CPU in minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork import data, zoo
from brickwork.algebra import mask_merge, merge, merge_on, search_merge
from brickwork.data.images import ImageData, hold_out
from brickwork.origin import attach, origin_of
from brickwork_lab.judging import share_right
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, averaged, some_of, study

Sets = list[tuple[np.ndarray, np.ndarray]]  # of each task, images and labels that judge
#: method and options; with None the plain mean
WAYS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "mean of the weights": (None, {}),
    "mean of the weights, repair": ("linear", {"repair": True}),
    "rebasin": ("rebasin", {}),
    "rebasin, repair": ("rebasin", {"repair": True}),
    "rebasin by activations": ("rebasin", {"by": "activations"}),
    "rebasin by activations, repair": ("rebasin", {"by": "activations", "repair": True}),
    "zipit": ("zipit", {}),
    "zipit, repair": ("zipit", {"repair": True}),
    "fisher": ("fisher", {}),
    "fisher, repair": ("fisher", {"repair": True}),
    "regmean": ("regmean", {}),
    "regmean, repair": ("regmean", {"repair": True}),
    "match, one ridge, no refits": ("match", {"ridge": 1e-3, "refits": 0}),
    "match": ("match", {}),
}
SEARCHED: dict[str, dict[str, tuple[float, float]]] = {
    "linear": {"weights": (0, 1.5)},
    "task_arithmetic": {"weights": (0, 1.5)},
    "ties": {"density": (0.05, 1), "weights": (0, 2)},
    "dare": {"density": (0.05, 1), "weights": (0, 2)},
}


@dataclass(frozen=True)
class Apart:
    """Networks that answer on the same outputs, images of each without labels, and what judges them."""

    networks: list[nn.Module]
    unlabelled: list[np.ndarray]
    judged: Sets

    def row(self, what: str, models: list[nn.Module], lab: Lab, **facts: Any) -> Row:
        """One model for all tasks, or one for each; `ours` is the task that is served worst."""
        rates = [100 * share_right(m, x, y) for m, (x, y) in zip(models, self.judged, strict=True)]
        tasks = dict(zip("ab", np.round(rates, 2).tolist(), strict=False)) if len(rates) > 1 else {}
        return {"what": what, "paper": None, "ours": round(min(rates), 2), **tasks, **facts, "seed": lab.seed}


@study("merge-apart", paper="1, beyond its networks", trains=False)
def merge_apart(lab: Lab, *, sets: Names = None, seeds: int | None = None) -> Iterator[Row]:
    """Two networks without batch norm, trained apart from two starts, merged in every way: the worse task."""
    makers = {"digits": two_tasks, **({"cifar10": one_task} if lab.full else {})}
    for name, make in some_of(makers, sets, "data set").items():
        yield from averaged([_every_way(run, name, make(run)) for run in _runs(lab, seeds)])


def _every_way(lab: Lab, name: str, apart: Apart) -> Iterator[Row]:
    tasks = len(apart.judged)
    for k, net in enumerate(apart.networks):
        yield apart.row(f"{name}: network {k} alone", [net] * tasks, lab, labels=0, unlabelled=0)
    for way, (method, options) in WAYS.items():
        if method is None:
            merged, seen = merge(apart.networks), 0
        else:
            merged = merge_on(apart.networks, apart.unlabelled, method, **options, progress=False)
            seen = sum(map(len, apart.unlabelled))
        yield apart.row(f"{name}: {way}", [merged] * tasks, lab, labels=0, unlabelled=seen)


@study("merge-search", paper="1, beyond its networks", trains=False)
def merge_search(lab: Lab, *, picks: Names = None, seeds: int | None = None) -> Iterator[Row]:
    """Numbers of a recipe searched on labelled images, the worse task counting: half of the test images choose, half judge."""
    wanted = some_of(SEARCHED, picks, "merge method")
    yield from averaged([_searched(run, wanted) for run in _runs(lab, seeds)])


def _searched(lab: Lab, wanted: dict[str, dict[str, tuple[float, float]]]) -> Iterator[Row]:
    nets, halves, start = one_start(lab)
    parts = [hold_out(half.test_labels, 0.5) for half in halves]
    choose, judge = (
        [(half.test_images[part[k]], half.test_labels[part[k]]) for half, part in zip(halves, parts, strict=True)]
        for k in (0, 1)
    )
    apart = Apart(nets, [], judge)
    tries = 60 if lab.full else 12
    for method, ranges in wanted.items():
        base: dict[str, Any] = {} if method == "linear" else {"base": start}
        given = merge(nets, method, **base)
        yield apart.row(f"{method}, its defaults", [given] * 2, lab, labels=0, tries=0)
        how: dict[str, Any] = {"tries": tries, "score": "worst", "progress": False, **base}
        found = search_merge(nets, choose, method, search=ranges, **how)
        assert found.model is not None
        labels = sum(len(y) for _, y in choose)
        yield apart.row(f"{method}, searched", [found.model] * 2, lab, labels=labels, tries=tries)


@study("merge-masks", paper="1, beyond its networks", trains=False)
def merge_masks(lab: Lab, *, seeds: int | None = None) -> Iterator[Row]:
    """Two tasks from one start: each network alone, one merged with the mask of each task, and the mean."""
    yield from averaged([_masked(run) for run in _runs(lab, seeds)])


def _masked(lab: Lab) -> Iterator[Row]:
    nets, halves, start = one_start(lab)
    apart = Apart(nets, [], [(half.test_images, half.test_labels) for half in halves])
    emr, tall = mask_merge(nets, base=start), mask_merge(nets, base=start, rule="tall")
    for what, models in (
        ("each alone", nets),
        ("each with its mask", [emr.network(start, k) for k in range(2)]),
        ("each with its tall mask", [tall.network(start, k) for k in range(2)]),
        ("consensus of tall masks, one network", [tall.consensus(start)] * 2),
        ("mean of the weights, one network", [merge(nets)] * 2),
    ):
        yield apart.row(what, models, lab, labels=0, unlabelled=0)


def _runs(lab: Lab, seeds: int | None) -> list[Lab]:
    return [lab.reseeded(k) for k in range(seeds or (3 if lab.full else 1))]


def two_tasks(lab: Lab) -> Apart:
    """Halves of the digits from two starts; all training images, without labels, for the methods."""
    nets, halves = _digits(lab, (10 * lab.seed, 10 * lab.seed + 1), 30)
    judged = [(half.test_images, half.test_labels) for half in halves]
    return Apart(nets, [half.train_images for half in halves], judged)


def one_task(lab: Lab) -> Apart:
    """Two halves of 10,000 images of CIFAR-10, ten classes each, from two starts; 1000 images of each for the methods."""
    cifar = data.load("cifar10", size=16, progress=lab.progress)
    order = np.random.default_rng(lab.seed).permutation(len(cifar.train_labels))
    nets, unlabelled = [], []
    for k in range(2):
        seed, part = 10 * lab.seed + k, order[5000 * k : 5000 * (k + 1)]
        own = replace(cifar, train_images=cifar.train_images[part], train_labels=cifar.train_labels[part])
        how: dict[str, Any] = {"epochs": 12, "batch_size": 64, "lr": 0.02, "preprocessing": cifar.preprocessing()}
        nets.append(lab.train(small_vgg(seed), own, seed=seed, **how))
        unlabelled.append(own.train_images[:1000])
    return Apart(nets, unlabelled, [(cifar.test_images[:5000], cifar.test_labels[:5000])])


def one_start(lab: Lab) -> tuple[list[nn.Module], list[ImageData], nn.Module]:
    """A network for each half of the digits from one start, the halves, and that start."""
    nets, halves = _digits(lab, (lab.seed, lab.seed), 15)
    start = _lenet(lab.seed)
    attach(start, replace(origin_of(start), preprocessing=origin_of(nets[0]).preprocessing))
    return nets, halves, start.to(lab.where)


def _digits(lab: Lab, starts: tuple[int, int], epochs: int) -> tuple[list[nn.Module], list[ImageData]]:
    """A LeNet for each half of the digits, both halves numbered 0 to 4 on the same outputs."""
    common = data.load("digits", size=16, channels=1).preprocessing()
    halves = [data.load(f"digits:{half}", size=16, channels=1) for half in "AB"]
    how: dict[str, Any] = {"epochs": epochs if lab.full else 10, "batch_size": 32, "lr": 0.02, "preprocessing": common}
    nets = [lab.train(_lenet(start), half, **how) for half, start in zip(halves, starts, strict=True)]
    return nets, halves


def _lenet(seed: int) -> nn.Module:
    return zoo.build("lenet", num_classes=5, in_channels=1, seed=seed)


def small_vgg(seed: int) -> nn.Module:
    """Five convolutions of 32 to 128 channels and two linear layers, for images of 16×16."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    channels = 3
    for width in (32, 32, None, 64, 64, None, 128, None):
        if width is None:
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10))
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return net
