"""`brickwork pool show POOL --out page.html`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from brickwork.cli.common import emit, table
from brickwork.errors import RequestError, UnknownName


def show(
    folder: Path,
    out: Path,
    *,
    tasks: Sequence[str] = (),
    arch: str | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Draw which kernels tasks chose, what they have in common, and the kernels; all tasks, or those named."""
    from brickwork.atomic import check_file
    from brickwork.pools import PoolFolder
    from brickwork.report.pools import draw_pool, selection_rates

    if out.suffix.lower() != ".html":
        raise RequestError(f"{out} does not end in .html; a pool is drawn as a page.")
    check_file(out, force=force)
    found = PoolFolder.open(folder, arch=arch)
    for name in tasks:
        if name not in found.tasks:
            raise UnknownName("task", name, found.tasks)
    chosen = {name: found.task(name) for name in tasks or found.tasks}
    sizes = {name: found.bytes(name) for name in chosen}
    draw_pool(found.pool, chosen, sizes=sizes, title=f"Kernel pool: {folder.name}").save(out, force=force)
    rows = []
    for name, task in chosen.items():
        rates = selection_rates(found.pool, task)
        used = sum(int((rate > 0).sum()) for rate in rates.values()) / sum(map(len, rates.values()))
        rows.append(
            {
                "task": name,
                "classes": list(task.classes),
                "bytes": sizes[name],
                "changed": task.changed() if task.reference is not None else None,
                "kernels_used": used,
            }
        )
    told = table(
        ["task", "classes", "bytes", "unlike its reference", "kernels used"],
        [
            (
                r["task"],
                len(task.classes),
                r["bytes"],
                "–" if r["changed"] is None else f"{r['changed']:.1%}",
                f"{r['kernels_used']:.1%}",
            )
            for r, task in zip(rows, chosen.values(), strict=True)
        ],
    )
    report = {"file": str(out), "pool": str(folder), "tasks": rows}
    emit(report, f"{told}\nsaved in {out}" if rows else f"a pool without tasks\nsaved in {out}", as_json=as_json)
