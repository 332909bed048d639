"""`brickwork transplant list NET` and `brickwork transplant export NET --category C --out MODEL`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from brickwork.cli.common import emit, table
from brickwork.words import counted

if TYPE_CHECKING:
    from brickwork.transplant import TransplantNet


def show_table(folder: Path, *, arch: str | None, as_json: bool) -> None:
    """Parts with their shapes and sizes, and who reaches whom through what."""
    from brickwork.transplant import load_net

    net = load_net(folder, arch=arch)
    found = described(net)
    parts = [
        (kind, name, by(part["shape"]), part["parameters"])
        for kind in ("categories", "tasks")
        for name, part in found[kind].items()
    ]
    routes = [
        (
            r["category"],
            r["task"],
            r["adapter"],
            r.get("way") or "–",
            percent(r.get("after")),
            percent(r.get("teacher_test")),
        )
        for r in found["routes"]
    ]
    text = [
        f"{folder}: images of {by(found['image'])}",
        table(
            ["part", "name", "features", "parameters"], [(p[0].replace("ies", "y").rstrip("s"), *p[1:]) for p in parts]
        ),
        "",
        table(["category", "task", "adapter", "way", "test", "teacher's test"], routes)
        if routes
        else "no category reaches a task yet; connect them: brickwork transplant connect",
    ]
    emit({"folder": str(folder), **found}, "\n".join(text), as_json=as_json)


def described(net: TransplantNet) -> dict[str, Any]:
    """A net as JSON values."""
    from brickwork.zoo.summary import parameters_of

    def part(module: Any, shape: Any) -> dict[str, Any]:
        return {"shape": list(shape), "parameters": parameters_of(module)}

    return {
        "image": list(net.image),
        "categories": {name: part(p.module, p.gives) for name, p in net.categories.items()},
        "tasks": {name: part(p.module, p.reads) for name, p in net.tasks.items()},
        "routes": [{**row, **net.notes.get((row["category"], row["task"]), {})} for row in net.table()],
    }


def export(
    folder: Path, category: str | None, task: str | None, out: Path, *, arch: str | None, force: bool, as_json: bool
) -> None:
    """A part as a model folder, or the ordinary network that a category and its own task are."""
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.errors import RequestError
    from brickwork.transplant import load_net
    from brickwork.transplant.parts import alone
    from brickwork.zoo.summary import parameters_of

    check_output(out, force=force)
    if category is None and task is None:
        raise RequestError("transplant export needs --category, --task, or both for the network that they are.")
    net = load_net(folder, arch=arch)
    part = alone(net, category=category, task=task)
    store.save(part, out, force=force, provenance={"command": "transplant export", "net": str(folder)})
    what = " → ".join(name for name in (category, task) if name is not None)
    count = parameters_of(part)
    report = {"folder": str(out), "net": str(folder), "category": category, "task": task, "parameters": count}
    emit(report, f"{what}: {counted(count, 'parameter')}, saved in {out}", as_json=as_json)


def by(shape: Any) -> str:
    return "×".join(map(str, shape))


def percent(found: dict[str, float] | None) -> str:
    """Accuracy, and the mean IoU of a segmenter."""
    if not found:
        return "–"
    more = f" (IoU {found['mean_iou']:.1%})" if "mean_iou" in found else ""
    return f"{found['accuracy']:.2%}{more}"
