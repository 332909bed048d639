"""`brickwork transplant add MODEL --at LAYER --category NAME --task NAME [--to NET] --out NET`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brickwork.cli.common import emit, parse_shape
from brickwork.errors import RequestError

if TYPE_CHECKING:
    from torch import nn

    from brickwork.transplant import TransplantNet


def add(
    folder: Path,
    out: Path,
    *,
    to: Path | None,
    at: str | None,
    carry: Sequence[str],
    categories: Sequence[str],
    task: str | None,
    only: str | None,
    image: str | None,
    data: Sequence[str],
    steps: int,
    batch_size: int,
    lr: float,
    seed: int,
    learning: Sequence[str],
    arch: str | None,
    device: str,
    force: bool,
    as_json: bool,
) -> None:
    """Both halves of a network, or one, into a new net or one that grows; with data, a task learned on categories."""
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.devices import pick
    from brickwork.transplant import TransplantNet, load_net, save_net
    from brickwork.transplant.folders import CONFIG
    from brickwork.transplant.growth import add_learned_task, images_for
    from brickwork.transplant.options import How
    from brickwork.transplant.parts import image_of

    # Everything that can be refused is refused here, before a tensor or an image is read.
    check_output(out, force=force, owns=(CONFIG,))
    where = pick(device)
    half = store.read_config(folder).origin().steps[-1:]
    is_part = bool(half) and half[0].get("op") == "split"
    _check(folder, is_part, categories, task, only, data, to, at)
    if learning and not data:
        word = learning[0].replace("_", "-")
        raise RequestError(f"--{word} is for a task that is learned on --data; nothing else is learned here.")
    How(steps=steps, batch_size=batch_size, lr=lr, seed=seed).check(data=True)
    if to is not None and image is not None:
        raise RequestError("--input is for a new net; one that grows knows its images.")
    shape = None if image is None else parse_shape(image)
    specs = [images_of.check(spec) for spec in data]
    net = None if to is None else load_net(to, arch=arch, device=where)
    model = store.load(folder, arch=arch, device=where)
    if net is None:
        net = TransplantNet(_image(folder, image_of(model), shape))
    note: dict[str, Any] = {}
    if specs:
        assert task is not None and at is not None
        given = [images_for(net, spec, seed) for spec in specs]
        done = add_learned_task(
            net,
            model,
            task,
            at=at,
            carry=carry,
            on=categories,
            data=given,
            steps=steps,
            batch_size=batch_size,
            lr=lr,
            seed=seed,
            progress=not as_json,
        )
        grown, note = done.net, done.note
    else:
        grown = _grown(net, model, at, carry, categories, task, only, is_part)
    save_net(grown, out, force=force)
    _report(out, folder, net, grown, note, as_json)


def _grown(
    net: TransplantNet,
    model: nn.Module,
    at: str | None,
    carry: Sequence[str],
    categories: Sequence[str],
    task: str | None,
    only: str | None,
    is_part: bool,
) -> TransplantNet:
    from brickwork.transplant.parts import grown_by

    if only == "task" or (is_part and task is not None):
        return grown_by(net, model, at=at, carry=carry, task=task, on=categories)
    return grown_by(net, model, at=at, carry=carry, category=categories[0], task=task)


def _check(
    folder: Path,
    is_part: bool,
    categories: Sequence[str],
    task: str | None,
    only: str | None,
    data: Sequence[str],
    to: Path | None,
    at: str | None,
) -> None:
    """What goes together."""
    if is_part and only is not None:
        raise RequestError(f"{folder} is one half already; leave --only out.")
    if not is_part and at is None:
        raise RequestError(f"{folder} is a whole network; give --at, the layer behind which it is cut.")
    if only == "task" or (is_part and task is not None):
        if task is None:
            raise RequestError("--only task needs --task, its name.")
        if data and len(data) != len(categories):
            raise RequestError(f"{len(categories)} --category and {len(data)} --data; give one --data a category.")
        if data and is_part:
            raise RequestError("a task is learned from a whole network, with --only task; a part comes as it is.")
        if (data or categories) and to is None:
            raise RequestError("the categories of --only task are those of a net; give it with --to.")
        return
    if data:
        raise RequestError("--data is for a task that is learned on categories of a net; give --only task with it.")
    if len(categories) != 1:
        raise RequestError(f"--category is given {len(categories)} times; a network brings one category, so give one.")
    if only == "category" and task is not None:
        raise RequestError("--only category adds no task; leave --task out.")
    if only is None and not is_part and task is None:
        raise RequestError("--task is missing; give the upper half a name, or add --only category.")


def _image(folder: Path, known: tuple[int, ...] | None, given: tuple[int, ...] | None) -> tuple[int, ...]:
    if given is not None and len(given) != 3:
        raise RequestError(f"--input takes channels, height and width, as in 3x32x32, not {given}.")
    if known is None and given is None:
        raise RequestError(f"{folder} does not say which images it takes; give --input, as in 3x32x32.")
    if known is not None and given is not None and known != given:
        sides = ["×".join(map(str, shape)) for shape in (known, given)]
        raise RequestError(f"{folder} takes images of {sides[0]}, not {sides[1]}; leave --input out.")
    return known or given or ()


def _report(
    out: Path, folder: Path, net: TransplantNet, grown: TransplantNet, note: dict[str, Any], as_json: bool
) -> None:
    from brickwork.cli.transplant_parts import percent

    new: dict[str, list[Any]] = {
        "categories": [name for name in grown.categories if name not in net.categories],
        "tasks": [name for name in grown.tasks if name not in net.tasks],
        "routes": [list(route) for route in grown.routes if route not in net.routes],
    }
    said = [f"category {name}" for name in new["categories"]] + [f"task {name}" for name in new["tasks"]]
    count = f"categories: {len(grown.categories)}, tasks: {len(grown.tasks)}, routes: {len(grown.routes)}"
    lines = [f"{' and '.join(said)} of {folder} added; {count}"]
    lines += [
        f"learned on {name}: {percent(found.get('after'))} of the test images right" for name, found in note.items()
    ]
    report = {"folder": str(out), "model": str(folder), "added": new, "learned": note}
    emit(report, "\n".join([*lines, f"saved in {out}"]), as_json=as_json)
