"""`brickwork assign MODEL DELTA --alpha 1 --out MODEL`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from brickwork.cli.common import (
    ArchOption,
    DebugOption,
    ForceOption,
    JsonOption,
    OutOption,
    Statistics,
    StatisticsOption,
    emit,
)


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")],
    delta: Annotated[Path, typer.Argument(metavar="DELTA", help="A file written by delta.")],
    out: OutOption,
    alpha: Annotated[float, typer.Option(help="How much of it.")] = 1.0,
    bn: StatisticsOption = Statistics.linear,
    strict: Annotated[bool, typer.Option("--strict", help="Only to the network the delta was taken from.")] = False,
    arch: ArchOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Add what one network learned to another: θ + αg (paper 1, Eq. 6).

    brickwork assign other g.safetensors --alpha 5 --out other_g
    """
    from brickwork import store
    from brickwork.algebra import Delta, assign
    from brickwork.atomic import check_output

    check_output(out, force=force)
    store.read_config(model)
    moved = assign(store.load(model, arch=arch), Delta.load(delta), alpha, bn=str(bn), strict=strict)
    store.save(moved, out, force=force, provenance={"command": "assign", "delta": str(delta)})
    report = {"folder": str(out), "model": str(model), "delta": str(delta), "alpha": alpha}
    emit(report, f"{model} + {alpha:g} × {delta}; saved in {out}", as_json=as_json)
