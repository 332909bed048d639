"""Paper 5, Tables 2 and 4: new classes out of a frozen network's logits, against training everything.

As printed, Θ has no bias and sees images of the new classes alone; its L2 term, of which the paper says nothing, is found
on some of those kept out. With one new class the printed loss is 0 whatever Θ is, so there is no such row. Ours, under
their own names, have a bias and all training images of the known classes: on the logits, on what the last layer reads, on
what several depths answer, and from a branch that is trained.
"""

import copy
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork.data.images import ImageData
from brickwork.dependencies.new_classes import add_classes
from brickwork.prediction import predict
from brickwork.training import TrainOptions, default_augment, resolve, train
from brickwork.zoo.summary import parameters_of
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, some_of, study

#: new classes: the paper's accuracy (ImageNet, ResNet-50; 1000 classes for our 100): ours and full training,
#: and of the base and the new classes apart (Table 4)
PICKS: dict[str, tuple[int, tuple[float, float], tuple[float, float]]] = {
    "90+10": (10, (68.03, 68.47), (68.65, 71.06)),
    "95+5": (5, (68.45, 68.47), (0.0, 0.0)),
    "99+1": (1, (68.46, 68.47), (0.0, 0.0)),
}
SMALL = {"8+2": (2, (0.0, 0.0), (0.0, 0.0)), "9+1": (1, (0.0, 0.0), (0.0, 0.0))}
BINARY = (61.50, 60.70)  # the paper's 999 → 1 on as many images of the new class as of others
SHOTS = 5
PRINTED = "as printed: logits, no bias, new images alone"
JOINT = "bias, all base images"


@study("new-classes", paper="5, Tables 2, 4")
def new_classes(lab: Lab, *, archs: Names = None, picks: Names = None, seeds: int | None = None) -> Iterator[Row]:
    """Classes added to a frozen network, in the paper's way and better ones, against training everything."""
    source = "cifar100" if lab.full else "digits"
    labs = [lab.reseeded(k) for k in range(seeds or (5 if lab.full else 1))]
    for arch in lab.archs(archs, ("resnet18",)):
        for pick, (count, paper, apart) in some_of(PICKS if lab.full else SMALL, picks).items():
            results = [_one_run(one, source, arch, count) for one in labs]
            for way in results[0]:
                what, runs = f"{source} {arch} {pick}, {way}", [result[way] for result in results]
                yield _row(what, runs, paper, apart, lab.seed)
                if count == 1:
                    binary = [{"ours": run["binary"], "whole": run["whole_binary"]} for run in runs]
                    yield _row(f"{what}, as many others", binary, BINARY if lab.full else (0, 0), (0, 0), lab.seed)


def _one_run(lab: Lab, source: str, arch: str, count: int) -> dict[str, dict[str, float]]:
    """One seed: the base network, all ways to add the classes, and the network trained on everything."""
    whole = lab.data(source)
    total = len(whole.classes)
    last = total - 1 - (total // 5) * (lab.seed % 5)  # other seeds, other classes
    new = list(range(last - count + 1, last + 1))
    old = [c for c in range(total) if c not in new]
    spec = f"{source}:" + ",".join(f"{a}-{b}" for a, b in ((0, new[0] - 1), (new[-1] + 1, total - 1)) if a <= b)
    base, everything = lab.network(arch, spec), lab.network(arch, source)
    known, fresh = lab.data(spec), whole.select(new)
    truth = np.argsort([*old, *new])[whole.test_labels]
    baseline = predict(everything, whole.test_images)[:, [*old, *new]]
    full_time = _time_of_training(lab, everything, whole, arch, source)
    times = {"full_seconds": full_time[0], "full_epoch_seconds": full_time[1]}
    common = {f"whole{'_' * bool(k)}{k}": v for k, v in _accuracies(baseline, truth, len(old), lab.seed).items()}
    labels = fresh.train_labels
    few = np.concatenate([np.flatnonzero(labels == c)[:SHOTS] for c in np.unique(labels)])  # the first of each class
    result = {}
    for way, (rows, method, on) in _ways(few, count).items():
        some = (fresh.train_images[rows], labels[rows])
        training: dict[str, Any] = {"augment": default_augment(source)} if on == "branch" else {}
        printed = way == PRINTED
        training |= {"bias": False} if printed else {}
        images = None if printed else known
        began = time.perf_counter()
        grown = add_classes(
            base, some, base_data=images, how=method, on=on, classes=fresh.classes, **training, seed=lab.seed
        )
        seconds = time.perf_counter() - began
        numbers = _accuracies(predict(grown, whole.test_images), truth, len(old), lab.seed)
        numbers["ours"] = numbers.pop("")
        size = parameters_of(grown) - parameters_of(base) - (count if printed else 0)  # a bias that stays 0
        result[way] = {**numbers, **common, "seconds": seconds, **times, "added": size}
    return result


def _ways(few: np.ndarray, count: int) -> dict[str, tuple[Any, str, str]]:
    """By name: which images of the new classes, how, and on what."""
    every = slice(None)
    ours: dict[str, tuple[Any, str, str]] = {
        f"ours: logits, {JOINT}": (every, "train", "logits"),
        f"ours: logits, {JOINT}, ridge": (every, "ridge", "logits"),
        f"ours: logits, {JOINT}, {SHOTS} images per new class": (few, "train", "logits"),
        f"ours: features, {JOINT}": (every, "train", "features"),
        f"ours: several depths, {JOINT}": (every, "train", "depths"),
        f"ours: a branch, {JOINT}": (every, "train", "branch"),
    }
    return ours if count == 1 else {PRINTED: (every, "train", "logits"), **ours}


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


def _time_of_training(lab: Lab, model: nn.Module, images: ImageData, arch: str, source: str) -> tuple[float, float]:
    """Seconds of the whole training and of one epoch: the faster of two epochs, the network may come from a folder."""
    settings = resolve(TrainOptions(), arch, len(images.train_labels), source)
    recipe = lab.recipe(arch)
    epochs = recipe.get("epochs", settings.epochs)
    options: dict[str, Any] = {**settings.to_dict(), **recipe, "epochs": 2, "device": lab.where, "progress": False}
    result = train(copy.deepcopy(model), images.train_images, images.train_labels, record=True, **options)
    epoch = min(row["seconds"] for row in result.history)
    return epoch * epochs, epoch


def _row(
    what: str, runs: list[dict[str, float]], paper: tuple[float, float], apart: tuple[float, float], seed: int
) -> Row:
    """Means over the seeds, with the range of the accuracy; the paper's numbers beside them where it has them."""
    row: Row = {"what": what, "paper": paper[0] or None, "paper_whole": paper[1] or None}
    means = {name: round(float(np.mean([run[name] for run in runs])), 6) for name in runs[0]}
    row |= {name: round(value, 3) for name, value in means.items()}
    row["ours_range"] = [round(f(run["ours"] for run in runs), 2) for f in (min, max)]
    row["difference"] = round(means["ours"] - means["whole"], 2)
    if "seconds" in means:
        row["time_share"] = round(means["seconds"] / means["full_seconds"], 4)
    if apart[0]:
        row |= {"paper_base": apart[0], "paper_new": apart[1]}
    return {**row, "seeds": len(runs), "seed": seed}
