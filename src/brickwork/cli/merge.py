"""`brickwork merge MODEL… --out MERGED` or `brickwork merge recipe.yaml --out MERGED`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.cli.common import (
    DebugOption,
    ForceOption,
    JsonOption,
    OutOption,
    SeedOption,
    Statistics,
    StatisticsOption,
    emit,
    parse_args,
    typed,
)

SAID = ("method", "base", "weight", "arg", "bn", "heads", "seed")  # what a recipe says by itself


class Heads(StrEnum):
    """What becomes of tensors whose shapes differ."""

    refuse = "refuse"
    keep = "keep"


def command(
    context: typer.Context,
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL…|RECIPE", help="safetensors files or folders, or one recipe.yaml."),
    ],
    out: OutOption,
    method: Annotated[
        str, typer.Option(help="linear, slerp, task_arithmetic, ties, dare, della, …")
    ] = "linear",
    base: Annotated[Path | None, typer.Option(help="What the models were trained from.")] = None,
    weight: Annotated[list[float] | None, typer.Option(help="One a model (repeatable).")] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            "--arg", metavar="NAME=VALUE", help="Option of the method, e.g. density=0.2; repeatable."
        ),
    ] = None,
    bn: StatisticsOption = Statistics.linear,
    heads: Annotated[Heads, typer.Option(help="Tensors whose shapes differ.")] = Heads.refuse,
    seed: SeedOption = 0,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Merge models of one architecture, tensor by tensor, into a folder; memory for a few tensors is enough.

    brickwork merge a b --base zero --method ties --arg density=0.2 --out ab
    """
    from brickwork.algebra.recipe import make_recipe, read_recipe
    from brickwork.algebra.streaming import OWNS, merge_files
    from brickwork.atomic import check_output
    from brickwork.errors import RequestError

    check_output(out, force=force, owns=OWNS)
    options = parse_args(arg)
    if len(models) == 1 and models[0].suffix in (".yaml", ".yml"):
        said = [name for name in typed(context) if name in SAID]
        if said:
            raise RequestError(f"a recipe says {said[0]} itself; write it there.")
        recipe = read_recipe(models[0])
    else:
        told: dict[str, Any] = {
            "method": method, "models": [str(m) for m in models], "bn": str(bn), "heads": str(heads), "seed": seed,
            "options": {**({"weights": list(weight)} if weight else {}), **options},
        }  # fmt: skip
        recipe = make_recipe({**told, **({"base": str(base)} if base else {})}, name="the request")
    found = merge_files(recipe, out, force=force, progress=not as_json)
    emit({**found.to_dict(), "recipe": recipe.to_dict()}, str(found), as_json=as_json)
