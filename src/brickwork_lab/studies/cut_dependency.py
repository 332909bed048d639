"""Paper 5, Table 3: a link between two classes cut by fine-tuning; accuracy, coefficient, out-of-distribution images.

The network is trained once; every row goes on from it for the same epochs, with one penalty or none. The pair is the
strongest link between classes of different superclasses, found on half of the test images; everything is measured on
the other half. The paper picks its pair by hand and measures ImageNet-O.
"""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork.data.class_groups import SUPERCLASS, class_groups
from brickwork.data.images import ImageData, hold_out
from brickwork.dependencies import CovLasso, pairs_above
from brickwork.dependencies.mapping import fit_map
from brickwork.dependencies.partial import PENALTIES
from brickwork.errors import RequestError
from brickwork.measures import auroc
from brickwork.outputs import accuracy_of
from brickwork.prediction import predict
from brickwork_lab.judging import mean
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, study

#: Table 3 on ImageNet, by network, without and with the penalty: accuracy, coefficient, AUPR of ImageNet-O
PAPER: dict[str, dict[str, tuple[float, float]]] = {
    "resnet18": {"paper": (69.83, 70.12), "paper_coefficient": (0.70, 0.02), "paper_aupr": (15.15, 15.48)},
    "resnet50": {"paper": (76.37, 76.66), "paper_coefficient": (1.10, 4.5e-4), "paper_aupr": (13.98, 14.07)},
}
PLACES = {"no penalty": 0, "covariance (the paper's), one pair": 1}  # which of the two a row stands beside
THRESHOLD = 0.2  # "all": every link at least this strong between superclasses
#: penalty, its pairs, strength
WAYS = {
    "no penalty": (None, "one", 0.0),
    "covariance (the paper's), one pair": ("covariance", "one", 0.03),
    "coefficient, one pair": ("coefficient", "one", 0.3),
    f"coefficient, all of {THRESHOLD} or more": ("coefficient", "all", 0.1),
}
FIT: dict[str, Any] = {"lam": 0.05, "relative": True}
FULL: dict[str, Any] = {"lr": 0.02, "batch_size": 256, "weight_decay": 5e-4, "augment": "crop+flip"}
SMOKE: dict[str, Any] = {"lr": 5e-3, "batch_size": 64, "optimizer": "adamw", "augment": "none"}


@study("cut-dependency", paper="5, Table 3")
def cut_dependency(
    lab: Lab, *, archs: Names = None, sets: Names = None, seeds: int | None = None, epochs: int | None = None
) -> Iterator[Row]:
    """A link between classes of different kinds cut by fine-tuning: accuracy, coefficient, AUROC and AUPR outside."""
    source, outside = ("cifar100", sets or ("cifar10", "mnist")) if lab.full else ("digits:A", sets or ("digits:B",))
    epochs = epochs or (10 if lab.full else 3)
    for arch in lab.archs(archs, ("resnet18",)):
        runs = [
            _one_run(lab.reseeded(k), source, arch, outside, epochs) for k in range(seeds or (5 if lab.full else 1))
        ]
        for way in WAYS:
            paper = paper_cells(arch, way) if lab.full else {}
            yield _row(f"{source} {arch}, {way}", [run[way] for run in runs], paper, lab.seed)


def _one_run(lab: Lab, source: str, arch: str, outside: tuple[str, ...], epochs: int) -> dict[str, dict[str, Any]]:
    images, start = lab.data(source), lab.network(arch, source)
    one, other = hold_out(images.test_labels, 0.5)  # found on one half, measured on the other
    logits = predict(start, images.test_images).numpy()
    groups = _groups(images.classes)
    links = fit_map(logits[one], names=images.classes, **FIT)
    ranked = pairs_above(links, 1e-3, groups)
    if not ranked:
        raise RequestError(f"no link between classes of different kinds was found in {arch} on {source}.")
    picked = {"one": ranked[:1], "all": pairs_above(links, THRESHOLD, groups) or ranked[:1]}
    foreign = {name: _fitting(lab.data(name), images) for name in outside}
    settings = FULL if lab.full else SMOKE
    numbers = {}
    for way, (kind, which, strength) in WAYS.items():
        penalty = None if kind is None else PENALTIES[kind](picked[which], strength=strength)
        tuned = copy.deepcopy(start)
        lab.train(tuned, images, epochs=epochs, schedule="cosine", penalty=penalty, **settings)
        numbers[way] = {
            **_measured(tuned, images, other, picked[which], foreign),
            "pairs": len(picked[which]),
            "coefficient_before": _coefficients(logits[other], picked[which]),
            "pair": "–".join(images.classes[k] for k in ranked[0]),
        }
    return numbers


