"""Classes learned step by step, the task of a test image unknown: methods in closed form beside trained ones.

The start of a full run is a public MobileNetV2 of ImageNet at 96 pixels, which nobody here trained; the classes of CIFAR-100 come
ten or five at a time, those of the pets six, of CUB-200 twenty, in an order drawn by the seed, as in the tables of the field
(whose starts are other networks). Many breeds of the pets are classes of ImageNet, too: the start has seen other images of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from brickwork import continual, zoo
from brickwork.origin import attach, origin_of
from brickwork_lab import public_networks
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, study

SIDE = 96
STEPS = {"cifar100": (10, 20), "pets": (6,), "cub200": (10,), "digits": (5,)}
METHODS = ("ncm", "ranpac", "replay", "derpp", "lwf", "ewc", "sequential", "finetune")
SMOKE = ("ncm", "ranpac(width=300)", "replay", "sequential", "finetune")


@study("class-incremental", paper="")
def class_incremental(lab: Lab, *, archs: Names = None, sets: Names = None, picks: Names = None) -> Iterator[Row]:
    """Accuracy after the last step and over all steps, bytes and time; nothing is known of a test image."""
    for arch in lab.archs(archs, ("public-mobilenetv2",)):
        start = _start(lab, arch)
        for source, steps in _cases(lab, sets):
            images = lab.data(source)
            scenario = continual.split_classes(images, tasks=steps, seed=lab.seed)
            for name in picks or (METHODS if lab.full else SMOKE):
                found = continual.run(
                    scenario,
                    [name],
                    start,
                    protocol="class",
                    epochs=20 if lab.full else 2,
                    seed=lab.seed,
                    device=lab.where,
                    progress=lab.progress,
                )
                result = next(iter(found.results.values()))
                row: Row = {"what": f"{arch}, {images.name} in {steps} steps, {result.method}", "paper": None}
                row |= {"ours": _percent(result.average_accuracy), "over_steps": _percent(result.incremental_accuracy)}
                row |= {"backward": _percent(result.backward_transfer), "mb": round(result.total_bytes / 2**20, 2)}
                yield {**row, "seconds": round(result.seconds, 1), "labels": "all", "arch": arch, "seed": lab.seed}


def _cases(lab: Lab, sets: Names) -> Iterator[tuple[str, int]]:
    for source in sets or (("cifar100", "pets") if lab.full else ("digits",)):
        for steps in STEPS[source]:
            yield source, steps


def _percent(share: float) -> float:
    return round(100 * share, 2)


def _start(lab: Lab, arch: str) -> nn.Module:
    """What every method starts from; in a smoke run, a network that has seen half of the digits."""
    if not lab.full:
        known = lab.data("digits:A")
        model = zoo.build(arch, num_classes=5, in_channels=1, seed=lab.seed)
        return lab.taught(model, known, "digits", seed=lab.seed, **lab.recipe(arch))
    if arch not in public_networks.NETWORKS:
        return lab.network(arch, "cifar10")
    model = public_networks.load(arch, lab.networks)
    origin = origin_of(model)
    assert origin.preprocessing is not None
    attach(model, replace(origin, preprocessing=replace(origin.preprocessing, size=(SIDE, SIDE))))
    return model
