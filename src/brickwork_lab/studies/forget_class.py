"""Classes forgotten on request, in closed form, beside a network that never saw them.

A linear probe recovers part of a class from the features of any network, one that never saw the class included: that one
is what the probe is to be compared with. It is trained for networks of the zoo; nobody can for a public one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from brickwork import zoo
from brickwork.bricks.forgetting import Knowledge, forget, knowledge
from brickwork.bricks.subject import prepare
from brickwork.data.images import ImageData
from brickwork_lab.lab import Lab
from brickwork_lab.studies.pruning import network_and_images
from brickwork_lab.studies.registry import Names, Row, study

#: what is solved, by name: options of `forget`
WAYS: dict[str, dict[str, Any]] = {
    "strength 0.3": {"strength": 0.3, "ridge": 1e-4},
    "strength 1": {"strength": 1.0, "ridge": 1e-4},
    "strength 1, ridge chosen": {},
    "strength 0.3, all layers": {"strength": 0.3, "depth": 1, "ridge": 1e-4},
}
FORGOTTEN = ("3", "5", "0")  # cat, dog, airplane of CIFAR-10
IMAGES = 2000  # of the class, and of the others
TESTED = 3000  # test images, about, evenly


@study("forget-class", paper="")
def forget_class(lab: Lab, *, archs: Names = None, picks: Names = None) -> Iterator[Row]:
    """What is left of a class after `forget`, what of the others, and what a linear probe recovers."""
    for arch in lab.archs(archs, ("public-vgg16", "public-resnet56")):
        net, images, _, _ = network_and_images(lab, arch)
        step = max(1, len(images.test_labels) // TESTED)
        images = replace(images, test_images=images.test_images[::step], test_labels=images.test_labels[::step])
        for word in picks or FORGOTTEN:
            gone = int(word)
            about = f"{arch}, {images.classes[gone]}"
            how = {"images": IMAGES, "seed": lab.seed, "device": lab.where, "progress": lab.progress}
            for k, (way, more) in enumerate(WAYS.items()):
                result = forget(net, [gone], images, **more, **how)
                if not k:
                    yield _row(f"{about}, whole network", result.before, arch, lab)
                yield _row(
                    f"{about}, forgotten, {way}",
                    result.after,
                    arch,
                    lab,
                    images=sum(result.used[name] for name in ("retained", "forgotten")),
                )
            if not arch.startswith("public"):
                yield _row(f"{about}, never seen", _never(lab, arch, gone, images), arch, lab)


def _row(what: str, known: Knowledge, arch: str, lab: Lab, images: int = 0) -> Row:
    """`ours`: the share of the class's images that still get it, by the network's own outputs."""
    shares = {name: None if share is None else round(100 * share, 2) for name, share in vars(known).items()}
    row: Row = {"what": what, "paper": None, "ours": shares["forgotten"], "retained": shares["retained"]}
    uses = {"images": images, "labels": "which images are of the class", "steps": 0} if images else {}
    return {**row, "probed": shares["probed"], **uses, "arch": arch, "seed": lab.seed}


def _never(lab: Lab, arch: str, gone: int, images: ImageData) -> Knowledge:
    """Of a network with an output for the class that was trained without its images."""
    spec = "cifar10" if lab.full else "digits"
    keep = images.train_labels != gone
    rest = replace(
        images, train_images=images.train_images[keep], train_labels=images.train_labels[keep], train_masks=None
    )

    def make() -> nn.Module:
        model = zoo.build(arch, num_classes=len(images.classes), seed=lab.seed, in_channels=images.shape[2])
        return lab.taught(model, rest, spec, seed=lab.seed, **({} if lab.full else lab.recipe(arch)))

    net = lab.kept(f"{arch}-{spec}-without-{gone}-{lab.seed}", make, study="forget-class", seed=lab.seed)
    subject = prepare(net, None, images, device=lab.where, output=None, seed=lab.seed)
    left = [k for k in range(len(images.classes)) if k != gone]
    probed = np.union1d(*(subject.samples.of_classes(some, IMAGES, lab.seed) for some in (left, [gone])))
    return knowledge(subject.whole, subject, [gone], probed)
