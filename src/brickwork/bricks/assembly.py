"""`assemble`: one network from bricks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from brickwork.blueprint import join
from brickwork.blueprint.parts import rescale_input
from brickwork.bricks.brick import Brick
from brickwork.bricks.calibrate import calibrated
from brickwork.bricks.joinable import check_target, refuse_overlap
from brickwork.bricks.options import AssembleOptions
from brickwork.bricks.union import unite
from brickwork.copying import copy_module
from brickwork.data.datasets import images_of
from brickwork.data.pixels import as_input
from brickwork.data.streamed import Images
from brickwork.devices import device_of
from brickwork.errors import BadModel, RequestError
from brickwork.options import takes
from brickwork.origin import Preprocessing, attach, origin_of
from brickwork.outputs import logits_of
from brickwork.prediction import evaluating
from brickwork.store import state_hash

Folder = str | os.PathLike[str]


@takes(AssembleOptions)
def assemble(
    bricks: Sequence[Brick | Folder] | Brick | Folder,
    *,
    target: Images | None = None,
    source: nn.Module | None = None,
    data: Images | None = None,
    options: AssembleOptions,
) -> nn.Module:
    """A network whose logits are those of the bricks (or brick folders) side by side; the bricks stay as they are.

    Bricks of one architecture are interleaved layer by layer where that is exact (how="blocks"), others, VGG
    with ResNet, run as parallel branches of one network (how="branches"); "auto" decides. Where images were
    normalised by another mean and spread, the part's input is rescaled first, and the parts run as branches.
    shared: bricks cut from one and the same network become one part in which a channel that several need is there
    once ("union"), or stay "apart"; "auto" unites plain cuts, and repaired ones where `source`, their network,
    and `data`, unlabelled images of its kind to repair the union on, are given. The classes of united bricks
    stand together, where the first of them stood.
    calibrate: brings the logits of the parts to one scale, inside their last layers. "source": by one factor a
    part, so that its whole network's logits, on its own data, spread as the first part's do (99.05 → 99.15, 89.66 →
    90.74 and 82.96 → 83.98 % for two ResNet-50 on CIFAR-10: A0,B0, A0-2,B3-4 and all; 3 of 4 VGG pairs gain too);
    "classwise": every logit by itself, likewise on source data; "target": every logit, on unlabelled images of the
    `target`; "none". "auto" is "source" where every brick has the statistics and it can be done exactly, else "none".

    >>> from brickwork.bricks import disassemble
    >>> _ = torch.manual_seed(0)
    >>> net, x = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3)), torch.randn(200, 4)
    >>> parts = [disassemble(net, c, (x, net(x).argmax(1)), keep=0.5, progress=False) for c in ([0, 1], [2])]
    >>> assemble(parts, calibrate="none")(x).shape
    torch.Size([200, 3])
    """
    check_target(options, target)
    bricks = [bricks] if isinstance(bricks, Brick | str | os.PathLike | nn.Module) else list(bricks)
    for given in bricks:
        if not isinstance(given, Brick | str | os.PathLike):
            raise RequestError(
                f"assemble takes bricks or their folders, not a {type(given).__name__}; a whole network is the first argument "
                "of increment."
            )
    parts = [b if isinstance(b, Brick) else Brick.load(Path(b)) for b in bricks]
    if not parts:
        raise RequestError("assemble needs at least one brick.")
    _check(parts, [_name(b, k) for k, b in enumerate(bricks)])
    count = len(parts)
    parts = _united(parts, options.shared, source, data)
    first = next(p for p in parts[0].model.parameters())
    example = torch.zeros((2, *parts[0].input_shape), dtype=first.dtype, device=first.device)
    how = "none" if _answer_with_maps(parts, example, options.calibrate) else options.calibrate
    models, calibrate = calibrated(parts, example, how, target)
    models = _prepared_alike(models)
    outputs = [part.output for part in parts]
    joined = join(models, example, how=options.how, output=outputs) if len(models) > 1 else _alone(models[0])
    made_of = [{"source": part.source, "classes": list(part.classes)} for part in parts]
    facts = {"assemble": {"calibrate": calibrate, "united": count - len(parts), "bricks": made_of}}
    classes = tuple(name for part in parts for name in part.classes)
    origin = replace(origin_of(joined), classes=classes, input_shape=parts[0].input_shape, provenance=facts)
    attach(joined, origin)
    return joined.eval()


def _united(parts: list[Brick], shared: str, source: nn.Module | None, images: Images | None) -> list[Brick]:
    """Bricks of one network as one, where that was asked for or loses nothing."""
    groups: dict[tuple[str, str], list[Brick]] = {}
    for part in parts:
        groups.setdefault((part.source, str(part.output)), []).append(part)
    if shared == "apart" or len(groups) == len(parts):
        if shared == "union":
            raise RequestError("no two of the bricks were cut from the same network; there is nothing to unite.")
        return parts
    given_hash = state_hash(source) if source is not None else None
    result = []
    for (hashed, _), group in groups.items():
        trained = [part for part in group if part.used.get("trained")]
        if trained and shared == "union":
            raise RequestError(
                f"the brick of {', '.join(trained[0].classes)} was trained since it was cut; keep it apart."
            )
        plain = all(part.options.repair == "none" for part in group)
        own = source if hashed == given_hash else None
        # plain cuts of an architecture that Brickwork cannot build stay apart, which loses nothing but the sharing
        known = own is not None or origin_of(group[0].model).arch is not None
        possible = (plain and known) or (own is not None and images is not None)
        if len(group) == 1 or trained or not (possible or shared == "union"):
            result += group
            continue
        prepared = origin_of(group[0].model).preprocessing
        given = as_input(images_of(images), prepared, device_of(own)) if images is not None and own else None
        result.append(unite(group, source=own, images=given))
    return result


def _answer_with_maps(parts: list[Brick], example: Tensor, calibrate: str) -> bool:
    """Whether the parts answer with maps, of which none is brought to another's scale; their places must be the same."""
    if len(parts) == 1:
        return False
    shapes = []
    for part in parts:
        with evaluating(part.model):
            shapes.append(tuple(logits_of(part.model(example), part.output).shape[2:]))
    for part, shape in zip(parts, shapes, strict=True):
        if shape != shapes[0]:
            said = [" × ".join(map(str, places)) or "one" for places in (shapes[0], shape)]
            raise RequestError(
                f"the part of {', '.join(parts[0].classes[:5])} answers at {said[0]} places of an image and that of "
                f"{', '.join(part.classes[:5])} at {said[1]}; join parts that answer alike."
            )
    if shapes[0] and calibrate not in ("auto", "none"):
        raise RequestError(f"`calibrate` is {calibrate}, and these parts answer with maps; give none, or leave it out.")
    return bool(shapes[0])


