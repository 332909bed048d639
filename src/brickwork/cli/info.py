"""`brickwork info ARCH|FOLDER`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.cli.common import ArchOption, ArgsOption, DebugOption, JsonOption, emit, parse_args, parse_shape, table
from brickwork.errors import BadFile, BadModel, BrickworkError, RequestError
from brickwork.words import counted


def command(
    target: Annotated[
        str | None,
        typer.Argument(metavar="ARCH|FOLDER", help="lenet, timm:resnet18, …, or a model folder; none: list."),
    ] = None,
    arg: ArgsOption = None,
    arch: ArchOption = None,
    shape: Annotated[
        str | None, typer.Option("--input", help="Shape of one example, e.g. 3x32x32; default: the model's own.")
    ] = None,
    dry_run: Annotated[
        list[str] | None,
        typer.Option(
            "--dry-run",
            metavar="SPACE=INDICES",
            help="Show what keeping only these channels would remove, e.g. conv1=0-3,7; repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Layers, channel spaces, parameters and FLOPs of an architecture or a model folder.

    FLOPs are for one example, two for each multiply-add of convolutions, linear layers and attention.
    A channel space is a set of channels that are cut together. --dry-run shows a cut and writes nothing.
    Without an argument: the architectures there are.
    """
    from brickwork import zoo

    keep = parse_keep(dry_run)
    if target is None:
        if keep:
            raise RequestError("--dry-run needs a model: an architecture or a model folder.")
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
        _folder(Path(target), arch, shape, keep, as_json)
    elif "/" in target and ":" not in target:
        raise BadFile(f"{target} is not a folder; info takes an architecture or a model folder.")
    else:
        _architecture(target, parse_args(arg), shape, keep, as_json)


def parse_keep(pairs: Iterable[str] | None) -> dict[str, list[int]]:
    """`SPACE=INDICES` options as a dictionary; indices are numbers and ranges.

    >>> parse_keep(["conv1=0-3,7", "classes=2"])
    {'conv1': [0, 1, 2, 3, 7], 'classes': [2]}
    """
    result: dict[str, list[int]] = {}
    for pair in pairs or ():
        space, _, text = pair.rpartition("=")
        parts = [part.strip().partition("-") for part in text.split(",")]
        good = all(a.isdecimal() and (b.isdecimal() if dash else not b) for a, dash, b in parts)
        if not space or not good:
            raise RequestError(f"--dry-run takes SPACE=INDICES, as in conv1=0-3,7, not {pair!r}.")
        if space in result:
            raise RequestError(f"space {space!r} is given twice; give all its indices at once, as in 0-3,7.")
        for a, dash, b in parts:
            if dash and int(b) < int(a):
                raise RequestError(f"the range {a}-{b} of space {space!r} runs backwards; write {b}-{a}.")
            if dash and int(b) - int(a) > 1_000_000:
                raise RequestError(f"the range {a}-{b} of space {space!r} is longer than any space.")
        result[space] = [k for a, dash, b in parts for k in range(int(a), int(b if dash else a) + 1)]
    return result


def _example(model: Any, shape: str | None) -> Any:
    import torch

    from brickwork.origin import origin_of

    given = parse_shape(shape) if shape else origin_of(model).input_shape
    if given is None:
        raise RequestError("the model does not say which input it takes; pass --input, as in --input 3x32x32.")
    first = next(model.parameters(), torch.empty(()))  # a model may have none
    return torch.zeros(1, *given, dtype=first.dtype)


def _summary(model: Any, example: Any) -> Any:
    from brickwork.zoo.summary import summarize

    try:
        return summarize(model, example)
    except (RuntimeError, ValueError, TypeError) as error:
        given = "x".join(map(str, example.shape[1:]))
        raise BadModel(f"the model does not take an input of {given}: {error}") from error


def _look(model: Any, shape: str | None, keep: dict[str, list[int]]) -> tuple[dict[str, Any], str]:
    """Everything about a model that does not depend on where it came from: as data, and as text."""
    import brickwork

    example = _example(model, shape)
    summary = _summary(model, example)
    data, text = summary.to_dict(), _text(summary)
    try:
        bp = brickwork.trace(model, example)
    except BrickworkError as refusal:
        if keep:
            raise
        return {**data, "spaces": None, "refused": str(refusal)}, f"{text}\nchannel spaces: none, {refusal}"
    counts = bp.count()
    data |= {"spaces": bp.to_dict()["spaces"], "macs": counts.macs, "activation_bytes": counts.activation_bytes}
    text += f"\n{counts.macs:,} multiply-adds, {counts.activation_bytes:,} bytes of activations an example"
    text += f"\n\n{_spaces(data['spaces'])}"
    if keep:
        data["dry_run"] = _cut(bp, model, keep)
        text = f"{_cut_text(data['dry_run'])}\nnothing was written"
    return data, text


