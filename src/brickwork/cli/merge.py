"""`brickwork merge MODEL… --out MERGED`: on weights alone, on images (`--method match --data X …`), or by a recipe.yaml."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
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
    SeedOption,
    Statistics,
    StatisticsOption,
    emit,
    log,
    parse_args,
    table,
    typed,
)
from brickwork.cli.eval import Split
from brickwork.errors import RequestError, UnknownName

SAID = ("method", "base", "weight", "arg", "bn", "heads", "seed")  # what a recipe says by itself
ON_DATA = ("data", "split", "images", "arch", "device")  # what only a method that looks at images uses
ON_FILES = ("bn", "heads")  # and what only one that looks at weights alone does
# the registries hold these names, but reading them would import numpy; a test compares the two
METHODS = (
    "linear, slerp, task_arithmetic*, ties*, dare*, della*, breadcrumbs*, model_stock*, tsv*, iso_c*; with --data, on "
    "model folders: match, regmean, fisher, rebasin, adamerging*, and with labels greedy_soup. * needs --base."
)


class Heads(StrEnum):
    """What becomes of tensors whose shapes differ."""

    refuse = "refuse"
    keep = "keep"


def command(
    context: typer.Context,
    models: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="MODEL…|RECIPE", help="safetensors files or folders, or one recipe.yaml; none: list the methods."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write.", show_default=False)] = None,
    method: Annotated[str, typer.Option(help=METHODS)] = "linear",
    base: Annotated[Path | None, typer.Option(help="What the models were trained from.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="Images (repeatable); one a model for match, regmean and fisher.", show_default=False),
    ] = None,
    split: Annotated[Split, typer.Option(help="Which images of --data.")] = Split.train,
    images: Annotated[int, typer.Option(help="Images of each --data, at most.")] = 2000,
    weight: Annotated[list[float] | None, typer.Option(help="One a model (repeatable).")] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="NAME=VALUE", help="Option of the method, e.g. density=0.2; repeatable."),
    ] = None,
    bn: StatisticsOption = Statistics.linear,
    heads: Annotated[Heads, typer.Option(help="Tensors whose shapes differ.")] = Heads.refuse,
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Merge models of one architecture into a folder: tensor by tensor, or on images.

    Without --data memory for a few tensors is enough, and torch is not needed.

    brickwork merge a b --base zero --method ties --arg density=0.2 --out ab

    brickwork merge a b --method match --data digits:A --data digits:B --out ab
    """
    given = [name for name in typed(context) if name not in ("as_json", "debug")]
    if not given:
        return _list_methods(as_json)
    if not models:
        raise RequestError("there is nothing to merge; give files or folders, or a recipe.yaml.")
    if out is None:
        raise RequestError("--out is missing; give the folder to write, as in --out merged.")
    options = parse_args(arg)
    if len(models) == 1 and models[0].suffix in (".yaml", ".yml"):
        said = next((name for name in given if name in SAID + ON_DATA), None)
        if said in SAID:
            raise RequestError(f"a recipe says {said} itself; write it there.")
        if said:
            raise RequestError(f"--{said} is not used by a recipe, which looks at weights alone; leave it out.")
        return _merge_files(models, None, out, force=force, as_json=as_json)
    method = method.replace("-", "_")
    looks_at = _looks_at(method, given)
    if looks_at == "images":
        from brickwork.cli.merge_data import merge_on_data

        return merge_on_data(
            models,
            out,
            method=method,
            base=base,
            data=data or [],
            split=str(split),
            images=images,
            weights=weight,
            options=options,
            arch=arch,
            seed=seed,
            device=str(device),
            force=force,
            as_json=as_json,
        )
    told: dict[str, Any] = {
        "method": method,
        "models": [str(m) for m in models],
        "bn": str(bn),
        "heads": str(heads),
        "seed": seed,
        "options": {**({"weights": list(weight)} if weight else {}), **options},
    }
    told |= {"base": str(base)} if base else {}
    return _merge_files(models, told, out, force=force, as_json=as_json)


def _merge_files(models: list[Path], told: dict[str, Any] | None, out: Path, *, force: bool, as_json: bool) -> None:
    from brickwork.algebra.recipe import make_recipe, read_recipe
    from brickwork.algebra.streaming import OWNS, merge_files
    from brickwork.atomic import check_output

    check_output(out, force=force, owns=OWNS)
    recipe = read_recipe(models[0]) if told is None else make_recipe(told, name="the request")
    found = merge_files(recipe, out, force=force, progress=not as_json)
    tell_names(recipe.models)
    emit({**found.to_dict(), "recipe": recipe.to_dict()}, str(found), as_json=as_json)


def tell_names(models: Sequence[Path]) -> None:
    """Outputs are merged place by place: where models call a place differently, say whose name it keeps."""
    named = {}
    for model in models:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            named[model] = json.loads((model / "config.json").read_text(encoding="utf-8")).get("classes")
    first, *others = models
    for other in others:
        if named.get(first) and named.get(other) and named[first] != named[other]:
            log(
                f"{first} and {other} call their outputs differently; the merged network has the names of {first}: "
                f"{_few(named[first])} stand for {_few(named[other])} of {other} too."
            )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def _looks_at(method: str, given: list[str]) -> str:
    """What a method looks at; an option that it has no use for is refused."""
    from brickwork.algebra.data_methods import DATA_METHODS
    from brickwork.algebra.methods import registry

    if method not in DATA_METHODS and method not in registry():
        raise UnknownName("merge method", method, [*registry(), *DATA_METHODS])
    others, what = (ON_FILES, "images") if method in DATA_METHODS else (ON_DATA, "weights alone")
    foreign = next((name for name in given if name in others), None)
    if foreign:
        own = method in DATA_METHODS and foreign in DATA_METHODS[method].options
        instead = f"give --arg {foreign}=…" if own else "leave it out"
        raise RequestError(f"--{foreign} is not used by --method {method}, which looks at {what}; {instead}.")
    return what


def _list_methods(as_json: bool) -> None:
    """Every method, what it needs, its options with their defaults."""
    from brickwork.algebra.data_methods import DATA_METHODS
    from brickwork.algebra.methods import registry

    rows: list[dict[str, Any]] = [
        {
            "name": m.name,
            "base": m.needs_base,
            "data": False,
            "labels": False,
            "options": dict(m.options),
            "about": m.about,
            "paper": m.paper,
        }
        for m in registry().values()
    ]
    rows += [
        {
            "name": m.name,
            "base": m.needs_base,
            "data": True,
            "labels": m.needs_labels,
            "options": {n: o.default for n, o in m.options.items() if n != "seed"}
            | ({"weights": None} if m.weighted else {}),
            "about": m.about,
            "paper": m.paper,
        }
        for m in DATA_METHODS.values()
    ]
    lines = [
        (
            r["name"],
            ", ".join(n for n in ("base", "data", "labels") if r[n]) or "–",
            " ".join(n if v is None else f"{n}={v}" for n, v in r["options"].items()),
            r["about"],
        )
        for r in rows
    ]
    emit({"methods": rows}, table(["method", "needs", "options", "what"], lines), as_json=as_json)
