"""`brickwork transplant tune NET --category C --task T --data SPEC --out NET`: parts of a net trained together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brickwork.cli.common import emit, table
from brickwork.errors import RequestError


def tune(
    folder: Path,
    categories: Sequence[str],
    task: str,
    out: Path,
    *,
    data: Sequence[str],
    parts: str,
    learning: dict[str, Any],
    seed: int,
    arch: str | None,
    device: str,
    force: bool,
    as_json: bool,
) -> None:
    """Train parts on the routes of these categories to one task, and say which routes answer differently now."""
    from brickwork import data as images_of
    from brickwork.atomic import check_output
    from brickwork.cli.transplant_parts import percent
    from brickwork.devices import pick
    from brickwork.transplant import growth, joint, load_net, save_net
    from brickwork.transplant.folders import CONFIG

    check_output(out, force=force, owns=(CONFIG,))
    where = pick(device)
    chosen = [name.strip() for name in parts.split(",")]
    unknown = [name for name in chosen if name not in joint.PARTS]
    if unknown:
        raise RequestError(f"--parts has {unknown[0]!r}; it must be of {', '.join(joint.PARTS)}.")
    if len(data) not in (1, len(categories)):
        raise RequestError(
            f"{len(categories)} --category and {len(data)} --data; give one --data for all, or one for each."
        )
    specs = [images_of.check(spec) for spec in data] * (len(categories) if len(data) == 1 else 1)
    net = load_net(folder, arch=arch, device=where)
    for name in categories:
        net.category(name)
    net.task(task)
    routes = [(c, task, growth.images_for(net, s, seed)) for c, s in zip(categories, specs, strict=True)]
    done = joint.tune(net, routes, parts=chosen, seed=seed, progress=not as_json, **learning)
    save_net(done.net, out, force=force)
    rows = [
        (r["category"], r["task"], *("–" if r[k] is None else percent(r[k]) for k in ("before", "after")))
        for r in done.note["routes"]
    ]
    changed = ", ".join(f"{c} → {t}" for c, t in done.note["changed"])
    text = (
        f"{table(['category', 'task', 'before', 'after'], rows)}\nother answers than before: {changed}\nsaved in {out}"
    )
    emit({"folder": str(out), "net": str(folder), **done.note}, text, as_json=as_json)
