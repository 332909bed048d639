"""`brickwork disassemble MODEL --classes … --data … --out BRICK`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.cli.brick_options import (
    AttributionOption,
    BudgetOption,
    DataOption,
    DepthOption,
    ImagesOption,
    KeepOption,
    ModelArgument,
    Of,
    OfOption,
    OutputOption,
    Repair,
    RepairOption,
    RidgeOption,
    RoundOption,
    ScoredOption,
    ThresholdOption,
    ToleranceOption,
)
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


def command(
    folder: ModelArgument,
    classes: Annotated[str, typer.Option(help="Of the model, by number or name: 0-2, cat,dog.", show_default=False)],
    data: DataOption,
    out: OutOption,
    attribution: AttributionOption = "taylor",
    keep: KeepOption = None,
    budget: BudgetOption = None,
    of: OfOption = Of.parameters,
    threshold: ThresholdOption = None,
    tolerance: ToleranceOption = 0.01,
    depth: DepthOption = None,
    repair: RepairOption = Repair.match,
    images: ImagesOption = 3000,
    scored: ScoredOption = 3000,
    ridge: RidgeOption = 1e-4,
    round_to: RoundOption = None,
    output: OutputOption = None,
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
    cut(
        "disassemble",
        folder,
        classes,
        data,
        out,
        depth=depth,
        output=output,
        arch=arch,
        device=device,
        force=force,
        as_json=as_json,
        attribution=attribution,
        keep=keep,
        budget=budget,
        of=str(of),
        threshold=threshold,
        tolerance=tolerance,
        repair=str(repair),
        images=images,
        scored=scored,
        ridge=ridge,
        round_to=round_to,
        seed=seed,
    )


def cut(
    verb: str,
    folder: Path,
    classes: str | None,
    data: str,
    out: Path,
    *,
    depth: str | None,
    output: str | None,
    arch: str | None,
    device: Device,
    force: bool,
    as_json: bool,
    seed: int,
    **options: Any,
) -> None:
    """A brick of some classes, or of all (None), checked, cut, saved and reported."""
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.bricks import disassemble
    from brickwork.bricks.disassembly import check_options
    from brickwork.bricks.samples import find_classes
    from brickwork.cli.brick_folders import images_for
    from brickwork.devices import pick

    # Everything that can be refused is refused here, before a tensor or an image is read.
    check_output(out, force=force)
    where = pick(str(device))
    check_options(seed=seed, **options)
    known = store.read_config(folder).classes
    if known is not None and classes is not None:
        find_classes(classes, known)
    spec = images_of.check(data)
    model = store.load(folder, arch=arch, device=where)
    brick = disassemble(model, classes, images_for(model, spec, seed), depth=depth, output=output, seed=seed, **options)
    brick.save(out, force=force, command=verb, data=str(spec))
    report = {"folder": str(out), "model": str(folder), "data": str(spec), **brick.to_dict()}
    emit(report, f"{brick}\nsaved in {out}", as_json=as_json)
