"""`brickwork disassemble MODEL --classes … --data … --out BRICK`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from brickwork.cli.common import (
    ArchOption,
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    OutOption,
    SeedOption,
    emit,
)


class Of(StrEnum):
    """What a budget counts."""

    parameters = "parameters"
    macs = "macs"


class Repair(StrEnum):
    """How a cut part is repaired, without labels."""

    match = "match"
    bn = "bn"
    none = "none"


def command(
    folder: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")],
    classes: Annotated[
        str, typer.Option(help="Of the model, by number or name: 0-2, cat,dog.", show_default=False)
    ],
    data: Annotated[
        str, typer.Option(help="Training images: digits, cifar10:A, a folder, an .npz, …", show_default=False)
    ],
    out: OutOption,
    attribution: Annotated[
        str, typer.Option(help="Score of a channel: taylor, frat, frat-negative, frat-absolute.")
    ] = "taylor",
    keep: Annotated[
        float | None, typer.Option(help="Keep this share of the channels of every layer.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Keep at most this share of --of.")] = None,
    of: Annotated[Of, typer.Option(help="What a budget counts.")] = Of.parameters,
    threshold: Annotated[
        float | None, typer.Option(help="The paper's: keep what scores above this × the layer's mean.")
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(help="Without the three above: the smallest part that loses at most this accuracy."),
    ] = 0.01,
    repair: Annotated[Repair, typer.Option(help="How to repair the part, without labels.")] = Repair.match,
    images: Annotated[int, typer.Option(help="Images to repair on, at most.")] = 3000,
    scored: Annotated[int, typer.Option(help="Images of the classes to score channels on, at most.")] = 1000,
    ridge: Annotated[float, typer.Option(help="Of the repair.")] = 1e-4,
    round_to: Annotated[int | None, typer.Option(help="Widths are a multiple of this.")] = None,
    output: Annotated[
        str | None, typer.Option(help="Which output is the logits, where there are several.")
    ] = None,
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Cut the part of some classes out of a model and save it as a brick.

    brickwork disassemble a --classes 0-2 --data digits:A --out a012
    """
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.bricks import disassemble
    from brickwork.bricks.disassembly import check_options
    from brickwork.bricks.samples import find_classes
    from brickwork.devices import pick
    from brickwork.origin import origin_of

    # Everything that can be refused is refused here, before a tensor or an image is read.
    check_output(out, force=force)
    where = pick(str(device))
    check_options(
        attribution=attribution, keep=keep, budget=budget, of=str(of), threshold=threshold, tolerance=tolerance,
        repair=str(repair), images=images, scored=scored, ridge=ridge, round_to=round_to, seed=seed,
    )  # fmt: skip
    known = store.read_config(folder).classes
    if known is not None:
        find_classes(classes, known)
    spec = images_of.check(data)
    model = store.load(folder, arch=arch, device=where)
    prepared = origin_of(model).preprocessing
    source = images_of.load(
        spec,
        seed=seed,
        size=prepared.size if prepared else None,
        channels=prepared.channels if prepared else None,
    )
    brick = disassemble(
        model, classes, source, attribution=attribution, keep=keep, budget=budget, of=str(of),
        threshold=threshold, tolerance=tolerance, repair=str(repair), images=images, scored=scored, ridge=ridge,
        round_to=round_to, seed=seed, output=output,
    )  # fmt: skip
    brick.save(out, force=force, command="disassemble", data=str(spec))
    report = {"folder": str(out), "model": str(folder), "data": str(spec), **brick.to_dict()}
    emit(report, f"{brick}\nsaved in {out}", as_json=as_json)
