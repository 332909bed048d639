"""`brickwork transplant add|connect|tune|list|export|show|run`: grow a net of category and task modules."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.cli.actions import refuse_foreign
from brickwork.cli.common import (
    ArchOption,
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    SeedOption,
    typed,
)
from brickwork.errors import RequestError


class Action(StrEnum):
    """What to do."""

    add = "add"
    connect = "connect"
    tune = "tune"
    list = "list"
    export = "export"
    show = "show"
    run = "run"


class Only(StrEnum):
    """Which half of a network."""

    category = "category"
    task = "task"


#: how an adapter is learned, by the names of brickwork.transplant.options.How
ADAPTER = (
    "images",
    "layers",
    "kernel",
    "reorder",
    "start",
    "steps",
    "batch_size",
    "lr",
    "schedule",
    "temperature",
    "views",
    "blends",
    "augment",
    "weight",
    "alpha",
    "dummy",
    "share",
    "size",
)
#: what each action takes, by the names of the parameters; everything else is refused, not ignored
EVERYWHERE = {"action", "source", "as_json", "debug"}
WORK = {"out", "arch", "seed", "device", "force"}
TAKES = {
    Action.add: {"to", "at", "carry", "category", "task", "only", "image", "data", "steps", "batch_size", "lr", *WORK},
    Action.connect: {"category", "task", "data", "way", "teacher", "labels", *ADAPTER, *WORK},
    Action.tune: {"category", "task", "data", "parts", "steps", "batch_size", "lr", *WORK},
    Action.list: {"arch"},
    Action.export: {"category", "task", "out", "arch", "force"},
    Action.show: {"category", "task", "data", "way", "teacher", "labels", "layer", *ADAPTER, *WORK},
    Action.run: {"out", "arch", "device", "force", "checkpoint"},
}
# WAYS, STARTS and DUMMIES hold these names, but reading them would import torch; a test compares them
WAYS_SAID = "closed-form+distill, closed-form, distill, direct-learn, jacobian, back-distill or back-distill+distill."


def command(
    context: typer.Context,
    action: Annotated[Action, typer.Argument(help="What to do.")],
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="add: a model folder or an exported part; run: a recipe.yaml; else a transplant net."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The net to write; export: a model folder; show: .html, .svg or .png.", show_default=False),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="add: the net to grow; none: a new one begins.")] = None,
    at: Annotated[str | None, typer.Option(help="add: the layer behind which the network is cut.")] = None,
    carry: Annotated[
        list[str] | None, typer.Option(help="add: a layer whose output goes past the cut too (repeatable).")
    ] = None,
    category: Annotated[
        list[str] | None, typer.Option(help="Name of a category (show, add --only task: repeatable).")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Name of a task.")] = None,
    only: Annotated[Only | None, typer.Option(help="add: one half of the network alone.")] = None,
    image: Annotated[
        str | None, typer.Option("--input", metavar="CxHxW", help="add: of the images, if the model does not say.")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="Images: digits, cifar100:fox,wolf, a folder, an .npz, …; one a category.")
    ] = None,
    way: Annotated[list[str] | None, typer.Option(help=f"How to learn (show: repeatable): {WAYS_SAID}")] = None,
    teacher: Annotated[
        str | None, typer.Option(help="A task that the category reaches; none: the one it came with.")
    ] = None,
    labels: Annotated[
        list[int] | None, typer.Option(help="Labelled images a class, 0 for none (show: repeatable).")
    ] = None,
    parts: Annotated[
        str, typer.Option(help="tune: which may change, of adapters, tasks and categories.")
    ] = "adapters,tasks,categories",
    layer: Annotated[
        str | None, typer.Option(help="show: of the task module; none: what its last layer reads.")
    ] = None,
    images: Annotated[int, typer.Option(help="Unlabelled images, at most, for ways that look at some.")] = 2000,
    layers: Annotated[int, typer.Option(help="Convolutions of the adapter.")] = 1,
    kernel: Annotated[int, typer.Option(help="Their size: 1, 3, …")] = 1,
    reorder: Annotated[
        int | None, typer.Option(help="Reorder the channels with this seed first, as the paper's tests do.")
    ] = None,
    start: Annotated[str, typer.Option(help="Adapter to begin with: identity or random.")] = "identity",
    steps: Annotated[int, typer.Option(help="Of Adam.")] = 400,
    batch_size: Annotated[int, typer.Option(help="Images, and random gradients, a step.")] = 50,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 1e-3,
    schedule: Annotated[
        str, typer.Option(help="Of the rate: constant, cosine (down to nothing) or onecycle (up first).")
    ] = "constant",
    temperature: Annotated[
        float, typer.Option(help="Of both answers in distill; above 1, how sure the teacher is counts too.")
    ] = 1.0,
    views: Annotated[int, typer.Option(help="Of every image: itself, and so many less one shifted and mirrored.")] = 1,
    blends: Annotated[
        int, typer.Option(help="Of every image without a label, with others: more looks for the teacher.")
    ] = 0,
    augment: Annotated[
        str, typer.Option(help="How views and blends are made: crop+flip, crop, flip or none.")
    ] = "crop+flip",
    weight: Annotated[float, typer.Option(help="The paper's 10 in λ.")] = 10.0,
    alpha: Annotated[
        float | None, typer.Option(help="Of Eq. 3; none: the ratio of the mean norms, which leaves the scale open.")
    ] = None,
    dummy: Annotated[str, typer.Option(help="How pseudo-gradients pass ReLUs: first, second or lowest.")] = "second",
    share: Annotated[float, typer.Option(help="Of the places that second and lowest let pass.")] = 0.5,
    size: Annotated[
        int | None, typer.Option(help="Enlarge a classifier's random gradients to size × size (the paper: 7).")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="run: folder to resume from; none: beside --out, under .partial.")
    ] = None,
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Plug a category module into a task module it never saw; what worked before stays as it is, bit for bit.

    brickwork transplant add dog --at pool1 --category dog --task classify --out net

    brickwork transplant add cat --at pool1 --category cat --task cats --to net --out net2

    brickwork transplant connect net2 --category cat --task classify --data digits --way closed-form --out net3

    brickwork transplant list net3

    brickwork transplant export net3 --category cat --out part

    brickwork transplant show net3 --category cat --task classify --data digits --way back-distill --way direct-learn
    --labels 10 --out page.html

    brickwork transplant run recipe.yaml --out net
    """
    given = typed(context)
    refuse_foreign(context, action, TAKES, EVERYWHERE, {"image": "input"})
    values = locals()
    how = {name: values[name] for name in (*ADAPTER, "seed")}
    if action == Action.list:
        from brickwork.cli.transplant_parts import show_table

        return show_table(source, arch=arch, as_json=as_json)
    written = _needed("out", out, action)
    if action == Action.export:
        from brickwork.cli.transplant_parts import export

        return export(source, one("category", category), task, written, arch=arch, force=force, as_json=as_json)
    shared: dict[str, Any] = {"arch": arch, "device": str(device), "force": force, "as_json": as_json}
    if action == Action.run:
        from brickwork.cli.transplant_run import run

        return run(source, written, checkpoint=checkpoint, **shared)
    if action == Action.add:
        from brickwork.cli.transplant_add import add

        return add(
            source,
            written,
            to=to,
            at=at,
            carry=carry or [],
            categories=category or [],
            task=task,
            only=None if only is None else str(only),
            image=image,
            data=data or [],
            steps=steps,
            batch_size=batch_size,
            lr=lr,
            seed=seed,
            learning=[n for n in given if n in ("steps", "batch_size", "lr", "seed")],
            **shared,
        )
    wanted = str(_needed("task", task, action))
    if action == Action.tune:
        from brickwork.cli.transplant_tune import tune

        return tune(
            source,
            list(_needed("category", category, action)),
            wanted,
            written,
            data=_needed("data", data, action),
            parts=parts,
            learning={n: how[n] for n in given if n in ("steps", "batch_size", "lr")},
            seed=seed,
            **shared,
        )
    options = {"teacher": teacher, "how": how, "given": given, **shared}
    if action == Action.connect:
        from brickwork.cli.transplant_connect import connect

        return connect(
            source,
            str(_needed("category", one("category", category), action)),
            wanted,
            written,
            data=one("data", data),
            way=one("way", way) or ("closed-form+distill" if data else "closed-form"),
            labels=one("labels", labels) or 0,
            **options,
        )
    from brickwork.cli.transplant_show import show

    return show(
        source,
        list(_needed("category", category, action)),
        wanted,
        written,
        data=_needed("data", data, action),
        ways=way or [],
        labels=labels or [],
        layer=layer,
        **options,
    )


def one(name: str, values: list[Any] | None) -> Any:
    """The value of an option that is repeatable elsewhere."""
    if values and len(values) > 1:
        raise RequestError(f"--{name} is given {len(values)} times; here it is given once.")
    return values[0] if values else None


def _needed(name: str, value: Any, action: Action) -> Any:
    if value is None or value == []:
        raise RequestError(f"transplant {action} needs --{name}; `brickwork transplant --help` shows one in use.")
    return value
