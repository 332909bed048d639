"""The table of docs/algebra.md on networks without batch norm: every way to merge two of them that were trained apart.

    OMP_NUM_THREADS=1 BRICKWORK_DATA=… python studies/merging_without_batch_norm.py digits|cifar10|search|masks

About one minute for the digits and ten for CIFAR-10 on one core. Nothing is chosen here: every method has its defaults, and
the search chooses on the half of the test images that does not judge it.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork import data, zoo
from brickwork.algebra import mask_merge, merge, merge_on, search_merge
from brickwork.data.images import hold_out
from brickwork.origin import attach, origin_of
from brickwork.prediction import predict
from brickwork.training import train

SEEDS = 3
QUIET: dict[str, Any] = {"progress": False}
#: method and options; with None the plain mean
WAYS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "mean of the weights": (None, {}),
    "the same, `repair`": ("linear", {"repair": True}),
    "`rebasin`": ("rebasin", {}),
    "`rebasin`, `repair`": ("rebasin", {"repair": True}),
    "`rebasin`, `by=activations`": ("rebasin", {"by": "activations"}),
    "`rebasin`, `by=activations`, `repair`": ("rebasin", {"by": "activations", "repair": True}),
    "`zipit`": ("zipit", {}),
    "`zipit`, `repair`": ("zipit", {"repair": True}),
    "`fisher`": ("fisher", {}),
    "`fisher`, `repair`": ("fisher", {"repair": True}),
    "`regmean`": ("regmean", {}),
    "`regmean`, `repair`": ("regmean", {"repair": True}),
    "`match`": ("match", {}),
}
Judge = Callable[[nn.Module], list[float]]


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
            nn.init.zeros_(layer.bias)
    return net


def digits(seed: int, starts: tuple[int, int], epochs: int) -> tuple[list[nn.Module], list[data.ImageData]]:
    """A LeNet for each half of the digits, both halves numbered 0 to 4 on the same outputs."""
    common = data.load("digits", size=16, channels=1).preprocessing()
    halves = [data.load(f"digits:{half}", size=16, channels=1) for half in "AB"]
    nets = []
    for half, start in zip(halves, starts, strict=True):
        net = zoo.build("lenet", num_classes=5, in_channels=1, seed=start)
        how: dict[str, Any] = {"epochs": epochs, "batch_size": 32, "lr": 0.02, "preprocessing": common, "seed": seed}
        train(net, half.train_images, half.train_labels, device="cpu", **how, **QUIET)
        nets.append(net.eval())
    return nets, halves


def two_tasks(seed: int) -> tuple[list[nn.Module], list[Any], Judge]:
    """Halves of the digits from two starts; all training images, without labels, for the methods."""
    nets, halves = digits(seed, (10 * seed, 10 * seed + 1), 30)

    def judge(model: nn.Module) -> list[float]:
        return [_share(model, half.test_images, half.test_labels) for half in halves]

    return nets, [half.train_images for half in halves], judge


def one_task(seed: int) -> tuple[list[nn.Module], list[Any], Judge]:
    """Two halves of 10,000 images of CIFAR-10, ten classes each, from two starts; 1000 images of each for the methods."""
    cifar = data.load("cifar10", size=16)
    order = np.random.default_rng(seed).permutation(len(cifar.train_labels))
    nets, sets = [], []
    for k in range(2):
        part, net = order[5000 * k : 5000 * (k + 1)], small_vgg(10 * seed + k)
        how: dict[str, Any] = {"epochs": 12, "batch_size": 64, "lr": 0.02, "seed": 10 * seed + k}
        how["preprocessing"] = cifar.preprocessing()
        train(net, cifar.train_images[part], cifar.train_labels[part], device="cpu", **how, **QUIET)
        nets.append(net.eval())
        sets.append(cifar.train_images[part[:1000]])
    return nets, sets, lambda model: [_share(model, cifar.test_images[:5000], cifar.test_labels[:5000])]


def _share(model: nn.Module, images: Any, labels: np.ndarray) -> float:
    return 100 * float((predict(model, images).argmax(1).numpy() == labels).mean())


def compare(make: Callable[[int], tuple[list[nn.Module], list[Any], Judge]]) -> None:
    rows: dict[str, list[list[float]]] = {}
    for seed in range(SEEDS):
        nets, sets, judge = make(seed)
        for k, net in enumerate(nets):
            rows.setdefault(f"network {k} alone", []).append(judge(net))
        for what, (method, options) in WAYS.items():
            merged = merge(nets) if method is None else merge_on(nets, sets, method, **options, **QUIET)
            rows.setdefault(what, []).append(judge(merged))
    _print(rows)


def search() -> None:
    """Worst set counts, 60 tries; half of the test images choose, the other half judges."""
    rows: dict[str, list[list[float]]] = {}
    for seed in range(SEEDS):
        nets, halves = digits(seed, (seed, seed), 15)
        zero = zoo.build("lenet", num_classes=5, in_channels=1, seed=seed)
        attach(zero, replace(origin_of(zero), preprocessing=origin_of(nets[0]).preprocessing))
        parts = [hold_out(half.test_labels, 0.5) for half in halves]
        sets = [(h.test_images[use], h.test_labels[use]) for h, (use, _) in zip(halves, parts, strict=True)]

        def judge(model: nn.Module, halves: Any = halves, parts: Any = parts) -> list[float]:
            return [_share(model, h.test_images[p], h.test_labels[p]) for h, (_, p) in zip(halves, parts, strict=True)]

        density, weights = {"density": (0.05, 1)}, {"weights": (0, 2)}
        for method, ranges in (
            ("linear", {"weights": (0, 1.5)}),
            ("task_arithmetic", {"weights": (0, 1.5)}),
            ("ties", density | weights),
            ("dare", density | weights),
        ):
            base: dict[str, Any] = {} if method == "linear" else {"base": zero}
            found = search_merge(nets, sets, method, search=ranges, tries=60, score="worst", **base, **QUIET)
            assert found.model is not None
            for what, model in ((method, merge(nets, method, **base)), (f"{method}, searched", found.model)):
                rates = judge(model)
                rows.setdefault(what, []).append([*rates, min(rates)])
    _print(rows)


def masks() -> None:
    """Halves of the digits from one start: each network alone, with the mask of its task, and the mean."""
    rows: dict[str, list[list[float]]] = {}
    for seed in range(SEEDS):
        nets, halves = digits(seed, (seed, seed), 15)
        zero = zoo.build("lenet", num_classes=5, in_channels=1, seed=seed)
        attach(zero, origin_of(nets[0]))
        found = mask_merge(nets, base=zero)
        print(found, [round(scale, 3) for scale in found.scales])
        tall = mask_merge(nets, base=zero, rule="tall")
        for what, two in (
            ("each alone", nets),
            ("`mask_merge`, each with its mask", [found.network(zero, k) for k in range(2)]),
            ("the same, `rule=tall`", [tall.network(zero, k) for k in range(2)]),
            ("`consensus` of tall masks, one network", [tall.consensus(zero)] * 2),
            ("mean of the weights", [merge(nets)] * 2),
        ):
            shares = [_share(m, h.test_images, h.test_labels) for m, h in zip(two, halves, strict=True)]
            rows.setdefault(what, []).append(shares)
    _print(rows)


def _print(rows: dict[str, list[list[float]]]) -> None:
    for what, runs in rows.items():
        cells = [f"{np.mean(c):.1f} ± {np.std(c, ddof=1):.1f}" for c in zip(*runs, strict=True)]
        print(f"| {what} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    runs = {
        "digits": lambda: compare(two_tasks),
        "cifar10": lambda: compare(one_task),
        "search": search,
        "masks": masks,
    }
    runs[sys.argv[1]]()