def _cut(bp: Any, model: Any, keep: dict[str, list[int]]) -> dict[str, Any]:
    """What a cut would remove: it is made, in memory, so that what would be refused is refused here."""
    from brickwork.zoo.summary import parameters_of

    small = bp.select(model, keep)
    before, after = (dict(m.named_parameters()) for m in (model, small))
    changed = [
        {"name": name, "before": list(p.shape), "after": list(after[name].shape) if name in after else None}
        for name, p in before.items()
        if name not in after or after[name].shape != p.shape
    ]
    old, new = bp.count(), bp.count(keep)
    return {
        "keep": keep,
        "spaces": {name: [bp.spaces[name], len(ids)] for name, ids in keep.items()},
        "tensors": changed,
        "parameters": [parameters_of(m) for m in (model, small)],
        "macs": [old.macs, new.macs],
        "activation_bytes": [old.activation_bytes, new.activation_bytes],
    }


def _cut_text(cut: dict[str, Any]) -> str:
    rows = [(t["name"], _side(t["before"]), "→", _side(t["after"] or ())) for t in cut["tensors"]]
    lines = [f"space {name}: {new} of {old} channels stay" for name, (old, new) in cut["spaces"].items()]
    lines.append(table(["parameter", "now", "", "then"], rows))
    for key, name in (
        ("parameters", "parameters"),
        ("macs", "multiply-adds"),
        ("activation_bytes", "bytes of activations"),
    ):
        old, new = cut[key]
        lines.append(f"{name}: {old:,} → {new:,} ({new / max(1, old):.1%})")
    return "\n".join(lines)


def _spaces(spaces: list[dict[str, Any]]) -> str:
    def some(names: list[str]) -> str:
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

    rows = []
    for s in spaces:
        stays = "" if not s["fixed"] else f"{s['fixed']} of {s['size']}: {'; '.join(s['why_fixed'])}"
        rows.append((s["name"], s["size"], some(s["made_by"]), some(s["read_by"]), stays))
    return table(["channel space", "size", "made by", "read by", "must stay"], rows)


def _architecture(
    name: str, args: dict[str, Any], shape: str | None, keep: dict[str, list[int]], as_json: bool
) -> None:
    from brickwork import zoo

    data, text = _look(zoo.build(name, **args), shape, keep)
    emit({"arch": name, "args": args, **data}, f"{name}\n{text}", as_json=as_json)


def _folder(folder: Path, arch: str | None, shape: str | None, keep: dict[str, list[int]], as_json: bool) -> None:
    from brickwork import store
    from brickwork.origin import origin_of

    model = store.load(folder, arch=arch)
    config = store.read_config(folder)
    origin = origin_of(model)
    looked, shown = _look(model, shape, keep)
    data = {"folder": str(folder), **origin.to_dict(), "state_hash": config.weights.state_hash, **looked}
    facts = [("folder", folder), ("architecture", origin.arch or "not built by Brickwork")]
    if origin.args:
        facts.append(("arguments", origin.args))
    if origin.classes:
        facts.append(("classes", ", ".join(origin.classes)))
    facts += [(key, value) for key, value in origin.provenance.items()]
    facts += [("surgery", counted(len(origin.steps), "step"))] if origin.steps else []
    facts.append(("state hash", config.weights.state_hash[:16]))
    text = "\n".join(f"{name:14}{value}" for name, value in facts)
    emit(data, f"{text}\n{shown}", as_json=as_json)


def _side(shape: Iterable[int]) -> str:
    return "×".join(map(str, shape)) or "-"


def _text(summary: Any) -> str:
    rows = [(x.name, x.kind, _side(x.output), x.parameters, x.flops) for x in summary.layers]
    lines = table(["layer", "kind", "output", "parameters", "FLOPs"], rows)
    return (
        f"{lines}\n{_side(summary.input_shape)} -> {_side(summary.output_shape)}: "
        f"{counted(summary.parameters, 'parameter')}, {summary.flops:,} FLOPs an example"
    )
