"""`brickwork depend add MODEL --data NEW --base-data KNOWN --out MODEL`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from brickwork.cli.common import emit, log
from brickwork.errors import RequestError
from brickwork.words import counted


def add(
    folder: Path,
    data: str | None,
    base_data: str | None,
    out: Path | None,
    how: str,
    on: str,
    strength: float | None,
    epochs: int | None,
    arch: str | None,
    seed: int,
    device: str,
    force: bool,
    as_json: bool,
) -> None:
    """Give a model the classes of `data`, as combinations of what it answers, and save it as a model folder."""
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.cli.brick_folders import accuracy, images_for
    from brickwork.cli.brick_folders import save as save_model
    from brickwork.dependencies import add_classes
    from brickwork.devices import pick
    from brickwork.origin import origin_of
    from brickwork.training import settings_for

    # Everything that can be refused is refused here, before a tensor or an image is read.
    if out is None or data is None:
        raise RequestError("depend add needs --data, images of the new classes, and --out, the folder to write.")
    if on == "branch" and (how != "train" or strength is not None):
        raise RequestError("a branch is trained as a network is; leave --how and --strength out.")
    if on == "branch" and base_data is None:
        raise RequestError("a branch is trained on known classes too; give --base-data, images of them.")
    if on != "branch" and epochs is not None:
        raise RequestError(f"--epochs is for --on branch; with --on {on} nothing is trained but one matrix.")
    if epochs is not None and epochs < 1:
        raise RequestError(f"epochs is {epochs}; it must be 1 or more.")
    check_output(out, force=force)
    for spec in (data, base_data):
        if spec is not None:
            images_of.check(spec)
    where = pick(device)
    model = store.load(folder, arch=arch, device=where)
    new = images_for(model, data, seed)
    known = images_for(model, base_data, seed) if base_data is not None else None
    if known is None:
        log("without --base-data nothing says where the new classes end: expect known images to be lost to them.")
    training = {"epochs": epochs, "augment": settings_for(None, 1, images_of.parse(data).source).augment}
    grown = add_classes(
        model,
        new,
        base_data=known,
        how=how,
        on=on,
        strength=strength,
        seed=seed,
        progress=not as_json,
        training=training if on == "branch" else None,
    )
    facts: dict[str, Any] = {
        "data": data,
        "base_data": base_data,
        "how": how,
        "on": on,
        "source": store.read_config(folder).weights.state_hash,
    }
    if on == "branch":
        facts["epochs"] = epochs
    right = {"new": accuracy(grown, new), "known": None if known is None else accuracy(grown, known)}
    right["known_before"] = None if known is None else accuracy(model, known)
    save_model(grown, out, force=force, command="depend add", test_accuracy=right, **facts)
    classes = origin_of(grown).classes or ()
    said = [f"{name.replace('_', ' ')} {value:.1%}" for name, value in right.items() if value is not None]
    known_now = f"{counted(len(classes), 'class')}, {len(new.classes)} of them new"
    text = f"{known_now}; test images right: {', '.join(said)}; saved in {out}"
    report = {"folder": str(out), "model": str(folder), "classes": list(classes), **facts, "test_accuracy": right}
    emit(report, text, as_json=as_json)
