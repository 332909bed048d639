"""`brickwork pool eval`, `rebuild`, `info` and `rm`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from brickwork.cli.common import emit, table


def evaluate(folder: Path, name: str, data: str, *, seed: int, device: str, arch: str | None, as_json: bool) -> None:
    """A task's network on a data set."""
    from brickwork import data as images_of
    from brickwork.devices import pick
    from brickwork.evaluation import evaluate_data
    from brickwork.origin import origin_of
    from brickwork.pools import PoolFolder

    where = pick(device)
    spec = images_of.check(data, split="test")
    opened = PoolFolder.open(folder, arch=arch)
    model = opened.rebuild(name, device=where)
    prepared = origin_of(model).preprocessing
    found = evaluate_data(model, images_of.load_for(prepared, spec, seed=seed, split="test"))
    report = {"folder": str(folder), "name": name, "data": str(spec), "bytes": opened.bytes(name), **found.to_dict()}
    emit(report, str(found), as_json=as_json)


def rebuild(folder: Path, name: str, out: Path, *, force: bool, arch: str | None, as_json: bool) -> None:
    """A task as an ordinary model folder."""
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.pools import PoolFolder

    check_output(out, force=force)
    opened = PoolFolder.open(folder, arch=arch)
    task = opened.task(name)
    made = {"command": "pool rebuild", "task": name, "pool": task.pool, "how": dict(task.facts)}
    store.save(opened.pool.rebuild(task), out, force=force, provenance=made)
    report = {
        "folder": str(out),
        "pool": str(folder),
        "name": name,
        "state_hash": store.read_config(out).weights.state_hash,
    }
    emit(report, f"{name}, {len(task.classes)} classes, as an ordinary model in {out}", as_json=as_json)


def info(folder: Path, name: str | None, *, arch: str | None, as_json: bool) -> None:
    """What a pool holds, or how the indices of one task are spread."""
    from brickwork.pools import PoolFolder

    opened = PoolFolder.open(folder, arch=arch)
    if name is not None:
        return _task(opened, name, as_json)
    rows = [_row(opened, task) for task in opened.tasks]
    base = opened.bytes("base") if opened.pool.base is not None else 0
    report: dict[str, Any] = {
        "folder": str(folder),
        "hash": opened.pool.hash,
        "arch": opened.pool.origin.arch,
        "layers": {k: list(v.shape) for k, v in opened.pool.layers.items()},
        "short": opened.pool.short,
        "head": opened.pool.head,
        "bytes": opened.bytes(),
        "base_bytes": base,
        "grown": _growths(opened),
        "tasks": rows,
        "total_bytes": opened.bytes() + sum(row["bytes"] for row in rows),
        "made": dict(opened.pool.facts),
    }
    cells = [[r["name"], r["classes"], r["bytes"], r["relative_to"] or "itself", r["how"]] for r in rows]
    lines = [str(opened.pool), f"there once: {opened.bytes():,} bytes, {base:,} of them the base"]
    for growth in report["grown"]:
        users = ", ".join(growth["tasks"]) or "no task"
        lines.append(f"grown by {growth['kernels']} kernels, {growth['bytes']:,} of these bytes, used by {users}")
    if cells:
        lines.append(table(["task", "classes", "bytes", "relative to", "how"], cells))
    lines.append(f"all together {report['total_bytes']:,} bytes")
    emit(report, "\n".join(lines), as_json=as_json)
    return None


def remove(folder: Path, name: str, *, detach: bool, trim: bool, arch: str | None, as_json: bool) -> None:
    """Delete a task; the others stay as they are."""
    from brickwork.pools import PoolFolder

    opened = PoolFolder.open(folder, arch=arch)
    bound = opened.relatives(name)
    before = opened.bytes()
    opened.remove(name, detach=detach, trim=trim)
    freed = before - opened.bytes()
    report = {"folder": str(folder), "removed": name, "detached": bound, "trimmed_bytes": freed, "tasks": opened.tasks}
    told = f", the pool {freed:,} bytes smaller" if freed else ""
    emit(report, f"{name} removed{told}; {len(opened.tasks)} tasks left", as_json=as_json)


def _growths(opened: Any) -> list[dict[str, Any]]:
    """What the pool grew by: kernels, bytes on disk, and the tasks that use any of them."""
    from brickwork.pools.growth_file import growth_files

    sizes = list(opened.pool.versions.values())
    tasks = {name: opened.task(name) for name in opened.tasks} if opened.pool.grown else {}
    found = []
    for number, file in enumerate(growth_files(opened.path), 1):
        old, new = sizes[number - 1], sizes[number]
        users = [
            name
            for name, task in tasks.items()
            if any(bool(((c >= old[k]) & (c < new[k])).any()) for k, c in task.codes.items())
        ]
        found.append({"kernels": sum(new.values()) - sum(old.values()), "bytes": file.stat().st_size, "tasks": users})
    return found


def _row(opened: Any, name: str) -> dict[str, Any]:
    header = opened.header(name)
    return {
        "name": name,
        "classes": len(header["origin"]["classes"] or ()),
        "bytes": opened.bytes(name),
        "relative_to": (header["reference"] or [None])[0],
        "how": header["facts"].get("how", ""),
    }


def _task(opened: Any, name: str, as_json: bool) -> None:
    task, header = opened.task(name), opened.header(name)
    rows = []
    for layer, codes in task.codes.items():
        changed = None if task.reference is None else float((codes != task.reference.codes[layer]).double().mean())
        used = len(codes.unique())
        rows.append(
            {
                "layer": layer,
                "kernels": len(codes),
                "used": used,
                "of": len(opened.pool.layers[layer]),
                "changed": changed,
            }
        )
    report = {
        **_row(opened, name),
        "layers": rows,
        "names": list(task.classes),
        "precision": task.precision,
        "hash": task.hash,
        "facts": header["facts"],
    }
    cells = [
        [r["layer"], r["kernels"], r["used"], r["of"], "" if r["changed"] is None else f"{r['changed']:.1%}"]
        for r in rows
    ]
    text = f"{task}, {report['bytes']:,} bytes\n" + table(["layer", "kernels", "used", "of", "changed"], cells)
    emit(report, text, as_json=as_json)
