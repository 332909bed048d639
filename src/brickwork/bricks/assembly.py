"""`assemble`: one network from bricks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from brickwork.blueprint import join
from brickwork.blueprint.parts import rescale_input
from brickwork.bricks.brick import Brick
from brickwork.bricks.calibrate import fold
from brickwork.errors import BadModel, RequestError
from brickwork.origin import Preprocessing, attach, origin_of
from brickwork.prediction import device_of

Folder = str | os.PathLike[str]
CALIBRATIONS = ("none", "source")


def assemble(
    bricks: Sequence[Brick | Folder] | Brick | Folder, *, calibrate: str = "none", how: str = "auto"
) -> nn.Module:
    """A network whose logits are those of the bricks (or brick folders) side by side; the bricks stay as they are.

    Bricks of one architecture are interleaved layer by layer where that is exact (how="blocks"), others, VGG
    with ResNet, run as parallel branches of one network (how="branches"); "auto" decides. Where images were
    normalised by another mean and spread, the part's input is rescaled first, and the parts run as branches.
    Bricks cut from one and the same network are joined side by side as well: channels they share are there twice.
    calibrate: "source" brings every logit to the same mean and spread, by the statistics that the brick took on
    its own source data; on CIFAR-10 it helps only where the parts are unequal, hence "none".
    """
    if calibrate not in CALIBRATIONS:
        raise RequestError(f"calibrate is {calibrate!r}; it must be {' or '.join(CALIBRATIONS)}.")
    bricks = [bricks] if isinstance(bricks, Brick | str | os.PathLike | nn.Module) else list(bricks)
    for given in bricks:
        if not isinstance(given, Brick | str | os.PathLike):
            raise RequestError(f"assemble takes bricks or their folders, not a {type(given).__name__}.")
    parts = [b if isinstance(b, Brick) else Brick.load(Path(b)) for b in bricks]
    if not parts:
        raise RequestError("assemble needs at least one brick.")
    names = [_name(b, k) for k, b in enumerate(bricks)]
    _check(parts, names)
    first = next(p for p in parts[0].model.parameters())
    example = torch.zeros((2, *parts[0].input_shape), dtype=first.dtype, device=first.device)
    models = [part.model for part in parts]
    if calibrate == "source":
        models = _calibrated(parts, example)
    models = _prepared_alike(models)
    joined = join(models, example, how=how, output=parts[0].output)
    origin = origin_of(joined)
    made_of = [{"source": part.source, "classes": list(part.classes)} for part in parts]
    facts = {"assemble": {"calibrate": calibrate, "bricks": made_of}}
    classes = tuple(name for part in parts for name in part.classes)
    attach(joined, replace(origin, classes=classes, input_shape=parts[0].input_shape, provenance=facts))
    return joined.eval()


def _name(brick: object, number: int) -> str:
    return f"brick {number}" if isinstance(brick, Brick) else str(Path(str(brick)))


def _check(parts: list[Brick], names: list[str]) -> None:
    owner: dict[str, str] = {}
    for part, name in zip(parts, names, strict=True):
        for label in part.classes:
            if label in owner:
                raise RequestError(
                    f"class {label!r} is in {owner[label]} and in {name}; cut bricks of different classes."
                )
            owner[label] = name
    for (a, one), (b, two) in pairwise(zip(names, parts, strict=True)):
        if one.input_shape != two.input_shape:
            raise BadModel(
                f"{a} takes inputs of {_shape(one)} and {b} of {_shape(two)}; bricks must share one input size."
            )
        prepared = [origin_of(p.model).preprocessing for p in (one, two)]
        if prepared[0] != prepared[1] and _rescaling(*prepared) is None:
            raise BadModel(
                f"{a} and {b} prepare images differently ({prepared[0]} and {prepared[1]}), so no one input suits "
                "both; train their networks with the same preprocessing."
            )
        if one.output != two.output:
            raise BadModel(f"the logits are output {one.output!r} of {a} and {two.output!r} of {b}.")
        kinds = [(next(p.model.parameters()).dtype, device_of(p.model)) for p in (one, two)]
        if kinds[0] != kinds[1]:
            raise BadModel(
                f"{a} is {kinds[0][0]} on {kinds[0][1]} and {b} {kinds[1][0]} on {kinds[1][1]}; "
                "bring them to one dtype and device first."
            )


def _rescaling(
    first: Preprocessing | None, other: Preprocessing | None
) -> tuple[list[float], list[float]] | None:
    """What turns images prepared the first way into the other; None where more than mean and spread differ."""
    if first is None or other is None or first.size != other.size or first.channels != other.channels:
        return None
    if not len(first.mean) == len(first.std) == len(other.mean) == len(other.std) == first.channels:
        return None
    scale = [a / b for a, b in zip(first.std, other.std, strict=True)]
    shift = [(a - b) / s for a, b, s in zip(first.mean, other.mean, other.std, strict=True)]
    return scale, shift


def _prepared_alike(models: list[nn.Module]) -> list[nn.Module]:
    """Networks that were trained on differently normalised images all read the first one's kind."""
    first = origin_of(models[0]).preprocessing
    alike = []
    for model in models:
        own = origin_of(model).preprocessing
        change = None if own == first else _rescaling(first, own)
        if change is not None:
            model = rescale_input(model, *change)
            attach(model, replace(origin_of(model), preprocessing=first))
        alike.append(model)
    return alike


def _shape(part: Brick) -> str:
    return "×".join(map(str, part.input_shape))


def _calibrated(parts: list[Brick], example: torch.Tensor) -> list[nn.Module]:
    """Every logit z-scored, then all put back to their common spread, so that confidences keep their scale."""
    spreads = [s for part in parts for s in part.std]
    common = sum(spreads) / len(spreads)
    models = []
    for part in parts:
        mean, std = (torch.tensor(v, dtype=torch.float64) for v in (part.mean, part.std))
        if not (std > 0).all():
            raise BadModel(
                f"a logit of {', '.join(part.classes)} never varied on its source data; do not calibrate."
            )
        models.append(fold(part.model, common / std, -mean * common / std, example, part.output))
    return models