def _alone(model: nn.Module) -> nn.Module:
    """A network of one part: a copy, since bricks stay as they are."""
    return copy_module(model)


def _name(brick: object, number: int) -> str:
    return f"brick {number}" if isinstance(brick, Brick) else str(Path(str(brick)))


def _check(parts: list[Brick], names: list[str]) -> None:
    refuse_overlap((name, part.classes, part.input_shape) for name, part in zip(names, parts, strict=True))
    for (a, one), (b, two) in pairwise(zip(names, parts, strict=True)):
        prepared = [origin_of(p.model).preprocessing for p in (one, two)]
        if prepared[0] != prepared[1] and rescaling(*prepared) is None:
            raise BadModel(
                f"{a} and {b} prepare images differently ({prepared[0]} and {prepared[1]}), so no one input suits "
                "both; train their networks with the same preprocessing."
            )
        kinds = [(next(p.model.parameters()).dtype, device_of(p.model)) for p in (one, two)]
        if kinds[0] != kinds[1]:
            raise BadModel(
                f"{a} is {kinds[0][0]} on {kinds[0][1]} and {b} {kinds[1][0]} on {kinds[1][1]}; "
                "bring them to one dtype and device first."
            )


def rescaling(first: Preprocessing | None, other: Preprocessing | None) -> tuple[list[float], list[float]] | None:
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
        change = None if own == first else rescaling(first, own)
        if change is not None:
            model = rescale_input(model, *change)
            attach(model, replace(origin_of(model), preprocessing=first))
        alike.append(model)
    return alike
