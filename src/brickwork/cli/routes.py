"""`brickwork routes MODEL --data … --out routes.svg`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from brickwork.cli.brick_options import AttributionOption, DataOption, ModelArgument, OutputOption, ScoredOption
from brickwork.cli.common import (
    ArchOption,
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    SeedOption,
    emit,
    typed_line,
)


def command(
    folder: ModelArgument,
    data: DataOption,
    out: Annotated[
        Path, typer.Option(help="Picture to write: .svg, .png or .html.", show_default=False, metavar="FILE")
    ],
    classes: Annotated[
        str | None, typer.Option(help="Of the model, by number or name: 3,8 or dog,bird; else all that the data has.")
    ] = None,
    attribution: AttributionOption = "frat",
    threshold: Annotated[float, typer.Option(help="On the route is what scores above this × the layer's mean.")] = 1.0,
    scored: ScoredOption = 1000,
    output: OutputOption = None,
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Draw which channels decide for which class, and how much the classes share.

    brickwork routes a --classes 3,8 --data digits --out routes.html
    """
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.atomic import check_file
    from brickwork.bricks.routes import check_options, routes
    from brickwork.bricks.samples import find_classes
    from brickwork.cli.brick_folders import images_for
    from brickwork.devices import pick
    from brickwork.report import draw_routes
    from brickwork.report.drawing import check_suffix

    # Everything that can be refused is refused here, before a tensor or an image is read.
    check_suffix(out)
    check_file(out, force=force)
    where = pick(str(device))
    check_options(attribution=attribution, threshold=threshold, scored=scored, seed=seed)
    known = store.read_config(folder).classes
    if known is not None and classes is not None:
        find_classes(classes, known)
    spec = images_of.check(data)
    model = store.load(folder, arch=arch, device=where)
    found = routes(
        model,
        images_for(model, spec, seed),
        classes,
        attribution=attribution,
        threshold=threshold,
        scored=scored,
        seed=seed,
        output=output,
    )
    replace(draw_routes(found), command=typed_line()).save(out, force=force)
    report = {"file": str(out), "model": str(folder), "data": str(spec), **found.to_dict()}
    emit(report, f"{found}\nsaved in {out}", as_json=as_json)
