"""`brickwork pool pretrain|cluster|learn|encode|eval|rebuild|info|show|rm`: tasks from frozen kernels."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.cli.actions import refuse_foreign
from brickwork.cli.common import ArchOption, DebugOption, Device, DeviceOption, ForceOption, JsonOption, SeedOption
from brickwork.errors import RequestError


class Action(StrEnum):
    """What to do."""

    pretrain = "pretrain"
    cluster = "cluster"
    learn = "learn"
    encode = "encode"  # type: ignore[assignment]  # a method of str, which an action is not used as
    eval = "eval"
    rebuild = "rebuild"
    info = "info"
    show = "show"
    rm = "rm"


class Metric(StrEnum):
    """How kernels are chosen."""

    gram = "gram"
    weight = "weight"


class Norms(StrEnum):
    """Statistics of batch norms."""

    running = "running"
    measured = "measured"


#: what each action takes, by the names of the parameters; everything else is refused, not ignored
EVERYWHERE = {"action", "source", "arch", "as_json", "debug"}
TRAINING = ("epochs", "batch_size", "lr", "optimizer", "weight_decay", "augment", "record")
TAKES = {
    Action.pretrain: {
        "data",
        "out",
        "size",
        "group",
        "head",
        "beta",
        "decay",
        "refresh",
        "revive",
        *TRAINING,
        "seed",
        "device",
        "force",
    },
    Action.cluster: {"out", "size", "group", "head", "residual", "data", "seed", "device", "force"},
    Action.learn: {
        "name",
        "data",
        "start",
        "beta",
        "refresh",
        "stay",
        "free",
        "anneal",
        "scale",
        "two",
        "budget",
        "precision",
        "norms",
        "fold",
        "grow",
        "grow_bytes",
        *TRAINING,
        "seed",
        "device",
        "force",
    },
    Action.encode: {
        "name",
        "model",
        "data",
        "metric",
        "stay",
        "precision",
        "grow",
        "grow_bytes",
        "seed",
        "device",
        "force",
    },
    Action.eval: {"name", "data", "seed", "device"},
    Action.rebuild: {"name", "out", "force"},
    Action.info: {"name"},
    Action.show: {"name", "out", "force"},
    Action.rm: {"name", "detach", "trim"},
}


def command(
    context: typer.Context,
    action: Annotated[Action, typer.Argument(help="What to do.")],
    source: Annotated[
        list[Path],
        typer.Argument(metavar="SOURCE...", help="pretrain, cluster: model folders (pretrain: one); else a pool."),
    ],
    name: Annotated[str | None, typer.Option(help="Of the task.")] = None,
    data: Annotated[str | None, typer.Option(help="Images: digits:A, cifar100:0-4, a folder, an .npz, …")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The pool to write; rebuild: a model folder; show: a page.", show_default=False)
    ] = None,
    size: Annotated[int, typer.Option(help="Kernels in a codebook.")] = 512,
    group: Annotated[int, typer.Option(help="Scalars of 1×1 and linear layers in a vector.")] = 1,
    head: Annotated[
        str | None, typer.Option(help="pretrain, cluster: the layer that makes the logits; the last one otherwise.")
    ] = None,
    residual: Annotated[int, typer.Option(help="cluster: size of a second codebook; 0: none.")] = 0,
    model: Annotated[Path | None, typer.Option(help="encode: the model folder to say in kernels.")] = None,
    start: Annotated[
        str, typer.Option(help="learn: base, random, best (of the tasks, by the data), a task, or a model folder.")
    ] = "base",
    metric: Annotated[Metric, typer.Option(help="encode: by a layer's responses, or by its weights.")] = Metric.gram,
    beta: Annotated[float, typer.Option(help="Of the commitment.")] = 0.5,
    decay: Annotated[float, typer.Option(help="pretrain: of the running means that kernels follow.")] = 0.99,
    revive: Annotated[int, typer.Option(help="pretrain: unused kernels start anew every so many steps.")] = 100,
    refresh: Annotated[
        int | None,
        typer.Option(help="Choose kernels every so many steps. Default: 4; pretrain: 1.", show_default=False),
    ] = None,
    stay: Annotated[float, typer.Option(help="Keep an index of the start unless another gains so much.")] = 0.0,
    budget: Annotated[str | None, typer.Option(help="learn: what the file may take: bytes, or 100K, 0.4M.")] = None,
    free: Annotated[
        float | None,
        typer.Option(
            help="learn: share of the run without the pool's kernels. Default: 0; with --grow 0.6.", show_default=False
        ),
    ] = None,
    anneal: Annotated[bool, typer.Option("--anneal", help="learn: from soft to hard.")] = False,
    scale: Annotated[bool, typer.Option("--scale", help="learn: a factor a layer.")] = False,
    two: Annotated[
        list[str] | None, typer.Option("--residual-layer", help="learn: a layer of two kernels a place (repeatable).")
    ] = None,
    precision: Annotated[int, typer.Option(help="Bits of a value of norms and head: 32, 16 or 12.")] = 16,
    norms: Annotated[Norms, typer.Option(help="learn: running statistics, or measured anew.")] = Norms.running,
    fold: Annotated[
        bool, typer.Option("--fold", help="learn: norms with the start's statistics, half the bytes.")
    ] = False,
    grow: Annotated[
        int | None, typer.Option(help="learn, encode: the task may add so many kernels a layer to the pool.")
    ] = None,
    grow_bytes: Annotated[
        str | None, typer.Option(help="With --grow: what the file of new kernels may take; bytes, or 20K.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Default: 30; pretrain: 6.", show_default=False)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Default: the architecture's recipe.")] = None,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 0.02,
    optimizer: Annotated[str | None, typer.Option(help="sgd, adam or adamw; default: the architecture's.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Default: the architecture's recipe.")] = None,
    augment: Annotated[str | None, typer.Option(help="none, flip, crop or crop+flip; default: what suits.")] = None,
    record: Annotated[bool, typer.Option("--record", help="On a GPU: record one step and replay it.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="rm: tell tasks that need this one on their own.")] = False,
    trim: Annotated[
        bool, typer.Option("--trim", help="rm: also drop kernels the pool grew by last that no task was made with.")
    ] = False,
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Learn task after task by choosing kernels from a frozen pool; no task ever changes another.

    brickwork pool cluster a --out pool

    brickwork pool learn pool --name b --data digits:B

    brickwork pool encode pool --name c --model fine-tuned --data digits:B

    brickwork pool learn pool --name d --data digits:B --grow 16

    brickwork pool eval pool --name b --data digits:B

    brickwork pool rebuild pool --name b --out b

    brickwork pool info pool

    brickwork pool show pool --out page.html
    """
    refuse_foreign(context, action, TAKES, EVERYWHERE, {"two": "residual-layer"})
    if len(source) > 1 and action != Action.cluster:
        wanted = "a model folder" if action is Action.pretrain else "the pool"
        hint = "; the network goes behind --model" if action is Action.encode else ""
        raise RequestError(f"pool {action} takes one folder, {wanted}, and {len(source)} were given{hint}.")
    values: dict[str, Any] = {**locals(), "out": out}
    shared: dict[str, Any] = {"arch": arch, "as_json": as_json}
    if action in (Action.pretrain, Action.cluster):
        from brickwork.cli.pool_make import cluster, pretrain

        values["out"] = _needed("out", out, action)
        make = {k: values[k] for k in (*sorted(TAKES[action] - {"data", "out", "force", "device", "seed"}),)}
        options = {"out": values["out"], "data": data, "seed": seed, "device": str(device), "force": force, **shared}
        if action == Action.cluster:
            return cluster(source, make, **options)
        defaults = {"epochs": 6 if epochs is None else epochs, "refresh": 1 if refresh is None else refresh}
        return pretrain(source[0], {**make, **defaults}, **options)
    if action in (Action.learn, Action.encode):
        from brickwork.cli.pool_tasks import encode, learn

        task = _needed("name", name, action)
        more = {"grow": grow, "grow_bytes": read_size(grow_bytes, "grow-bytes")}
        options = {"data": data, "seed": seed, "device": str(device), "force": force, "more": more, **shared}
        if action == Action.encode:
            return encode(
                source[0],
                task,
                _needed("model", model, action),
                metric=str(metric),
                stay=stay,
                precision=precision,
                **options,
            )
        how = {k: values[k] for k in ("beta", "stay", "free", "anneal", "scale", "precision", "fold", *TRAINING)}
        how |= {
            "norms": str(norms),
            "residual": tuple(two or ()),
            "epochs": 30 if epochs is None else epochs,
            "refresh": 4 if refresh is None else refresh,
        }
        _needed("data", data, action)
        return learn(source[0], task, start=start, budget=read_size(budget), how=how, **options)
    from brickwork.cli.pool_inspect import evaluate, info, rebuild, remove

    if action == Action.info:
        return info(source[0], name, **shared)
    if action == Action.show:
        from brickwork.cli.pool_show import show

        return show(source[0], _needed("out", out, action), tasks=[name] if name else (), force=force, **shared)
    task = _needed("name", name, action)
    if action == Action.rm:
        return remove(source[0], task, detach=detach, trim=trim, **shared)
    if action == Action.rebuild:
        return rebuild(source[0], task, _needed("out", out, action), force=force, **shared)
    return evaluate(source[0], task, _needed("data", data, action), seed=seed, device=str(device), **shared)


def read_size(text: str | None, option: str = "budget") -> int | None:
    """A number of bytes: 40000, 100K, 0.4M (thousands and millions).

    >>> read_size("0.4M"), read_size("100K"), read_size("512")
    (400000, 100000, 512)
    """
    if text is None:
        return None
    unit = {"K": 1e3, "M": 1e6}.get(text[-1:].upper(), 1.0)
    number = text.rstrip("kKmM")
    try:
        size = int(float(number) * unit)
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise RequestError(f"--{option} is {text!r}; it must be a number of bytes, as in 40000, 100K or 0.4M.")
    return size


def _needed(name: str, value: Any, action: Action) -> Any:
    if value is None:
        raise RequestError(f"pool {action} needs --{name}; `brickwork pool --help` shows one in use.")
    return value
