"""`brickwork transplant connect NET --category C --task T --data SPEC --way … --out NET`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brickwork.cli.common import emit, log
from brickwork.errors import RequestError

if TYPE_CHECKING:
    from brickwork.transplant.options import How


def connect(
    folder: Path,
    category: str,
    task: str,
    out: Path,
    *,
    data: str | None,
    way: str,
    labels: int,
    teacher: str | None,
    how: dict[str, Any],
    given: Sequence[str],
    arch: str | None,
    device: str,
    force: bool,
    as_json: bool,
) -> None:
    """Learn an adapter and save the net with it; no part of the net changes."""
    from brickwork import data as images_of
    from brickwork.atomic import check_output
    from brickwork.cli.transplant_parts import percent
    from brickwork.devices import pick
    from brickwork.transplant import WAYS, growth, load_net, save_net
    from brickwork.transplant.folders import CONFIG

    # Everything that can be refused is refused here, before a tensor or an image is read.
    check_output(out, force=force, owns=(CONFIG,))
    where = pick(device)
    options = checked(way, labels, how, given, data=data is not None)
    spec = None if data is None else images_of.check(data)
    net = load_net(folder, arch=arch, device=where)
    images = None
    if spec is not None:
        net.category(category), net.task(task)  # names first: images take longer
        images = growth.images_for(net, spec, options.seed)
    done = growth.connect(
        net, category, task, how=options, data=images, teacher=teacher, force=force, progress=not as_json
    )
    save_net(done.net, out, force=force)
    note = done.note
    if note.get("judged_by") == "position":
        log(f"{task} has other class names than {spec}; its outputs stand for the classes in their order.")
    used = f"{note['labels']} labelled and {note['images']} unlabelled images"
    if note["looks"] > note["labels"] + note["images"]:
        used += f", {note['looks']} views and blends of them"
    taught = f", taught by {note['teacher']}" if WAYS[way].teacher else ""
    lines = [f"{category} → {task} by {way}{taught}: {used}"]
    if note.get("after"):
        told = {"before": note["before"], "after": note["after"], note["teacher"]: note["teacher_test"]}
        lines.append("test images right: " + ", ".join(f"{name} {percent(value)}" for name, value in told.items()))
    else:
        lines.append("no test images that the task can be judged by")
    report = {"folder": str(out), "net": str(folder), "category": category, "task": task, **note}
    emit(report, "\n".join([*lines, f"saved in {out}"]), as_json=as_json)


def checked(way: str, labels: int, how: dict[str, Any], given: Sequence[str], *, data: bool) -> How:
    """The options of learning, all that is wrong with them at once; an option without a use is refused."""
    from brickwork.transplant.options import How

    options = How(way=way, labels=labels, **how)
    options.check(data=data)
    idle = options.unused(list(given))
    if idle:
        word = idle[0].replace("_", "-")
        raise RequestError(f"--{word} is not used by --way {way}; leave it out.")
    return options
