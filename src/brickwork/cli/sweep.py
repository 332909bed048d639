"""`brickwork sweep A B --base Z --data X --data Y --alpha 0:1:0.1 --beta 0:1:0.1 --out FOLDER`."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.cli.common import (
    ArchOption,
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    OutOption,
    Statistics,
    StatisticsOption,
    emit,
    typed_line,
)
from brickwork.errors import RequestError

OWNS = ("sweep.csv",)


class Precision(StrEnum):
    auto = "auto"
    bf16 = "bf16"


def command(
    first: Annotated[Path, typer.Argument(metavar="A", help="A model folder.")],
    data: Annotated[list[str], typer.Option(help="Test images of a data set (repeatable).", show_default=False)],
    out: OutOption,
    second: Annotated[Path | None, typer.Argument(metavar="B", help="Another of the same architecture.")] = None,
    base: Annotated[Path | None, typer.Option(help="What both were trained from: θ₀ + α(A − θ₀) + β(B − θ₀).")] = None,
    alpha: Annotated[str, typer.Option(help="0:1:0.1, or 0,0.5,1.")] = "0:1:0.1",
    beta: Annotated[str | None, typer.Option(help="Likewise, for B.", show_default="as alpha")] = None,
    bn: StatisticsOption = Statistics.linear,
    batch_size: Annotated[int | None, typer.Option(help="Images in a pass.", show_default="as fits")] = None,
    cells: Annotated[int | None, typer.Option(help="Cells in a pass.", show_default="as fits")] = None,
    precision: Annotated[Precision, typer.Option(help="The networks' own, or bf16: faster on a GPU.")] = Precision.auto,
    journal: Annotated[
        Path | None, typer.Option(help="File to go on from when stopped; with an engine, a folder.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where rows of the grid run: inline, processes:N, ray or ray:ADDRESS.")
    ] = "inline",
    arch: ArchOption = None,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Accuracy of αA + βB on every data set: a table, heat maps and the balanced point.

    brickwork sweep a b --base zero --data digits:A --data digits:B --alpha 0:1:0.25 --out ab
    """
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.algebra.agreement import refuse_differences
    from brickwork.atomic import check_output, write_folder
    from brickwork.devices import pick
    from brickwork.engine.places import place
    from brickwork.origin import origin_of

    check_output(out, force=force, owns=OWNS)
    where = pick(str(device))
    values = numbers(alpha, "alpha")
    others = numbers(beta, "beta") if beta is not None else values if second is not None else [0.0]
    folders = {"A": first, **({"B": second} if second else {}), **({"base": base} if base else {})}
    told = {str(folder): store.read_config(folder).weights.tensors for folder in folders.values()}
    refuse_differences({f: {name: tuple(t.shape) for name, t in found.items()} for f, found in told.items()})
    specs = [images_of.check(spec) for spec in data]
    if len({str(spec) for spec in specs}) != len(specs):
        raise RequestError("a data set is named twice.")

    place(engine)
    if engine != "inline" and arch is not None:
        raise RequestError("--arch names code of yours, which other processes do not load; use --engine inline.")

    from brickwork.algebra import sweep
    from brickwork.algebra.sweep_jobs import sweep_folders
    from brickwork.report.heat import draw_sweep
    from brickwork.report.runs import save_figures

    how: dict[str, Any] = {"bn": str(bn), "batch_size": batch_size, "cells": cells, "precision": str(precision)}
    if engine != "inline":
        found = sweep_folders(
            folders,
            [str(spec) for spec in specs],
            alpha=values,
            beta=others,
            engine=engine,
            kept=journal,
            device=str(where),
            progress=not as_json,
            **how,
        )
    else:
        models = {name: store.load(folder, arch=arch, device=where) for name, folder in folders.items()}
        prepared = origin_of(models["A"]).preprocessing
        sets = {str(spec): images_of.load_for(prepared, spec) for spec in specs}
        found = sweep(
            models["A"],
            models.get("B"),
            base=models.get("base"),
            data=sets,
            alpha=values,
            beta=others,
            journal=journal,
            progress=not as_json,
            **how,
        )
    drawing = replace(draw_sweep(found), command=typed_line())
    with write_folder(out, force=force, owns=OWNS) as draft:
        (draft / "sweep.csv").write_text(found.csv(), encoding="utf-8")
        for suffix in (".html", ".svg"):
            drawing.save(draft / f"sweep{suffix}")
        save_figures(draft, [drawing])
    report = {"folder": str(out), "models": {k: str(v) for k, v in folders.items()}, **found.to_dict()}
    emit(report, f"{found}\nsaved in {out}: sweep.csv, sweep.html, sweep.svg", as_json=as_json)


def numbers(text: str, name: str) -> list[float]:
    """`0:1:0.25` (both ends) or `0,0.5,1` as numbers.

    >>> numbers("0:1:0.25", "alpha"), numbers("2", "alpha")
    ([0.0, 0.25, 0.5, 0.75, 1.0], [2.0])
    """
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        start, stop, step = (float(part) for part in text.split(":"))
        count = round((stop - start) / step) if step else -1
    except (ValueError, OverflowError):
        raise RequestError(f"{name} is {text!r}; it must be as in 0:1:0.1 or 0,0.5,1.") from None
    if not 0 <= count <= 10_000:
        raise RequestError(f"{name} is {text!r}; from {start:g} to {stop:g} in steps of {step:g} there is nothing.")
    return [round(start + k * step, 10) for k in range(count + 1) if start + k * step <= stop + 1e-9]
