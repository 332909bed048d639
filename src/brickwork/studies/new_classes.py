"""Paper 5, Tables 2 and 4: new classes out of a frozen network's logits, against training everything.

The network never sees a few images a class of its own classes (HELD): logits of images it was trained on are surer than
any others', and Θ would learn that doubt means a new class. Both are measured: those images, and the seen ones.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork.data.images import ImageData
from brickwork.dependencies.heads import Head, fit_head
from brickwork.dependencies.new_classes import answers, source_of
from brickwork.prediction import predict
from brickwork.studies.registry import Row, Run, study
from brickwork.studies.workshop import Workshop, some_of
from brickwork.training import settings_for, train

#: new classes: the paper's accuracy (ImageNet, ResNet-50; 1000 classes for our 100): ours and full training,
#: and of the base and the new classes apart (Table 4)
PICKS: dict[str, tuple[int, tuple[float, float], tuple[float, float]]] = {
    "90+10": (10, (68.03, 68.47), (68.65, 71.06)),
    "95+5": (5, (68.45, 68.47), (0.0, 0.0)),
    "99+1": (1, (68.46, 68.47), (0.0, 0.0)),
}
SMALL = {"8+2": (2, (0.0, 0.0), (0.0, 0.0)), "9+1": (1, (0.0, 0.0), (0.0, 0.0))}
BINARY = (61.50, 60.70)  # the paper's 999 → 1 on as many images of the new class as of others
HELD = {"cifar100": 480, "digits": 110}  # images a class that the network sees; it does not see the others
SHOTS = 5


@study("new-classes", paper="5, Tables 2, 4")
def new_classes(
    run: Run,
    *,
    archs: tuple[str, ...] | None = None,
    picks: tuple[str, ...] | None = None,
    seeds: int | None = None,
) -> Iterator[Row]:
    """Classes added to a frozen network by a matrix on its logits: joint accuracy and time, against full training."""
    source = "cifar100" if run.full else "digits"
    first = Workshop.of(run)
    shops = [
        Workshop.of(run, seed=run.seed + k, _sets=first._sets) for k in range(seeds or (5 if run.full else 1))
    ]
    for arch in first.archs(archs, ("resnet18",)):
        for pick, (count, paper, apart) in some_of(PICKS if run.full else SMALL, picks).items():
            found: dict[str, list[dict[str, float]]] = {}
            for shop in shops:
                for way, numbers in _one_run(shop, source, arch, count).items():
                    found.setdefault(way, []).append(numbers)
            for way, runs in found.items():
                yield _row(f"{source} {arch} {pick}, {way}", runs, paper, apart, run.seed)
                if count == 1:
                    binary = [{"ours": r["binary"], "whole": r["whole_binary"]} for r in runs]
                    yield _row(
                        f"{source} {arch} {pick}, {way}, as many others",
                        binary,
                        BINARY if run.full else (0, 0),
                        (0, 0),
                        run.seed,
                    )


def _one_run(shop: Workshop, source: str, arch: str, count: int) -> dict[str, dict[str, float]]:
    """One seed: the base network, all ways to add the classes, and the network trained on everything."""
    amount = HELD[source]
    whole = shop.data(source)
    total = len(whole.classes)
    last = total - 1 - (total // 5) * (shop.seed % 5)  # other seeds, other classes
    new = list(range(last - count + 1, last + 1))
    old = [c for c in range(total) if c not in new]
    spec = f"{source}:" + ",".join(
        f"{a}-{b}" for a, b in ((0, new[0] - 1), (new[-1] + 1, total - 1)) if a <= b
    )
    base, everything = shop.network(arch, f"{spec}@{amount}"), shop.network(arch, source)
    seen, fresh, known = shop.data(f"{spec}@{amount}"), whole.select(new), whole.select(old)
    held = _unseen(known, seen)
    began = time.perf_counter()
    sources = {on: source_of(base, fresh.train_images, on) for on in ("features", "depths")}
    images = {"new": fresh.train_images, "held": known.train_images[held]}
    read: dict[str, dict[str, Any]] = {
        on: {name: answers(base, x, source) for name, x in images.items()} for on, source in sources.items()
    }
    forward = (time.perf_counter() - began) / len(sources)
    images = {"seen": seen.train_images, "test": whole.test_images}
    for on in sources:
        read[on] |= {name: answers(base, x, sources[on]) for name, x in images.items()}
    logits = {name: found[0] for name, found in read["features"].items()}
    labels = {"new": fresh.train_labels, "held": known.train_labels[held], "seen": seen.train_labels}
    baseline = predict(everything, whole.test_images)[:, [*old, *new]]
    truth = np.argsort([*old, *new])[whole.test_labels]
    full_time = _time_of_training(shop, everything, whole, arch, source)
    common = {
        f"whole{'_' * bool(k)}{k}": v for k, v in _accuracies(baseline, truth, len(old), shop.seed).items()
    }
    few = _first_of_each(labels["new"], SHOTS)
    every = slice(None)
    ways: dict[str, tuple[Any, str, str, str]] = {
        "trained, unseen images of the base": (every, "held", "train", "logits"),
        "trained, the base's training images": (every, "seen", "train", "logits"),
        "ridge, unseen images of the base": (every, "held", "ridge", "logits"),
        f"trained, {SHOTS} images a new class": (few, "held", "train", "logits"),
        "on features, unseen images of the base": (every, "held", "train", "features"),
        "on features, the base's training images": (every, "seen", "train", "features"),
        "on several depths, unseen images of the base": (every, "held", "train", "depths"),
        "on several depths, the base's training images": (every, "seen", "train", "depths"),
    }
    found = {}
    for way, (rows, negatives, how, on) in ways.items():
        began = time.perf_counter()
        given: dict[str, Any] = {}
        if on in read:
            given = {"features": read[on]["new"][1][rows], "base_features": read[on][negatives][1]}
            given["scaled"] = on == "depths"
        head = fit_head(
            logits["new"][rows], labels["new"][rows], logits[negatives], labels[negatives], how=how,
            seed=shop.seed, device=shop.where, **given,
        )  # fmt: skip
        seconds = time.perf_counter() - began + forward
        all_logits = head(logits["test"], read[on]["test"][1] if on in read else None)
        numbers = _accuracies(all_logits, truth, len(old), shop.seed)
        numbers["ours"] = numbers.pop("")
        times = {"seconds": seconds, "full_seconds": full_time[0], "full_epoch_seconds": full_time[1]}
        found[way] = {**numbers, **common, **times, "theta": _size(head), "strength": head.strength}
    return found


def _unseen(known: ImageData, seen: ImageData) -> np.ndarray:
    """Training images of the known classes that the network was not trained on, by their pixels."""
    trained = {image.tobytes() for image in seen.train_images}
    return np.array([k for k, image in enumerate(known.train_images) if image.tobytes() not in trained])


def _first_of_each(labels: np.ndarray, amount: int) -> np.ndarray:
    return np.concatenate([np.flatnonzero(labels == c)[:amount] for c in np.unique(labels)])


def _accuracies(logits: torch.Tensor, truth: np.ndarray, known: int, seed: int) -> dict[str, float]:
    """Percent: of all classes; within the base's and within the new ones (Table 4); new or not, on as many of each."""
    scores = logits.numpy()
    old, predicted = truth < known, scores.argmax(1)
    others = np.random.default_rng([seed, 7]).permutation(np.flatnonzero(old))[: (~old).sum()]
    pairs = np.r_[np.flatnonzero(~old), others]
    return {
        "": 100 * float((predicted == truth).mean()),
        "base": 100 * float((scores[old, :known].argmax(1) == truth[old]).mean()),
        "new": 100 * float((scores[~old, known:].argmax(1) == truth[~old] - known).mean()),
        "new_of_all": 100 * float((predicted[~old] == truth[~old]).mean()),
        "binary": 100 * float(((predicted[pairs] >= known) == ~old[pairs]).mean()),
    }


