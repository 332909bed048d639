"""Paper 2: its way and ours to cut a part out of a network, at equal cost, and what stands beside every row.

The paper's original is right where it gives an image its class among all it knows; `whole` may answer the classes of the
part only. Both are measured, each under its own name. The part of a single class has one output, which is always right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from brickwork.bricks import Brick
from brickwork.bricks import disassemble as cut_out
from brickwork.bricks.disassembly import Cutting
from brickwork.bricks.options import DisassembleOptions
from brickwork.data import class_indices
from brickwork.data.images import ImageData
from brickwork.prediction import predict
from brickwork_lab.judging import accuracy
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import OF_ONE_RUN, Row, averaged, read_json

PAPER = read_json("paper2.json")
ARCHS = ("simplenetv1", "vgg16", "resnet50")
THEIRS, SAME, HALF = "the paper's way", "ours, as many multiply-adds", "ours, 50% of the multiply-adds"
PAPERS_WAY: dict[str, Any] = {"attribution": "frat", "threshold": 1.0, "depth": 2, "repair": "none"}
SURE, PER_CLASS = 0.9, 100  # the paper scores channels on 100 images per class that the network is this sure of (§4.2)
#: rates of the paper's epoch of fine-tuning (§6.1), for its parts and for ours
RATES = {"cifar10": 1e-3, "cifar100": 1e-4, "tiny_imagenet": 1e-4}
ONE_RUN = ("tiny_imagenet",)


def picks_of(table: str, source: str) -> dict[str, str]:
    """The paper's picks of classes of a set; those of CIFAR-10 for a set that the paper does not have.

    >>> list(picks_of("assemble", "tiny_imagenet")), list(picks_of("disassemble", "digits"))
    (['A0,A40', 'A0-9,A30-49', 'A0,B0', 'A0-9,B20-39'], ['0', '1', '0-2', '2-4'])
    """
    known = source if source in RATES else "cifar10"
    keys = [key.split() for key in PAPER[table]]
    return {pick: pick for one, _, pick in keys if one == known}


def paper_of(table: str, key: str, count: int) -> Sequence[float | None]:
    """The paper's numbers of a case; None for each of a set that it does not have."""
    numbers: Sequence[float | None] = PAPER[table].get(key, (None,) * count)
    return numbers


def numbers_of(classes: str, half: ImageData) -> list[int]:
    """Classes by their number within a half, whatever they are called."""
    return class_indices(classes, [f"class {k}" for k in range(len(half.classes))])


def papers_part(lab: Lab, net: nn.Module, classes: Sequence[int] | None, half: ImageData) -> Brick:
    """The part that the paper's rule gives: scored on 100 sure images per class, not repaired."""
    every = list(range(len(half.classes)) if classes is None else classes)
    sure, options = _sure(lab, net, half, every), {**PAPERS_WAY, "scored": PER_CLASS * len(every)}
    return cut_out(net, every, sure, seed=lab.seed, progress=lab.progress, **options)


def _sure(lab: Lab, net: nn.Module, half: ImageData, classes: Iterable[int]) -> ImageData:
    """The half with at most 100 training images of each of these classes, which the network is sure of."""
    chosen = []
    for number in classes:
        own = np.flatnonzero(half.train_labels == number)
        drawn = np.random.default_rng([lab.seed, 2, number]).permutation(own)[: 4 * PER_CLASS]
        known = predict(net, half.train_images[drawn], device=lab.where).softmax(1)[:, number].numpy() > SURE
        chosen.append(drawn[known][:PER_CLASS])
    index = np.sort(np.concatenate(chosen))
    return replace(half, train_images=half.train_images[index], train_labels=half.train_labels[index], train_masks=None)


def our_parts(
    lab: Lab, net: nn.Module, classes: Sequence[int] | None, half: ImageData, shares: Collection[float]
) -> list[Brick]:
    """Our parts within shares of the multiply-adds; channels are put in order once for all of them."""
    budgets = [DisassembleOptions(budget=share, of="macs", seed=lab.seed) for share in shares]
    numbers = None if classes is None else list(classes)
    cutting = Cutting(net, numbers, half, device=None, options=budgets[0], progress=lab.progress)
    return [cutting.brick(options) for options in budgets]


def both_ways(lab: Lab, net: nn.Module, classes: Sequence[int] | None, half: ImageData) -> dict[str, Brick]:
    """The part by the paper's way, by ours at its multiply-adds, and by ours at half of the whole's."""
    theirs = papers_part(lab, net, classes, half)
    same, smaller = our_parts(lab, net, classes, half, (theirs.macs, 0.5))
    return {THEIRS: theirs, SAME: same, HALF: smaller}


def tuned(lab: Lab, model: nn.Module, images: ImageData, source: str) -> nn.Module:
    """A copy after an epoch at the paper's rate for this set."""
    return lab.fine_tuned(model, images, lr=RATES.get(source, 1e-3))


def original(lab: Lab, source: str, parts: Iterable[tuple[nn.Module, Collection[str]]]) -> float:
    """Per cent that whole networks get right among all their classes, each on the images of some classes of its own."""
    right, count = 0.0, 0
    for net, names in parts:
        images = lab.classes_of(source, list(names))
        right += accuracy(net, images) * len(images.test_labels)
        count += len(images.test_labels)
    return round(right / count, 2)


def protocol(lab: Lab, arch: str, source: str) -> str:
    """What our networks were trained by, beside the paper's 100 or 200 epochs at 0.01 (§6.1)."""
    how = lab.recipe(arch, source)
    stem = ", ImageNet stem" if "stem" in lab.arguments(arch, source) else ""
    return (
        f"ours: {how.get('epochs')} epochs of {how.get('batch_size')} at {how.get('lr')}{stem}; the paper: "
        f"{100 if source == 'cifar10' else 200} epochs of {32 if source == 'tiny_imagenet' else 128} at 0.01"
    )


def repeated(lab: Lab, source: str, seeds: int | None, rows_of: Callable[[Lab], Iterator[Row]]) -> Iterator[Row]:
    """Rows averaged over runs with other seeds, as they come: three in a full run, one of Tiny-ImageNet.

    The runs go in step, so that one that is stopped has whole rows up to there.
    """
    count = seeds or (3 if lab.full and source not in ONE_RUN else 1)
    if count == 1:
        return iter(rows_of(lab))
    return merged([rows_of(lab.reseeded(k)) for k in range(count)])


def merged(runs: Sequence[Iterable[Row]]) -> Iterator[Row]:
    """Means over runs with other seeds, without what is of one run; runs of `--seed 0`, `1`, `2` can be merged by it too.

    >>> next(merged([[{"what": "a", "ours": x, "note": str(x)}] for x in (1.0, 2.0)]))
    {'what': 'a', 'ours': 1.5, 'ours_each': [1.0, 2.0], 'seeds': 2}
    """
    return averaged([({n: v for n, v in row.items() if n not in OF_ONE_RUN} for row in rows) for rows in runs])
