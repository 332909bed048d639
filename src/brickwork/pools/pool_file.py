"""The codebooks of a pool on disk: `pool.json`, `pool.safetensors`, and what it grew by."""

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
from brickwork.tensor_file import inside

POOL, BOOKS = "pool.json", "pool.safetensors"
FORMAT = "brickwork.pool/1"


def write_pool(pool: KernelPool, folder: Path) -> None:
    """Into an empty folder. The pool as it was made is one file, and every growth another."""
    first = pool.at(next(iter(pool.versions)))
    write_safetensors(dict(first.layers), folder / BOOKS, {"format": "pt", "brickwork": brickwork.__version__})
    description = {
        "format": FORMAT,
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
    lines = [f" {json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in description.items()]
    (folder / POOL).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    for number, growth in enumerate(growths_of(pool), 1):
        write_growth(growth, pool.at(growth.after), growth_path(folder, number))


def read_pool(path: Path, arch: Arch | None = None) -> KernelPool:
    """The pool of a folder, checked, without its base."""
    description = _read_json(path)
    try:
        origin = OriginConfig.model_validate(description["origin"])
        layers = description["layers"].items()
        shapes = {name: PoolLayer(name, tuple(shape), int(length)) for name, (shape, length) in layers}
        head, tied = description["head"], dict(description["tied"])
        size, group = int(description["size"]), int(description["group"])
    except (ValidationError, KeyError, TypeError, ValueError) as error:
        raise BadFile(f"{path / POOL} is not valid: {error}.") from error
    books = read_safetensors(inside(path / BOOKS))
    pool = KernelPool(
        layers={name: books[name] for name in shapes if name in books},
        shapes=shapes,
        head=head,
        origin=Origin.from_dict(origin.model_dump()),
        template=build_module(origin, path, arch=arch),
        size=size,
        group=group,
        tied=tied,
        facts=description.get("facts", {}),
    )
    if pool.hash != description.get("hash"):
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
        description = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise BadFile(f"{path} is not a pool: it has no {POOL}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFile(f"{file} is not JSON: {error}.") from error
    written = description.get("format") if isinstance(description, dict) else None
    if isinstance(written, int):
        raise BadFile(
            f"{file} is of the older format {written}; make the pool anew with this version, or rebuild its tasks with the "
            "version that wrote it: brickwork pool rebuild."
        )
    if written != FORMAT:
        raise BadFile(f"{file} is of format {written!r}; this version reads {FORMAT!r}.")
    return description