def _time_of_training(
    shop: Workshop, model: nn.Module, images: ImageData, arch: str, source: str
) -> tuple[float, float]:
    """Seconds of the whole training and of one epoch: the faster of two epochs, the network may come from a folder."""
    settings = settings_for(arch, len(images.train_labels), source)
    recipe = shop.recipe(arch)
    epochs = recipe.get("epochs", settings.epochs)
    result = train(
        copy.deepcopy(model), images.train_images, images.train_labels, device=shop.where, record=True, progress=False,
        **{**settings.to_dict(), **recipe, "epochs": 2},
    )  # fmt: skip
    epoch = min(row["seconds"] for row in result.history)
    return epoch * epochs, epoch


def _size(head: Head) -> float:
    return float(head.theta.numel())


def _row(
    what: str, runs: list[dict[str, float]], paper: tuple[float, float], apart: tuple[float, float], seed: int
) -> Row:
    """Means over the seeds, with the range of the accuracy; the paper's numbers beside them where it has them."""
    row: Row = {"what": what, "paper": paper[0] or None, "paper_whole": paper[1] or None}
    means = {name: round(float(np.mean([run[name] for run in runs])), 6) for name in runs[0]}
    row |= {name: round(value, 3) if name != "strength" else value for name, value in means.items()}
    row["ours_range"] = [round(f(run["ours"] for run in runs), 2) for f in (min, max)]
    row["difference"] = round(means["ours"] - means["whole"], 2)
    if "seconds" in means:
        row["time_share"] = round(means["seconds"] / means["full_seconds"], 4)
    if apart[0]:
        row |= {"paper_base": apart[0], "paper_new": apart[1]}
    return {**row, "seeds": len(runs), "seed": seed}
