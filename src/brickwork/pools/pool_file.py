"""The codebooks of a pool on disk: `pool.json`, `pool.safetensors`, and what it grew by."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

import brickwork
from brickwork.errors import BadFile
from brickwork.origin import Origin
from brickwork.pools.growth import growths_of
from brickwork.pools.growth_file import growth_files, growth_path, read_growth, write_growth
from brickwork.pools.layers import PoolLayer
from brickwork.pools.pool import KernelPool
from brickwork.store.config import OriginConfig, origin_config
from brickwork.store.folder import Arch, build_module
from brickwork.store.weights import read_safetensors, write_safetensors

POOL, BOOKS = "pool.json", "pool.safetensors"


def write_pool(pool: KernelPool, folder: Path) -> None:
    """Into an empty folder. The pool as it was made is one file, and every growth another."""
    first = pool.at(next(iter(pool.versions)))
    books = {f"first.{k}": v for k, v in first.layers.items()}
    books |= {f"second.{k}": v for k, v in pool.residual.items()}
    write_safetensors(books, folder / BOOKS, {"format": "pt", "brickwork": brickwork.__version__})
    said = {
        "format": 1,
        "brickwork": brickwork.__version__,
        "hash": first.hash,
        "head": pool.head,
        "size": pool.size,
        "group": pool.group,
        "layers": {name: [list(s.shape), s.length] for name, s in pool.shapes.items()},
        "tied": dict(pool.tied),
        "origin": origin_config(pool.origin),
        "facts": dict(pool.facts),
    }
    (folder / POOL).write_text(json.dumps(said, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    for number, growth in enumerate(growths_of(pool), 1):
        write_growth(growth, pool.at(growth.after), growth_path(folder, number))


def read_pool(path: Path, arch: Arch | None = None) -> KernelPool:
    """The pool of a folder, checked, without its base."""
    said = _read_json(path)
    try:
        origin = OriginConfig.model_validate(said["origin"])
        shapes = {name: PoolLayer(name, tuple(shape), int(length)) for name, (shape, length) in said["layers"].items()}
        head, size, group, tied = said["head"], int(said["size"]), int(said["group"]), dict(said["tied"])
    except (ValidationError, KeyError, TypeError, ValueError) as error:
        raise BadFile(f"{path / POOL} is not valid: {error}.") from error
    books = read_safetensors(path / BOOKS)
    pool = KernelPool(
        layers={name: books[f"first.{name}"] for name in shapes if f"first.{name}" in books},
        shapes=shapes,
        head=head,
        origin=Origin.from_dict(origin.model_dump()),
        template=build_module(origin, path, arch=arch),
        size=size,
        group=group,
        residual={k.removeprefix("second."): v for k, v in books.items() if k.startswith("second.")},
        tied=tied,
        facts=said.get("facts", {}),
    )
    if pool.hash != said.get("hash"):
        raise BadFile(f"{path / BOOKS} is damaged: its codebooks are not those that {POOL} was written for.")
    pool.check(pool.template)
    return with_growths(path, pool)


def with_growths(path: Path, pool: KernelPool) -> KernelPool:
    """A pool as it was made with all that its folder says it grew by."""
    for file in growth_files(path):
        pool = pool.grown_by(read_growth(file, pool))
    return pool


def _read_json(path: Path) -> dict:
    file = path / POOL
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise BadFile(f"{path} is not a pool: it has no {POOL}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFile(f"{file} is not JSON: {error}.") from error
    if not isinstance(said, dict) or said.get("format") != 1:
        raise BadFile(f"{file} is not the description of a pool that this Brickwork reads (format 1).")
    return said
