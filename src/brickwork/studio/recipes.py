"""What a button did, as commands to type where the studio was started, and as Python."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brickwork.store.folder import networks_of
from brickwork.studio.shelf import Shelf

if TYPE_CHECKING:
    from brickwork.studio.requests import AddRequest, BuildRequest, ForgetRequest, MapRequest, MergeRequest


def of_build(shelf: Shelf, request: BuildRequest, folder: Path) -> dict[str, str]:
    """Commands and Python that make the same network as Build."""
    lines, rows, bricks = [], [], []
    for number, part in enumerate(request.parts, 1):
        source, spec = _path(shelf, part.model), str(shelf.spec(part.data))
        out = _path(shelf, f"parts/{request.name}-{number}")
        typed = [word for name, value in part.options().items() for word in (f"--{name}", _typed(value))]
        words = ["--classes", ",".join(part.classes), "--data", spec, *typed, "--out", out]
        lines.append(_line(["disassemble", source, *words], _archs(shelf, [part.model])))
        rows.append(f"    ({source!r}, {part.classes!r}, {spec!r}, {part.options()!r}),")
        bricks.append(out)
    out, classes = _path(shelf, shelf.relative(folder)), [c for part in request.parts for c in part.classes]
    archs = _archs(shelf, [part.model for part in request.parts])
    lines.append(_line(["assemble", *bricks, "--out", out], archs))
    for text in dict.fromkeys([request.judge] if request.judge else [part.data for part in request.parts]):
        lines.append(_line(["eval", out, str(shelf.spec(text)), "--restrict", ",".join(classes)], archs))
    python = [
        "import brickwork",
        "from brickwork import data",
        "",
        "bricks = []",
        "for folder, classes, images, options in [",
        *rows,
        "]:",
        f"    model = brickwork.load(folder{_given(archs)})",
        "    images = data.load_for(model.brickwork_origin.preprocessing, images)",
        "    bricks.append(brickwork.disassemble(model, classes, images, **options))",
        f"brickwork.save(brickwork.assemble(bricks), {out!r})",
    ]
    return {"commands": "\n".join(lines), "python": "\n".join(python)}


def of_merge(shelf: Shelf, request: MergeRequest, folder: Path, on_images: bool) -> dict[str, str]:
    """Commands and Python that make the same network as Merge."""
    specs, out = [str(shelf.spec(text)) for text in request.data], _path(shelf, shelf.relative(folder))
    folders, archs = [_path(shelf, name) for name in request.models], _archs(shelf, request.models)
    data = [word for spec in specs for word in ("--data", spec)] if on_images else []
    weights = [word for value in request.weights or [] for word in ("--weight", _typed(value))]
    lines = [
        _line(["merge", *folders, "--method", request.method, *weights, *data, "--out", out], archs),
        *(_line(["eval", out, spec], archs) for spec in dict.fromkeys(specs)),
    ]
    given = f", weights={request.weights!r}" if request.weights else ""
    python = ["import brickwork"]
    if on_images:
        python += ["from brickwork import data", "from brickwork.data.images import drawn_images"]
    python += ["", f"models = [brickwork.load(folder{_given(archs)}) for folder in {folders!r}]"]
    if on_images:
        python += [
            "prepared = models[0].brickwork_origin.preprocessing",
            f"images = [drawn_images(data.load_for(prepared, name).train_images, 2000, seed=0) for name in {specs!r}]",
            f"brickwork.save(brickwork.merge(models, {request.method!r}, data=images{given}), {out!r})",
        ]
    else:
        python.append(f"brickwork.save(brickwork.merge(models, {request.method!r}{given}), {out!r})")
    return {"commands": "\n".join(lines), "python": "\n".join(python)}


def of_map(shelf: Shelf, request: MapRequest, specs: Sequence[str], grid: Sequence[float]) -> dict[str, str]:
    """The command and the Python that measure the same weighted sums."""
    folders, archs = [_path(shelf, name) for name in request.models], _archs(shelf, request.models)
    data = [word for spec in specs for word in ("--data", spec)]
    alpha, out = ",".join(f"{value:g}" for value in grid), _path(shelf, "maps/map")
    python = [
        "import brickwork",
        "from brickwork import data",
        "",
        f"a, b = [brickwork.load(folder{_given(archs)}) for folder in {folders!r}]",
        f"sets = {{name: data.load_for(a.brickwork_origin.preprocessing, name) for name in {list(specs)!r}}}",
        f"print(brickwork.sweep(a, b, data=sets, alpha={tuple(grid)!r}))",
    ]
    line = _line(["sweep", *folders, *data, "--alpha", alpha, "--out", out], archs)
    return {"commands": line, "python": "\n".join(python)}


def of_add(shelf: Shelf, request: AddRequest, spec: str, folder: Path) -> dict[str, str]:
    """The command and the Python that make the same network as Add."""
    source, out, archs, python = _from_one(shelf, request.model, folder)
    known = str(shelf.spec(request.base))
    python += [
        "prepared = model.brickwork_origin.preprocessing",
        f"new, known = data.load_for(prepared, {spec!r}), data.load_for(prepared, {known!r})",
        f"brickwork.save(brickwork.depend.add(model, new, base_data=known, on='features'), {out!r})",
    ]
    words = ["depend", "add", source, "--data", spec, "--base-data", known, "--on", "features", "--out", out]
    return {"commands": _line(words, archs), "python": "\n".join(python)}


def of_forget(shelf: Shelf, request: ForgetRequest, folder: Path) -> dict[str, str]:
    """The command and the Python that make the same network as Forget."""
    source, out, archs, python = _from_one(shelf, request.model, folder)
    spec = str(shelf.spec(request.data))
    python += [
        f"images = data.load_for(model.brickwork_origin.preprocessing, {spec!r})",
        f"brickwork.save(brickwork.forget(model, {request.classes!r}, images).model, {out!r})",
    ]
    words = ["forget", source, "--classes", ",".join(request.classes), "--data", spec, "--out", out]
    return {"commands": _line(words, archs), "python": "\n".join(python)}


def of_export(shelf: Shelf, name: str, file: str, options: dict[str, Any]) -> dict[str, str]:
    """The command and the Python that write the same file as Export."""
    source, out, archs = _path(shelf, name), _path(shelf, file), _archs(shelf, [name])
    flags = ["--dynamic-batch"] if options.get("dynamic_batch") else []
    given = ", ".join(f"{key}={value!r}" for key, value in options.items())
    python = [
        "import brickwork",
        "",
        f"model = brickwork.load({source!r}{_given(archs)})",
        f"brickwork.export_model(model, {out!r}, {given})",
    ]
    line = _line(["export", source, "--to", options["to"], *flags, "--out", out], archs)
    return {"commands": line, "python": "\n".join(python)}


def _path(shelf: Shelf, name: str) -> str:
    """A folder as whoever started the studio would write it."""
    return str(shelf.root / name)


def _archs(shelf: Shelf, models: Sequence[str]) -> list[str]:
    """Those of --arch that networks need; a command refuses others."""
    named = {arch for name in models for arch in networks_of(shelf.model(name))}
    return [arch for arch in shelf.arch if arch in named or None in named]


def _typed(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _line(words: Sequence[str], archs: Sequence[str]) -> str:
    return shlex.join(["brickwork", *words, *(word for arch in archs for word in ("--arch", arch))])


def _given(archs: Sequence[str]) -> str:
    return f", arch={list(archs)!r}" if archs else ""


def _from_one(shelf: Shelf, model: str, folder: Path) -> tuple[str, str, list[str], list[str]]:
    """Where a network is read from and a new one written to, its architectures, and the Python that loads it."""
    source, archs = _path(shelf, model), _archs(shelf, [model])
    python = [
        "import brickwork",
        "from brickwork import data",
        "",
        f"model = brickwork.load({source!r}{_given(archs)})",
    ]
    return source, _path(shelf, shelf.relative(folder)), archs, python