def _groups(classes: tuple[str, ...]) -> list[str]:
    """The superclass of each class; a class that has none is a kind of its own."""
    of = {name: group for group, names in class_groups(SUPERCLASS).items() for name in names}
    return [of.get(name, name) for name in classes]


def _measured(
    model: nn.Module, images: ImageData, rows: np.ndarray, pairs: list[tuple[int, int]], foreign: dict[str, Any]
) -> dict[str, Any]:
    logits = predict(model, images.test_images[rows])
    numbers: dict[str, Any] = {
        "ours": 100 * accuracy_of(logits, images.test_labels[rows]),
        "coefficient": _coefficients(logits.numpy(), pairs),
        "covariance": float(np.mean([abs(float((logits[:, a] * logits[:, b]).mean())) for a, b in pairs])),
    }
    inside = -logits.softmax(1).amax(1)
    for name, others in foreign.items():
        scores = torch.cat([inside, -predict(model, others).softmax(1).amax(1)])
        strange = torch.arange(len(scores)) >= len(inside)
        numbers[f"auroc_{name}"] = 100 * float(auroc(scores, strange) or 0)
        numbers[f"aupr_{name}"] = 100 * average_precision(scores, strange)
    return numbers


def _coefficients(logits: np.ndarray, pairs: list[tuple[int, int]]) -> float:
    """The mean over the pairs of the larger |coefficient| of the two ways."""
    coef = np.abs(CovLasso(**FIT).fit(logits).coef_)
    return float(np.mean([max(coef[a, b], coef[b, a]) for a, b in pairs]))


def _fitting(images: ImageData, like: ImageData) -> np.ndarray:
    """Test images of another set in this one's size and channels."""
    return images.fit(size=like.shape[:2], channels=like.shape[2]).test_images


def average_precision(scores: torch.Tensor, positive: torch.Tensor) -> float:
    """Area under the precision-recall curve, by steps; equal scores are one step.

    >>> average_precision(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([True, False, True, False]))
    0.8333333333333333
    """
    values, group = torch.unique(-scores.double(), return_inverse=True)
    hits = torch.zeros(len(values), dtype=torch.float64).index_add_(0, group, positive.double())
    sizes = torch.bincount(group, minlength=len(values)).double()
    precision = hits.cumsum(0) / sizes.cumsum(0)
    return float((precision * hits).sum() / hits.sum())


def paper_cells(arch: str, way: str) -> Row:
    """The paper's numbers of the same network with and without its penalty; nothing for others.

    >>> paper_cells("resnet50", "no penalty")["paper"], paper_cells("vgg16", "no penalty")
    (76.37, {})
    """
    place = PLACES.get(way)
    return {} if place is None else {name: both[place] for name, both in PAPER.get(arch, {}).items()}


def _row(what: str, runs: list[dict[str, Any]], paper: Row, seed: int) -> Row:
    """Means over the seeds, the paper's numbers beside them."""
    row: Row = {"what": what, "paper": None, **paper}
    numbers = [name for name in runs[0] if name != "pair"]
    row |= {name: mean([run[name] for run in runs], 4) for name in numbers}
    row["ours_range"] = [round(f(run["ours"] for run in runs), 2) for f in (min, max)]
    return {**row, "cut": ", ".join(run["pair"] for run in runs), "seeds": len(runs), "seed": seed}
