"""Paper 2's way read in several ways, one factor at a time: on a network that nobody here trained, and by its own training.

The paper leaves open where the derivative is taken: at what a convolution makes, behind its batch norm, or behind the
activation. Sums and means over an image's places are the same thing under a threshold relative to the layer's mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork import zoo
from brickwork.blueprint.plan import CLASSES
from brickwork.bricks.depth import spaces_above
from brickwork.bricks.scores import score_channels
from brickwork.bricks.subject import Subject, prepare
from brickwork.bricks.widths import by_threshold
from brickwork.data.images import ImageData
from brickwork_lab import public_networks
from brickwork_lab.lab import Lab, digest
from brickwork_lab.studies.pruning import judge_of, network_and_images
from brickwork_lab.studies.registry import Names, Row, study

PLACES = {"layer": "before the norm", "norm": "behind the norm", "activation": "behind the activation"}
KINDS = ("frat", "frat-absolute", "taylor")
#: the paper's of a VGG-16 of five classes, by score and what is asked for
PAPER = {("frat", "all"): 91.34, ("frat", "0-2"): 79.40, ("frat", "2-4"): 81.03, ("frat", "0,4"): 93.70}
PAPER |= {("frat-absolute", "all"): 87.76}
PICKS = {"all": None, "0-2": (0, 1, 2), "2-4": (2, 3, 4), "0,4": (0, 4)}
SURE, PER_CLASS = 0.9, 100
#: networks of five classes: by §6.1 and the authors' code (weight decay, cosine over all epochs, linear layers of 4096)
AUTHORS: dict[str, Any] = {"epochs": 100, "batch_size": 128, "lr": 0.01, "schedule": "cosine", "weight_decay": 5e-4}
NARROW = {"hidden": 512, "dropout": 0.0}
#: training and head
TRAININGS: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "our training": (None, {}),
    "our training, linear layers of 512": (None, NARROW),
    "the authors' training": (AUTHORS, {}),
}
TESTED = 3000  # test images, about, evenly: enough for differences of tens of points


@study("frat-readings", paper="2, Tables 1, 2 and 5")
def frat_readings(lab: Lab, *, archs: Names = None) -> Iterator[Row]:
    """Which reading of the paper's attribution gives the paper's numbers, without a repair."""
    cases = (case for arch in lab.archs(archs, ("public-vgg16", "vgg16")) for case in _cases(lab, arch))
    for arch, net, images, classes, labels in cases:
        step = max(1, len(images.test_labels) // TESTED)
        images = replace(images, test_images=images.test_images[::step], test_labels=images.test_labels[::step])
        pair = images.train_images, labels[images.train_labels]
        subject = prepare(net, classes, pair, device=lab.where, output=None, seed=lab.seed)
        index = sure_images(subject, lab.seed)
        x = subject.samples.inputs(index)
        y = torch.from_numpy(subject.samples.labels[index]).to(lab.where)
        bp, cuttable = subject.bp, spaces_above(subject.bp, 2)
        for kind in KINDS:
            for at, words in PLACES.items():
                scores = score_channels(subject.whole, bp, x, y, attribution=kind, at=at, progress=False).scores
                tables = {name: table for name, table in scores.items() if name in cuttable}
                for name, pick in PICKS.items():
                    which = list(range(len(classes)) if pick is None else pick)
                    chosen = [classes[k] for k in which]
                    tested = judge_of(lab, net, images.select(which), chosen, labels[which])
                    kept = {**by_threshold(bp, {n: t[chosen] for n, t in tables.items()}), CLASSES: chosen}
                    gone = 1 - bp.count(kept).parameters / bp.count().parameters
                    row: Row = {"what": f"{arch}, {kind} {words}, classes {name}"}
                    row |= {"paper": PAPER.get((kind, name)) if lab.full else None}
                    row |= {"ours": tested(bp.select(subject.whole, kept).eval()), "whole": tested(net)}
                    row |= {
                        "gone": round(100 * gone, 2),
                        "images": len(index),
                        "labels": "to score channels",
                        "steps": 0,
                    }
                    yield {**row, "arch": arch, "seed": lab.seed}


def _cases(lab: Lab, arch: str) -> Iterator[tuple[str, nn.Module, ImageData, list[int], np.ndarray]]:
    """A public network; of another architecture one of CIFAR-10's first five classes for each training."""
    if arch in public_networks.NETWORKS or not lab.full:
        yield arch, *network_and_images(lab, arch)
        return
    half, numbers = lab.data("cifar10:A"), np.arange(5)
    for words, (recipe, head) in TRAININGS.items():
        net = lab.network(arch, "cifar10:A") if not (recipe or head) else trained(lab, arch, half, recipe, head)
        yield f"{arch} of five classes, {words}", net, half, numbers.tolist(), numbers


def trained(
    lab: Lab, arch: str, half: ImageData, recipe: dict[str, Any] | None, head: dict[str, Any] | None = None
) -> nn.Module:
    """A network of CIFAR-10's first five classes, kept by its recipe (None: ours) and what it is built with."""
    given = {**lab.arguments(arch, "cifar10"), **(head or {})}
    recipe = lab.recipe(arch, "cifar10") if recipe is None else recipe

    def make() -> nn.Module:
        model = zoo.build(arch, num_classes=len(half.classes), seed=lab.seed, in_channels=half.shape[2], **given)
        return lab.taught(model, half, "cifar10", label_smoothing=0.0, **recipe)

    return lab.kept(f"{arch}-cifar10-A-{digest({**recipe, **given})[:8]}-{lab.seed}", make, study=recipe)


def sure_images(subject: Subject, seed: int, among: int = 2 * PER_CLASS) -> np.ndarray:
    """At most so many images of each class that the network is sure of, out of `among` of them."""
    index = subject.samples.of_classes(subject.wanted, among * len(subject.wanted), seed)
    labels = subject.samples.labels[index]
    sure = subject.logits(index).softmax(1).numpy()[np.arange(len(index)), labels] > SURE
    return np.sort(np.concatenate([index[sure & (labels == k)][:PER_CLASS] for k in subject.wanted]))
