"""`brickwork pool learn` and `pool encode`: a new task in a pool folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from brickwork.cli.common import emit, log


def learn(
    folder: Path,
    name: str,
    *,
    start: str,
    budget: int | None,
    how: dict[str, Any],
    data: str,
    more: dict[str, Any],
    seed: int,
    device: str,
    force: bool,
    arch: str | None,
    as_json: bool,
) -> None:
    """Train temporary kernels, keep the indices of the pool's nearest."""
    from brickwork import data as images_of
    from brickwork import pools
    from brickwork.cli.pool_make import training
    from brickwork.devices import pick
    from brickwork.pools.folder import BASE

    where = pick(device)
    spec = images_of.check(data)
    opened = pools.PoolFolder.open(folder, arch=arch)
    opened.check_new(name, force=force)
    beginning = _start(opened, start, arch)
    images = images_of.load_for(opened.pool.origin.preprocessing, spec, seed=seed)
    if start == "best":
        known = {BASE: opened.task(BASE), **{task: opened.task(task) for task in opened.tasks if task != name}}
        scores = pools.rank_starts(
            opened.pool, known, images.train_images, images.train_labels, seed=seed, device=where
        )
        start = next(iter(scores))
        beginning = known[start]
        log("a linear head on the features of: " + ", ".join(f"{task} {right:.1%}" for task, right in scores.items()))
    task = pools.learn(
        opened.pool,
        images.train_images,
        images.train_labels,
        classes=images.classes,
        start=beginning,
        budget=budget,
        seed=seed,
        device=where,
        progress=not as_json,
        **more,
        **training(how, spec),
    )
    _keep(opened, name, task, images, force=force, as_json=as_json, more={"start": start, "data": str(spec)})


def encode(
    folder: Path,
    name: str,
    model: Path,
    *,
    metric: str,
    stay: float,
    precision: int,
    data: str | None,
    more: dict[str, Any],
    seed: int,
    device: str,
    force: bool,
    arch: str | None,
    as_json: bool,
) -> None:
    """Say a model folder in kernels of the pool, without training."""
    from brickwork import data as images_of
    from brickwork import pools, store
    from brickwork.cli.brick_folders import images_for
    from brickwork.devices import pick
    from brickwork.errors import RequestError

    if data is None and metric == "gram":
        raise RequestError("pool encode needs --data, some hundred images without labels, or --metric weight.")
    where = pick(device)
    spec = None if data is None else images_of.check(data)
    opened = pools.PoolFolder.open(folder, arch=arch)
    opened.check_new(name, force=force)
    network = store.load(model, arch=arch)
    opened.pool.check(network)
    images = None if spec is None else images_for(network, spec, seed)
    task = pools.encode(
        opened.pool,
        network,
        None if images is None else images.train_images,
        metric=metric,
        stay=stay,
        precision=precision,
        seed=seed,
        device=where,
        progress=not as_json,
        **more,
    )
    said = {"model": str(model), "data": None if spec is None else str(spec), "metric": metric}
    _keep(opened, name, task, images, force=force, as_json=as_json, more=said)


def _start(opened: Any, start: str, arch: str | None) -> Any:
    """What a start is called on the command line: words first, then tasks, then model folders."""
    from brickwork import store
    from brickwork.errors import UnknownName

    if start in ("base", "best"):
        return None
    if start == "random":
        return start
    if start in opened.tasks:
        return opened.task(start)
    if (Path(start) / "config.json").is_file():
        return store.load(start, arch=arch)
    known = ["base", "best", "random", *opened.tasks]
    raise UnknownName("start", start, known, "A model folder is taken too.")


def _keep(opened: Any, name: str, task: Any, images: Any, *, force: bool, as_json: bool, more: dict[str, Any]) -> None:
    from brickwork.evaluation import evaluate_data

    found = None
    if images is not None and set(images.classes) <= set(task.classes):
        found = evaluate_data(opened.pool.rebuild(task), images)
    before = opened.bytes()
    opened.add(name, task, force=force)
    size, reference = opened.bytes(name), opened.header(name)["reference"]
    # of what the file is relative to, which need not be what the task started from
    changed = None if reference is None else opened.task(name).changed()
    grew = {"kernels": 0 if task.brings is None else task.brings.count, "bytes": opened.bytes() - before}
    report = {
        "folder": str(opened.path),
        "name": name,
        "bytes": size,
        "relative_to": None if reference is None else reference[0],
        "changed": changed,
        "pool_grew": grew,
        "test_accuracy": None if found is None else found.accuracy,
        **more,
        **task.facts,
    }
    told = "on its own" if reference is None else f"relative to {reference[0]}, {changed:.1%} of its indices changed"
    right = "" if found is None else f"{found.accuracy:.2%} of {found.images} test images right; "
    new = f"; the pool grew by {grew['kernels']} kernels, {grew['bytes']:,} bytes" if grew["kernels"] else ""
    emit(report, f"{name}: {right}{size:,} bytes, {told}{new}", as_json=as_json)
