"""`brickwork assemble BRICK… --out MODEL`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from brickwork.cli.common import DebugOption, ForceOption, JsonOption, OutOption, emit


class Calibrate(StrEnum):
    """How the logits of the parts are brought to one scale."""

    none = "none"
    source = "source"


class How(StrEnum):
    """How the parts are joined."""

    auto = "auto"
    blocks = "blocks"
    branches = "branches"


def command(
    bricks: Annotated[list[Path], typer.Argument(metavar="BRICK…", help="Folders written by disassemble.")],
    out: OutOption,
    calibrate: Annotated[
        Calibrate,
        typer.Option(help="source: each logit to one mean and spread, by its brick's own statistics."),
    ] = Calibrate.none,
    how: Annotated[
        How, typer.Option(help="Interleave layers (blocks) or run parts whole (branches).")
    ] = How.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Join bricks into one model, whose classes are those of all bricks, in this order.

    brickwork assemble a012 b34 --out ab
    """
    from brickwork import store
    from brickwork.atomic import check_output

    check_output(out, force=force)
    for folder in bricks:
        store.read_config(folder)
    from brickwork.bricks import assemble
    from brickwork.origin import origin_of

    model = assemble(bricks, calibrate=str(calibrate), how=str(how))
    store.save(model, out, force=force, provenance={"command": "assemble"})
    origin = origin_of(model)
    joined = origin.steps[0]["how"]
    report = {
        "folder": str(out),
        "bricks": [str(b) for b in bricks],
        "classes": list(origin.classes or ()),
        "how": joined,
        "calibrate": str(calibrate),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    text = (
        f"{len(bricks)} bricks joined as {joined}: {report['parameters']:,} parameters, classes "
        f"{', '.join(report['classes'])}; saved in {out}"
    )
    emit(report, text, as_json=as_json)
