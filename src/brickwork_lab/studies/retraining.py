"""Paper 2, Table 3 and Figure 7: fine-tuning with the route of each class as a constraint; and from colour to grey."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from brickwork.bricks.adaptation import adapt
from brickwork.bricks.transferring import transfer as moved
from brickwork.bricks.treatment import RULES
from brickwork.bricks.treatment import treat as treated
from brickwork.data.images import ImageData
from brickwork.evaluation import evaluate
from brickwork_lab.judging import accuracy
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, study
from brickwork_lab.studies.two_ways import ARCHS, PER_CLASS, paper_of, protocol, repeated


@study("treat", paper="2, Table 3")
def treat(
    lab: Lab, *, archs: Names = None, sets: Names = None, seeds: int | None = None, epochs: int = 5
) -> Iterator[Row]:
    """Fine-tune with the routes as a constraint, by Model Doctor's rule, and plainly, for as many epochs."""
    for source, arch in lab.cases(sets, archs, ARCHS):
        yield from repeated(lab, source, seeds, partial(_treated_rows, source=source, arch=arch, epochs=epochs))


def _treated_rows(lab: Lab, source: str, arch: str, epochs: int) -> Iterator[Row]:
    half, net = lab.data(f"{source}:A"), lab.network(arch, f"{source}:A")
    settings: dict[str, Any] = {"lr": 0.002, "batch_size": 32, "augment": "none"}
    if lab.full:
        settings = {"lr": 0.01, "batch_size": 128, "augment": "crop+flip"}
    settings |= {"epochs": epochs, "seed": lab.seed, "progress": lab.progress}
    before = accuracy(net, half)
    original, doctor, paper = paper_of("treat", f"{source} {arch}", 3)
    for rule in RULES:
        scored = {} if rule == "plain" else {"scored": PER_CLASS * len(half.classes)}
        result = treated(net, half, rule=rule, **settings, **scored)
        known = {"route": paper, "doctor": doctor}.get(rule)
        row: Row = {"what": f"{source} {arch}, {RULES[rule].about}", "paper": known}
        row |= {"ours": accuracy(result.model, half), "original": before, "paper_original": original}
        row |= {"epochs": epochs, "arch": arch, "seed": lab.seed, "protocol": protocol(lab, arch, source)}
        yield {**row, "seconds": round(result.training.seconds, 1)}


def grey(images: ImageData) -> ImageData:
    """The same images without colour (for grey ones: inverted), in as many channels."""

    def change(array: np.ndarray) -> np.ndarray:
        if array.shape[3] == 1:
            return 255 - array
        weights = np.array([0.299, 0.587, 0.114])
        return np.repeat(np.rint(array @ weights)[..., None], 3, axis=3).astype(np.uint8)

    return replace(images, train_images=change(images.train_images), test_images=change(images.test_images))


@study("transfer", paper="2, Figure 7")
def transfer(
    lab: Lab, *, archs: Names = None, amounts: tuple[int, ...] | None = None, epochs: int = 5
) -> Iterator[Row]:
    """A network of colour images on grey ones: everything trained, only class-independent channels, or nothing."""
    source = "cifar10:A" if lab.full else "digits:A"
    for arch in lab.archs(archs, ("vgg16",)):
        net, colour = lab.network(arch, source), lab.data(source)
        other = grey(colour)
        test = (other.test_images, other.test_labels)
        common: Row = {"arch": arch, "seed": lab.seed, "paper": None}

        def judged(model: nn.Module, images: np.ndarray, labels: np.ndarray) -> float:
            return round(100 * evaluate(model, images, labels).accuracy, 2)

        ours = judged(net, colour.test_images, colour.test_labels)
        yield {"what": f"{arch} on colour, as trained", **common, "ours": ours}
        yield {"what": f"{arch} on grey, nothing done", **common, "ours": judged(net, *test)}
        few = 2000 if lab.full else 300
        fixed = adapt(net, colour.train_images[:few], other.train_images[:few], progress=lab.progress)
        what = f"{arch} on grey, matched on {few} pairs without labels"
        yield {"what": what, **common, "ours": judged(fixed, *test)}
        everything = len(colour.train_labels) // len(colour.classes)
        for amount in amounts or ((20, 100, 500, everything) if lab.full else (20,)):
            some = other.take(amount, seed=lab.seed) if amount < everything else other
            settings: dict[str, Any] = {"lr": 0.005, "batch_size": 20, "augment": "none"}
            if lab.full:
                settings = {"lr": 0.01, "batch_size": min(128, len(some.train_labels)), "augment": "crop+flip"}
            settings |= {"epochs": epochs, "seed": lab.seed, "progress": lab.progress, "validation": test}
            for what in ("all", "independent"):
                routes = colour if what == "independent" else None
                result = moved(net, some, what=what, routes=routes, **settings)
                curve = [round(100 * row["validation_accuracy"], 2) for row in result.training.history]
                row: Row = {"what": f"{arch} on grey, {what} trained, {amount} images a class", **common}
                row |= {"ours": curve[-1], "first_epoch": curve[0], "curve": curve, "free": round(result.free, 4)}
                yield row
