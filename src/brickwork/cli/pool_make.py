"""`brickwork pool pretrain` and `pool cluster`: a pool from networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brickwork.cli.common import emit, log
from brickwork.words import counted


def cluster(
    folders: Sequence[Path],
    make: dict[str, Any],
    *,
    out: Path,
    data: str | None,
    seed: int,
    device: str,
    force: bool,
    arch: str | None,
    as_json: bool,
) -> None:
    """k-means over the kernels of model folders; with images, the base is chosen by its responses on them."""
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.cli.brick_folders import images_for
    from brickwork.devices import pick
    from brickwork.pools import KernelPool
    from brickwork.pools.folder import POOL

    check_output(out, force=force, owns=(POOL,))
    where = pick(device)
    spec = None if data is None else images_of.check(data)
    models = [store.load(folder, arch=arch) for folder in folders]
    images = None if spec is None else images_for(models[0], spec, seed).train_images
    pool = KernelPool.cluster(models, **make, images=images, seed=seed, device=where, progress=not as_json)
    _write(pool, out, force, [str(f) for f in folders], as_json)


def pretrain(
    folder: Path,
    make: dict[str, Any],
    *,
    out: Path,
    data: str | None,
    seed: int,
    device: str,
    force: bool,
    arch: str | None,
    as_json: bool,
) -> None:
    """Codebooks trained together with a model folder's network."""
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.cli.brick_folders import images_for
    from brickwork.devices import pick
    from brickwork.errors import RequestError
    from brickwork.pools import KernelPool
    from brickwork.pools.folder import POOL

    if data is None:
        raise RequestError("pool pretrain needs --data, the images to train on.")
    check_output(out, force=force, owns=(POOL,))
    where = pick(device)
    spec = images_of.check(data)
    model = store.load(folder, arch=arch)
    images = images_for(model, spec, seed)
    pool = KernelPool.pretrain(
        model,
        images.train_images,
        images.train_labels,
        classes=images.classes,
        seed=seed,
        device=where,
        progress=not as_json,
        **training(make, spec),
    )
    _write(pool, out, force, [str(folder)], as_json)


def training(options: dict[str, Any], spec: Any) -> dict[str, Any]:
    """Options of training, with the shifts and mirrors that suit the data where none are asked for."""
    from brickwork.training.recipes import UNMIRRORED

    given = {key: value for key, value in options.items() if value is not None}
    return {"augment": UNMIRRORED.get(spec.source, "crop+flip"), **given}


def _write(pool: Any, out: Path, force: bool, sources: list[str], as_json: bool) -> None:
    from brickwork.pools import PoolFolder

    folder = PoolFolder.create(out, pool, force=force)
    if pool.short:
        some = ", ".join(f"{name} ({count})" for name, count in list(pool.short.items())[:8])
        log(
            f"{counted(len(pool.short), 'layer')} with fewer than {pool.size} distinct kernels, so smaller pools: {some}"
        )
    report = {
        "folder": str(out),
        "models": sources,
        "layers": {name: len(book) for name, book in pool.layers.items()},
        "short": pool.short,
        "pool_bytes": pool.size_bytes,
        "bytes": folder.bytes(),
        "base_bytes": folder.bytes("base"),
        **pool.facts,
    }
    text = f"{pool}\nbase {folder.bytes('base'):,} bytes; {folder.bytes():,} bytes in all, there once; saved in {out}"
    emit(report, text, as_json=as_json)
