"""Who plays in the studies of assignment and fusion (paper 1), how they are trained, and how a curve over α is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from brickwork.algebra import combine, rebasin, sweep
from brickwork.data.images import ImageData
from brickwork.errors import UnknownName
from brickwork.prediction import predict
from brickwork_lab.studies.family import NAMED, Family, mean, plain_pixels
from brickwork_lab.studies.registry import Row

#: trained on other images: what stands here for the paper's five (CIFAR-100, Caltech-256, Food-101, MNIST, STL-10)
OTHERS = (f"cifar100:{','.join(NAMED)}", "cifar100:0-9", "pets:0-9", "mnist@1000", "fashion_mnist@1000")
SMOKE_OTHERS = ("digits:A", "digits:B")

DESCENT: dict[str, Any] = {
    "optimizer": "sgd",
    "momentum": 0.0,
    "nesterov": False,
    "lr": 0.1,
    "schedule": "constant",
    "precision": "float32",
}
RECIPES: dict[str, dict[str, Any]] = {
    "small": {**DESCENT, "lr": 0.095, "batch_size": 1000, "epochs": 500},
    "medium": {**DESCENT, "batch_size": 100, "epochs": 200},
    "large": {**DESCENT, "batch_size": 64, "epochs": 10},
    "other": {**DESCENT, "batch_size": 64, "epochs": 30},
}
SMOKE: dict[str, dict[str, Any]] = {
    "small": {**DESCENT, "batch_size": 40, "epochs": 400},
    "other": {**DESCENT, "batch_size": 40, "epochs": 15},
}
Table = dict[float, tuple[float, ...]]  # α: the paper's accuracies for θ_1 to θ_5
Judged = tuple[np.ndarray, np.ndarray]  # images and labels
FEW = [0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 40.0]  # where the paper has a figure and no table


class Cast:
    """θ₀, θ_A at every scale, five random and five trained θ_i; `other` are starts of their own, without trained ones."""

    def __init__(self, family: Family, picks: tuple[str, ...] | None = None, *, other: bool = False) -> None:
        self.family, self.full = family, family.full
        self.task = "cifar10" if family.full else "digits"
        self.recipes = RECIPES if family.full else SMOKE
        self.prepared = plain_pixels(family.data(self.task))
        self.zero = family.start("lenet", 0, self.prepared)
        known = tuple(s for s in RECIPES if s != "other") if family.full else ("small",)
        for name in picks or ():
            if name not in known:
                raise UnknownName("scale", name, known)
        self.scales = tuple(s for s in known if not picks or s in picks)
        self.few = family.scaled(self.task, "small")
        self.specs = () if other else OTHERS if family.full else SMOKE_OTHERS
        starts = [family.start("lenet", k, self.prepared) for k in range(1, 6)]
        trained = [
            family.trained(f"lenet-other{k}", start, family.data(spec), self.recipes["other"])
            for k, (start, spec) in enumerate(zip(starts, self.specs, strict=False))
        ]
        self.thetas = {"random": starts, "trained": trained}

    def teacher(self, scale: str) -> nn.Module:
        """θ_A, trained from θ₀ on the task at a scale."""
        images = self.family.scaled(self.task, scale)
        return self.family.trained(f"lenet-{scale}", self.zero, images, self.recipes[scale])

    def judged(self, split: str) -> Judged:
        """The 40 images of the small scale, by which the paper judges every scale; or the test images."""
        if split == "train":
            return self.few.train_images, self.few.train_labels
        images = self.family.data(self.task)
        return images.test_images, images.test_labels

    def ways(self, thetas: Sequence[nn.Module], towards: nn.Module) -> dict[str, list[nn.Module]]:
        """The θ_i as they are (the paper's way), and with their channels in the order of another network first."""
        channels, side = (3, 32) if self.full else (1, 16)
        example = next(towards.parameters()).new_zeros(2, channels, side, side)
        return {"": list(thetas), ", re-basin first": [rebasin(towards, theta, example) for theta in thetas]}


def scenes(family: Family, picks: tuple[str, ...] | None) -> Iterator[tuple[str, str, list[Cast]]]:
    """Scale, split, and who plays: 40 images are few, so the small scale is played from five starts, on five draws."""
    cast = Cast(family, picks)
    for scale in cast.scales:
        more = range(1, 5) if family.full and scale == "small" else ()
        yield scale, "train", [cast, *(Cast(family.again(k), other=True) for k in more)]
    yield cast.scales[-1], "test", [cast]


@dataclass(frozen=True)
class Play:
    """θ_i by the way they were made ready, what is added to them, and the images that judge the sum."""

    thetas: dict[str, list[nn.Module]]
    added: nn.Module
    judged: Judged


def curves(what: str, plays: Sequence[Play], paper: Table, facts: Row, *, full: bool) -> Iterator[Row]:
    """θ_i + α · added, a row for each α: the mean over all θ_i, and each of them."""
    for way in plays[0].thetas:
        theirs = {} if way or not full else paper
        alphas = sorted(theirs) or ([0.5, 1.0, 5.0] if way or not full else FEW)
        found = [
            sweep(
                combine([(1.0, theta), (1.0, play.added)]),
                base=theta,
                data={"x": play.judged},
                alpha=alphas,
                progress=False,
            ).rows
            for play in plays
            for theta in play.thetas[way]
        ]
        for k, alpha in enumerate(alphas):
            each, known = [round(one[k][3], 4) for one in found], theirs.get(alpha)
            yield {
                "what": f"{what}{way}, α={alpha:g}",
                "paper": None if known is None else mean(list(known)),
                "ours": mean(each),
                "each": each,
                "paper_each": None if known is None else list(known),
                "alpha": alpha,
                **facts,
            }


def share(model: nn.Module, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of images that a network gets right, label k being output k."""
    return round(float((predict(model, images).argmax(1).numpy() == labels).mean()), 4)


def own_share(model: nn.Module, images: ImageData) -> float:
    return share(model, images.test_images, images.test_labels)
