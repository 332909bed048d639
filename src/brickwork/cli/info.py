"""`brickwork info ARCH|FOLDER`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.cli.common import (
    ArchOption,
    ArgsOption,
    DebugOption,
    JsonOption,
    emit,
    parse_args,
    parse_shape,
    table,
)


def command(
    target: Annotated[
        str | None,
        typer.Argument(metavar="ARCH|FOLDER", help="lenet, timm:resnet18, …, or a model folder; none: list."),
    ] = None,
    arg: ArgsOption = None,
    arch: ArchOption = None,
    shape: Annotated[
        str | None,
        typer.Option("--input", help="Shape of one example, e.g. 3x32x32; default: the model's own."),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Layers, parameters and FLOPs of an architecture or a model folder.

    FLOPs are for one example, two for each multiply-add of convolutions, linear layers and attention.
    Without an argument: the architectures there are.
    """
    from brickwork import zoo
    from brickwork.errors import BadFile, RequestError

    if target is None:
        known = [(a.name, a.task, a.summary) for a in zoo.REGISTRY.values()]
        others = [f"{prefix}:NAME" for prefix in zoo.PREFIXES] + ["package.module:factory"]
        data: dict[str, Any] = {
            "architectures": [{"name": n, "task": t, "summary": s} for n, t, s in known],
            "others": others,
        }
        emit(data, table(["name", "task", "what"], known) + "\nothers: " + ", ".join(others), as_json=as_json)
        return
    if Path(target).is_dir():
        if arg:
            raise RequestError("--arg is for architectures; a model folder records its own arguments.")
        _folder(Path(target), arch, shape, as_json)
    elif "/" in target and ":" not in target:
        raise BadFile(f"{target} is not a folder; info takes an architecture or a model folder.")
    else:
        _architecture(target, parse_args(arg), shape, as_json)


def _summary(model: Any, shape: str | None) -> Any:
    import torch

    from brickwork.errors import BadModel, RequestError
    from brickwork.origin import origin_of
    from brickwork.zoo.summary import summarize

    given = parse_shape(shape) if shape else origin_of(model).input_shape
    if given is None:
        raise RequestError(
            "the model does not say which input it takes; pass --input, as in --input 3x32x32."
        )
    try:
        first = next(model.parameters(), torch.empty(()))  # a model may have none
        return summarize(model, torch.zeros(1, *given, dtype=first.dtype))
    except (RuntimeError, ValueError, TypeError) as error:
        raise BadModel(f"the model does not take an input of {shape or given}: {error}") from error


def _architecture(name: str, args: dict[str, Any], shape: str | None, as_json: bool) -> None:
    from brickwork import zoo

    summary = _summary(zoo.build(name, **args), shape)
    emit({"arch": name, "args": args, **summary.to_dict()}, f"{name}\n{_text(summary)}", as_json=as_json)


def _folder(folder: Path, arch: str | None, shape: str | None, as_json: bool) -> None:
    from brickwork import store
    from brickwork.origin import origin_of

    model = store.load(folder, arch=arch)
    config = store.read_config(folder)
    origin = origin_of(model)
    summary = _summary(model, shape)
    data = {
        "folder": str(folder),
        **origin.to_dict(),
        "state_hash": config.weights.state_hash,
        **summary.to_dict(),
    }
    facts = [("folder", folder), ("architecture", origin.arch or "not built by Brickwork")]
    if origin.args:
        facts.append(("arguments", origin.args))
    if origin.classes:
        facts.append(("classes", ", ".join(origin.classes)))
    facts += [(key, value) for key, value in origin.provenance.items()]
    facts += [("surgery", f"{len(origin.steps)} steps")] if origin.steps else []
    facts.append(("state hash", config.weights.state_hash[:16]))
    text = "\n".join(f"{name:14}{value}" for name, value in facts)
    emit(data, f"{text}\n{_text(summary)}", as_json=as_json)


def _text(summary: Any) -> str:
    def side(shape: tuple[int, ...]) -> str:
        return "×".join(map(str, shape)) or "-"

    rows = [(x.name, x.kind, side(x.output), x.parameters, x.flops) for x in summary.layers]
    lines = table(["layer", "kind", "output", "parameters", "FLOPs"], rows)
    return (
        f"{lines}\n{side(summary.input_shape)} -> {side(summary.output_shape)}: "
        f"{summary.parameters:,} parameters, {summary.flops:,} FLOPs an example"
    )
