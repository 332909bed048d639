"""`brickwork pool pretrain|cluster|learn|encode|eval|rebuild|info|show|rm`: tasks from frozen kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import brickwork
from brickwork import store
from brickwork.cli import parameters as p
from brickwork.cli.command import Argument, Report, Result, make_group
from brickwork.cli.folders import hash_of, images_for
from brickwork.cli.printing import log
from brickwork.errors import RequestError, UnknownName
from brickwork.options import Setting
from brickwork.pools.options import ClusterOptions, EncodeOptions, LearnOptions, PretrainOptions
from brickwork.words import counted, some_of, table

if TYPE_CHECKING:
    from brickwork.data import ImageData
    from brickwork.pools import KernelPool, PoolFolder, PoolTask

Pool = Annotated[Path, Argument("A pool folder.", "POOL")]
OutPool = p.out_folder("Pool folder to write.", "pool.json")
Name = Annotated[str, Setting("Name of the task.")]
Models = Annotated[tuple[Path, ...], Argument("Model folders of one architecture.", "MODEL...")]


def pretrain(model: p.ModelFolder, *, data: p.Data, out: OutPool, run: p.Running, options: PretrainOptions) -> Report:
    """Train the codebooks of a pool together with a model folder's network.

    brickwork pool pretrain a --data digits:A --out pool
    """
    network = store.load(model, arch=run.arch)
    images = images_for(network, data, options.seed)
    pool = brickwork.KernelPool.pretrain(network, images, device=run.where, options=options)
    return _written(pool, out, [model], run.force)


def cluster(
    models: Models, *, out: OutPool, data: p.OptionalData = None, run: p.Running, options: ClusterOptions
) -> Report:
    """Make a pool by k-means over the kernels of model folders, without training.

    With --data, the pool's base is chosen by its responses on these images; labels are not used.

    brickwork pool cluster a --out pool
    """
    networks = [store.load(model, arch=run.arch) for model in models]
    images = images_for(networks[0], data, options.seed)
    pool = brickwork.KernelPool.cluster(networks, images, device=run.where, progress=True, options=options)
    return _written(pool, out, list(models), run.force)


def learn(
    pool: Pool,
    *,
    name: Name,
    data: p.Data,
    start: Annotated[
        str, Setting("What to start from: base, random, best (of the tasks, by the data), a task, or a model folder.")
    ] = "base",
    run: p.Running,
    options: LearnOptions,
) -> Report:
    """Learn a task by training, in kernels of a pool; no task ever changes another.

    brickwork pool learn pool --name b --data digits:B

    brickwork pool learn pool --name c --data digits:B --budget 15K --bits 12 --fold --free 0.6

    brickwork pool learn pool --name d --data digits:B --grow 16
    """
    folder = brickwork.pool.PoolFolder.open(pool, arch=run.arch)
    folder.check_new(name, force=run.force)
    beginning = None if start == "best" else folder.start(start, arch=run.arch)
    images = brickwork.data.load_for(folder.pool.origin.preprocessing, data, seed=options.seed)
    if start == "best":
        known = {task: folder.task(task) for task in ("base", *folder.tasks) if task != name}
        seen = images.train_images, images.train_labels
        scores = brickwork.pool.rank_starts(folder.pool, known, *seen, seed=options.seed, device=run.where)
        start = next(iter(scores))
        beginning = known[start]
        log("a linear head on the features of: " + ", ".join(f"{task} {right:.1%}" for task, right in scores.items()))
    task = brickwork.pool.learn(folder.pool, images, start=beginning, device=run.where, options=options)
    return _added(folder, name, task, images, run.force, {"start": start, "data": data})


def encode(
    pool: Pool,
    *,
    name: Name,
    model: Annotated[Path, Setting("Model folder to encode.", metavar="FOLDER")],
    data: p.OptionalData = None,
    run: p.Running,
    options: EncodeOptions,
) -> Report:
    """Encode a trained model folder in kernels of a pool, without training.

    --data, some hundred images, is needed by --metric gram; labels are not used.

    brickwork pool encode pool --name c --model fine-tuned --data digits:B
    """
    if data is None and options.metric == "gram":
        raise RequestError("`metric` gram needs `data`, some hundred images without labels; or give `metric` weight.")
    folder = brickwork.pool.PoolFolder.open(pool, arch=run.arch)
    folder.check_new(name, force=run.force)
    network = store.load(model, arch=run.arch)
    folder.pool.check(network)
    images = images_for(network, data, options.seed)
    task = brickwork.pool.encode(folder.pool, network, images, device=run.where, options=options)
    return _added(folder, name, task, images, run.force, {"model": model, "data": data, "metric": options.metric})


def eval_(
    pool: Pool, *, name: Name, data: p.Data, arch: p.Arch = None, seed: p.Seed = 0, device: p.Device = "auto"
) -> Report:
    """Evaluate a task's network on a data set.

    brickwork pool eval pool --name b --data digits:B
    """
    from brickwork.evaluation import evaluate_data

    folder = brickwork.pool.PoolFolder.open(pool, arch=arch)
    model = folder.rebuild(name, device=device)
    result = evaluate_data(model, images_for(model, data, seed, split="test"))
    report = {"folder": pool, "name": name, "data": data, "bytes": folder.bytes(name), **result.to_dict()}
    return Report(report, str(result))


def rebuild(pool: Pool, *, name: Name, out: p.OutFolder, arch: p.Arch = None, force: p.Force = False) -> Report:
    """Write a task as an ordinary model folder.

    brickwork pool rebuild pool --name b --out b
    """
    folder = brickwork.pool.PoolFolder.open(pool, arch=arch)
    task = folder.task(name)
    provenance = {"command": "pool rebuild", "task": name, "pool": task.pool, "how": dict(task.facts)}
    store.save(folder.pool.rebuild(task), out, force=force, provenance=provenance)
    text = f"{name}, {counted(len(task.classes), 'class')}, as an ordinary model"
    return Report.saved(out, {"pool": pool, "name": name, "state_hash": hash_of(out)}, text)


def info(
    pool: Pool,
    *,
    name: Annotated[str | None, Setting("A task, to see how its indices are spread.")] = None,
    arch: p.Arch = None,
) -> Result:
    """Show what a pool holds, or how the indices of one task are spread.

    brickwork pool info pool
    """
    folder = brickwork.pool.PoolFolder.open(pool, arch=arch)
    return folder if name is None else _task_report(folder, name)


def show(
    pool: Pool,
    *,
    out: p.out_file("Page to write.", ".html"),
    name: Annotated[str | None, Setting("The task to show.", default_text="all")] = None,
    run: p.Reading,
) -> Report:
    """Draw which kernels tasks chose, what they have in common, and the kernels, as a page.

    brickwork pool show pool --out page.html
    """
    from brickwork.report.pools import draw_pool, selection_rates

    folder = brickwork.pool.PoolFolder.open(pool, arch=run.arch)
    if name is not None and name not in folder.tasks:
        raise UnknownName("task", name, folder.tasks)
    tasks = {task: folder.task(task) for task in ([name] if name else folder.tasks)}
    sizes = {task: folder.bytes(task) for task in tasks}
    draw_pool(folder.pool, tasks, sizes=sizes, title=f"Kernel pool: {pool.name}").save(out, force=run.force)
    rows: list[dict[str, Any]] = []
    for label, task in tasks.items():
        rates = selection_rates(folder.pool, task).values()
        used = sum(int((rate > 0).sum()) for rate in rates) / sum(map(len, rates))
        changed = None if task.reference is None else task.changed()
        own = {"task": label, "classes": task.classes, "bytes": sizes[label]}
        rows.append({**own, "changed": changed, "kernels_used": used})
    cells = [
        (r["task"], len(r["classes"]), r["bytes"], _share(r["changed"], "–"), _share(r["kernels_used"], ""))
        for r in rows
    ]
    text = table(["task", "classes", "bytes", "unlike its reference", "kernels used"], cells)
    return Report.saved(out, {"pool": pool, "tasks": rows}, text if rows else "a pool without tasks")


def rm(
    pool: Pool,
    *,
    name: Name,
    detach: Annotated[bool, Setting("Store tasks that are relative to this one on their own first.")] = False,
    trim: Annotated[bool, Setting("Also drop kernels the pool grew by last that no task was made with.")] = False,
    arch: p.Arch = None,
) -> Report:
    """Remove a task from a pool; the others stay as they are.

    brickwork pool rm pool --name d
    """
    folder = brickwork.pool.PoolFolder.open(pool, arch=arch)
    bound, before = folder.relatives(name), folder.bytes()
    folder.remove(name, detach=detach, trim=trim)
    freed = before - folder.bytes()
    report = {"folder": pool, "removed": name, "detached": bound, "trimmed_bytes": freed, "tasks": folder.tasks}
    smaller = f", the pool {freed:,} bytes smaller" if freed else ""
    return Report(report, f"{name} removed{smaller}; {len(folder.tasks)} tasks left")


GROUP = make_group(
    "pool",
    "Learn task after task by choosing kernels from a frozen pool; no task ever changes another.",
    (pretrain, cluster, learn, encode, eval_, rebuild, info, show, rm),
)


def _written(pool: KernelPool, out: Path, sources: list[Path], force: bool) -> Report:
    """A new pool, saved and reported."""
    folder = brickwork.pool.PoolFolder.create(out, pool, force=force)
    if pool.short:
        some = some_of([f"{name} ({count})" for name, count in pool.short.items()], 8)
        few = f"fewer than {pool.size} distinct kernels"
        log(f"{counted(len(pool.short), 'layer')} with {few}, so smaller pools: {some}")
    layers = {name: len(book) for name, book in pool.layers.items()}
    sizes = {"pool_bytes": pool.size_bytes, "bytes": folder.bytes(), "base_bytes": folder.bytes("base")}
    base = f"base {sizes['base_bytes']:,} bytes; {sizes['bytes']:,} bytes in all, there once"
    report = {"models": sources, "layers": layers, "short": pool.short, **sizes, **pool.facts}
    return Report.saved(out, report, f"{pool}\n{base}")


def _added(
    folder: PoolFolder, name: str, task: PoolTask, images: ImageData | None, force: bool, request: dict[str, Any]
) -> Report:
    """A new task, judged, saved and reported."""
    from brickwork.evaluation import evaluate_data

    accuracy, right = None, ""
    if images is not None and set(images.classes) <= set(task.classes):
        result = evaluate_data(folder.pool.rebuild(task), images)
        accuracy, right = result.accuracy, f"{result.accuracy:.2%} of {result.images} test images right; "
    before = folder.bytes()
    folder.add(name, task, force=force)
    row = folder.row(name)
    changed, relative = None, "on its own"
    if row["relative_to"] is not None:  # which need not be what the task started from
        changed = folder.task(name).changed()
        relative = f"relative to {row['relative_to']}, {changed:.1%} of its indices changed"
    grew = {"kernels": 0 if task.brings is None else task.brings.count, "bytes": folder.bytes() - before}
    about = {"folder": folder.path, **{key: row[key] for key in ("name", "bytes", "relative_to")}, "changed": changed}
    new = f"; the pool grew by {grew['kernels']} kernels, {grew['bytes']:,} bytes" if grew["kernels"] else ""
    report = {**about, "pool_grew": grew, "test_accuracy": accuracy, **request, **task.facts}
    return Report(report, f"{name}: {right}{row['bytes']:,} bytes, {relative}{new}")


def _task_report(folder: PoolFolder, name: str) -> Report:
    """How the indices of one task are spread over each layer's kernels."""
    task = folder.task(name)
    about = task.to_dict()
    layers = [{**row, "of": len(folder.pool.layers[row["layer"]])} for row in about["layers"]]
    report = {**folder.row(name), **about, "layers": layers}
    cells = [[row["layer"], row["kernels"], row["used"], row["of"], _share(row["changed"], "")] for row in layers]
    text = table(["layer", "kernels", "used", "of", "changed"], cells)
    return Report(report, f"{task}, {report['bytes']:,} bytes\n{text}")


def _share(value: float | None, missing: str) -> str:
    return missing if value is None else f"{value:.1%}"
