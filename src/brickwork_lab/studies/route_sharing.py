"""Paper 2, Figures 2, 3, 6 and A.1: how few channels a class's route takes, and how many two classes share, layer by layer.

Routes as `brickwork.routes` finds them: the paper's score on 100 training images per class of which the network is more than
0.9 sure, a channel on a route where it scores above its layer's mean. Shared: channels on both routes / channels on either;
so are the paper's per cents, as far as they can be read as counts (15.38 is 2 of 13, 13.11 is 8 of 61, 11.54 is 3 of 26). Two
networks: a LeNet of CIFAR-10's first five classes, the paper's CIFAR-10-A, trained by gradient descent at the rate of its §6.1
(50 epochs of its 100, without the cosine); and a public VGG-16 that nobody here trained. The paper's knows five classes, this one
ten. Channels that never score (silent) are no sign of a sparse route: AdamW at that rate left 8 to 9 of 84 channels alive in a
LeNet's last layer but one.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np
from torch import nn

import brickwork
from brickwork.bricks.options import RoutesOptions
from brickwork.bricks.route_sets import RouteLayer, Routes
from brickwork.bricks.subject import prepare
from brickwork.data.images import ImageData
from brickwork_lab import public_networks
from brickwork_lab.judging import share_right
from brickwork_lab.lab import Lab
from brickwork_lab.studies.frat_readings import PER_CLASS, sure_images, trained
from brickwork_lab.studies.pruning import network_and_images
from brickwork_lab.studies.registry import Names, Row, averaged, check_names, study

LENET, VGG = "lenet", "public-vgg16"
PAIRS = {LENET: (4, 0), VGG: (5, 2)}  # deer and airplane (Figure 6, A.1); dog and bird (Figure 3)
#: per cent that deer and airplane share in layers 1 to 5 of the paper's LeNet-5 (A.1); its other figures have no numbers
PAPER = {"conv1": 0.0, "conv2": 15.38, "fc1": 13.11, "fc2": 11.54, "classes": 0.0}
KNOWS = {LENET: "five classes, as the paper's", VGG: "ten classes, the paper's VGG-16 five"}
#: zoo's own LeNet recipe is AdamW's
DESCENT = {"epochs": 50, "batch_size": 128, "lr": 0.01, "schedule": "constant", "weight_decay": 0.0}
DESCENT |= {"optimizer": "sgd", "nesterov": False}
TRAINED = {LENET: "50 epochs of SGD at 0.01; the paper 100", VGG: "by others"}
JUDGED = 2000  # test images, about
AMONG = {LENET: 2000, VGG: 200}  # images per class that are looked at to find sure ones
LEVELS = "abcdefghij"  # of a heat map: a tenth each of the class's highest score


@study("route-sharing", paper="2, Figures 2, 3, 6 and A.1")
def route_sharing(lab: Lab, *, archs: Names = None, seeds: int | None = None) -> Iterator[Row]:
    """How sparse the routes of classes are in the last layers, and what two classes share in every layer."""
    check_names("network", archs, PAIRS)
    for arch in lab.archs(archs, tuple(PAIRS)):
        count = 1 if arch == VGG else seeds or (3 if lab.full else 1)  # of the public network there is one
        yield from averaged([_one_network(lab.reseeded(k), arch) for k in range(count)])


def _one_network(lab: Lab, arch: str) -> Iterator[Row]:
    net, images = _network(lab, arch)
    found = _routes_of(lab, net, images, AMONG[arch])
    facts: Row = {"images": sum(found.images.values()), "seed": lab.seed}
    step = max(1, len(images.test_labels) // JUDGED)
    facts["right"] = round(100 * share_right(net, images.test_images[::step], images.test_labels[::step]), 2)
    facts |= {"knows": KNOWS[arch], "trained": TRAINED[arch]} if lab.full else {}
    layers = [layer for layer in found.layers if layer.kind != "input"]
    for layer in layers:
        first, second = PAIRS[arch]
        row: Row = {"what": f"{arch}, {layer.name}: shared by {images.classes[first]} and {images.classes[second]}"}
        row["paper"] = PAPER[layer.name] if lab.full and arch == LENET else None
        row["ours"] = _sharing(found, layer, found.classes[first], found.classes[second])
        every = [_sharing(found, layer, *pair) for pair in combinations(found.classes, 2)]
        row |= {"all_pairs": round(float(np.mean(every)), 2), "at_most": max(every)}
        yield {**row, "channels": layer.size, **facts}
    last = max(k for k, layer in enumerate(layers) if isinstance(net.get_submodule(layer.made_by[-1]), nn.Conv2d))
    for layer in (layers[last], layers[-2]):  # the last convolution, and the linear layer before the last
        row = {"what": f"{arch}, {layer.name}: channels on the route of one class alone", "paper": None}
        row |= {**_sparsity(found, layer), "channels": layer.size, **facts}
        yield {**row, **({"heat": _heat(found, layer, images)} if arch == VGG else {})}


def _network(lab: Lab, arch: str) -> tuple[nn.Module, ImageData]:
    if arch in public_networks.NETWORKS:
        return network_and_images(lab, arch)[:2]
    spec = "cifar10:A" if lab.full else "digits:A"
    half = lab.data(spec)
    net = trained(lab, arch, half, DESCENT) if lab.full else lab.network(arch, spec)
    return net, half


def _routes_of(lab: Lab, net: nn.Module, images: ImageData, among: int) -> Routes:
    """Of all classes, on training images that the network is sure of."""
    subject = prepare(net, None, images, device=lab.where, output=None, seed=lab.seed)
    index = sure_images(subject, lab.seed, among=among)
    chosen = images.train_images[index], images.train_labels[index]
    sure = replace(images, train_images=chosen[0], train_labels=chosen[1], train_masks=None)
    asked = RoutesOptions(attribution="frat", scored=PER_CLASS * len(images.classes), seed=lab.seed)
    return brickwork.routes(net, sure, device=lab.where, progress=lab.progress, options=asked)


def _sharing(found: Routes, layer: RouteLayer, a: str, b: str) -> float:
    return round(100 * found.sharing(layer.name, a, b), 2)


def _sparsity(found: Routes, layer: RouteLayer) -> Row:
    """In per cent of the layer's channels: on one route, two, more, none; silent; on a route; what holds half of a score."""
    counts = np.array([len(users) for users in layer.users()])
    shares = {"ours": counts == 1, "two": counts == 2, "more": counts > 2, "none": counts == 0}
    row: Row = {name: round(100 * float(which.mean()), 2) for name, which in shares.items()}
    row["silent"] = round(100 * float((np.array(list(layer.scores.values())) == 0).all(0).mean()), 2)
    row["per_class"] = round(float(np.mean([100 * found.share(layer.name, name) for name in found.classes])), 2)
    half = []
    for scores in layer.scores.values():
        highest = np.cumsum(np.sort(scores)[::-1])
        half.append(100 * (int(np.searchsorted(highest, highest[-1] / 2)) + 1) / layer.size)
    return {**row, "half_of_score": round(float(np.mean(half)), 2)}


def _heat(found: Routes, layer: RouteLayer, images: ImageData) -> dict[str, str]:
    """Every channel's score as a letter per class, for the picture."""
    lines = {}
    for name, own in zip(images.classes, found.classes, strict=True):
        scores = np.array(layer.scores[own])
        lines[name] = "".join(LEVELS[int(k)] for k in np.minimum(9, 10 * scores / scores.max()))
    return lines
