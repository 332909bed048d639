"""Paper 2, Table 2: parts of two networks that never saw each other's classes, joined, without training.

Two networks are trained on the halves of a data set. The parts of some classes are cut out of each, repaired
by response matching on unlabelled images of their own half, and joined into one network.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork import data, zoo
from brickwork.blueprint.joining import join
from brickwork.blueprint.plan import Blueprint, trace
from brickwork.bricks.cut import cut_and_repair
from brickwork.bricks.scores import score_channels
from brickwork.bricks.widths import by_mass, within
from brickwork.data.pixels import as_input
from brickwork.devices import pick
from brickwork.origin import Preprocessing
from brickwork.prediction import predict
from brickwork.studies.registry import Row, study
from brickwork.training import settings_for, train

#: classes taken from the halves A and B, by their number within the half
PICKS = {"A0,B0": ([0], [0]), "A0-2,B3-4": ([0, 1, 2], [3, 4]), "all": ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])}
#: accuracy of the assembled network in the paper's Table 2 (CIFAR-10, no fine-tuning)
PAPER = {
    ("simplenetv1", "A0,B0"): 50.0, ("simplenetv1", "A0-2,B3-4"): 30.62,
    ("vgg16", "A0,B0"): 50.5, ("vgg16", "A0-2,B3-4"): 49.68,
    ("resnet50", "A0,B0"): 50.0, ("resnet50", "A0-2,B3-4"): 20.0,
}  # fmt: skip


@dataclass(frozen=True)
class Half:
    """One network, its blueprint and its training images as it sees them."""

    model: nn.Module
    bp: Blueprint
    images: Tensor
    labels: Tensor


@study("assemble", paper="2, Table 2")
def assemble(
    *,
    full: bool,
    seed: int = 0,
    device: str = "auto",
    progress: bool = True,
    archs: tuple[str, ...] | None = None,
    budgets: tuple[float, ...] = (0.25, 0.5),
    images: int = 3000,
) -> list[Row]:
    """Join parts of networks trained on different classes, with no training: accuracy at a share of the parameters."""
    where = pick(device)
    source = "cifar10" if full else "digits"
    archs = archs or (("vgg16", "resnet50") if full else ("lenet",))
    whole = data.load(source)
    rows: list[Row] = []
    for arch in archs:
        halves = [
            _train_half(arch, f"{source}:{h}", whole, seed + k, where, progress) for k, h in enumerate("AB")
        ]
        for pick_name, classes in PICKS.items():
            rows += _join_picks(
                arch, pick_name, classes, halves, whole, budgets, images, seed, where, progress
            )
    return rows


def _train_half(
    arch: str, spec: str, whole: data.ImageData, seed: int, device: torch.device, progress: bool
) -> Half:
    half = data.load(spec)
    preprocessing = whole.preprocessing()  # one network will hold both parts, so both see images alike
    model = zoo.build(arch, num_classes=len(half.classes), seed=seed)
    settings = settings_for(
        arch, len(half.train_labels), data.parse(spec).source, seed=seed, label_smoothing=0.0
    )
    train(
        model, half.train_images, half.train_labels, classes=half.classes, preprocessing=preprocessing,
        device=device, progress=progress, **settings.to_dict(),
    )  # fmt: skip
    model = model.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    images = _prepared(half.train_images, preprocessing, device)
    return Half(model, trace(model, images[:2]), images, torch.as_tensor(half.train_labels).to(device))


def _prepared(images: np.ndarray, preprocessing: Preprocessing, device: torch.device) -> Tensor:
    return as_input(torch.as_tensor(images), preprocessing, device).contiguous()


def _join_picks(
    arch: str, name: str, classes: tuple[list[int], list[int]], halves: list[Half], whole: data.ImageData,
    budgets: tuple[float, ...], count: int, seed: int, device: torch.device, progress: bool,
) -> list[Row]:  # fmt: skip
    ids = [*classes[0], *(c + len(halves[0].bp.output_units) for c in classes[1])]
    chosen = np.isin(whole.test_labels, ids)
    test = _prepared(whole.test_images[chosen], whole.preprocessing(), device)
    labels = torch.tensor([ids.index(int(c)) for c in whole.test_labels[chosen]])
    side_by_side = torch.cat([predict(h.model, test)[:, c] for h, c in zip(halves, classes, strict=True)], 1)
    reference = _percent(side_by_side, labels)
    scored = [_scores(h, c, seed, progress) for h, c in zip(halves, classes, strict=True)]
    rows = []
    for budget in budgets:
        row: Row = {
            "what": f"{arch} {name} at {budget:.0%} of the parameters",
            "paper": PAPER.get((arch, name)),
        }
        for repair in ("none", "match"):
            began = time.perf_counter()
            parts, share = [], []
            for half, c, scores in zip(halves, classes, scored, strict=True):
                kept = _widths(half.bp, scores, budget, c)
                some = torch.randperm(len(half.images), generator=torch.Generator().manual_seed(seed))[:count]
                sample = half.images[some.to(device)]
                cut = cut_and_repair(half.model, half.bp, kept, c, sample, repair=repair, progress=progress)
                parts.append(cut.model)
                share.append(half.bp.count(cut.kept).parameters / half.bp.count().parameters)
            if repair == "none":
                logits = torch.cat([predict(p, test) for p in parts], 1)
                row["cut_only"] = _percent(logits, labels)
                continue
            joined = join(parts, test[:2])
            row.update(
                ours=_percent(predict(joined, test), labels), whole=reference, joined=type(joined).__name__,
                parameters=round(sum(share) / len(share), 4), seconds=round(time.perf_counter() - began, 1),
                images=min(count, *(len(h.images) for h in halves)), seed=seed,
            )  # fmt: skip
        rows.append(row)
    return rows


def _widths(
    bp: Blueprint, scores: dict[str, np.ndarray], budget: float, classes: list[int]
) -> dict[str, list[int]]:
    return within(bp, lambda mass: by_mass(bp, scores, mass), budget, classes=classes)


def _scores(half: Half, classes: list[int], seed: int, progress: bool) -> dict[str, np.ndarray]:
    own = torch.isin(half.labels, torch.tensor(classes, device=half.labels.device)).nonzero()[:, 0]
    order = torch.randperm(len(own), generator=torch.Generator().manual_seed(seed))[:1000]
    some = own[order.to(own.device)]
    found = score_channels(half.model, half.bp, half.images[some], half.labels[some], progress=progress)
    return found.of(classes)


def _percent(logits: Tensor, labels: Tensor) -> float:
    return round(100 * float((logits.argmax(1) == labels).float().mean()), 2)


def facts(device: Any) -> dict[str, Any]:
    """The machine a study ran on."""
    where = pick(device)
    name = torch.cuda.get_device_name() if where.type == "cuda" else "cpu"
    return {"hardware": name, "torch": torch.__version__}
