"""What a pool has grown by, on disk: `grown-0001.safetensors` and so on, each whole or not there, none ever changed."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

import brickwork
from brickwork.errors import BadFile
from brickwork.pools.growth import Growth
from brickwork.pools.pool import KernelPool
from brickwork.store.weights import tensors_of, write_safetensors
from brickwork.tensor_file import inside, read_header

KERNELS = "kernels"  # the one tensor of a file: all new kernels, layer after layer


def growth_path(folder: Path, number: int) -> Path:
    """The file of a growth; the first is number 1."""
    return folder / f"grown-{number:04d}.safetensors"


def growth_files(folder: Path) -> list[Path]:
    """The files that are there, in the order of the growths; BadFile where one is missing in between."""
    files = sorted(folder.glob("grown-[0-9]*.safetensors"))
    for number, path in enumerate(files, 1):
        if path != growth_path(folder, number):
            raise BadFile(f"{growth_path(folder, number)} is missing: the pool has grown by it, and again after it.")
    return files


def write_growth(growth: Growth, pool: KernelPool, path: Path) -> None:
    """Write kernels for `pool`, in 16 bits a number where that loses nothing."""
    write_safetensors({KERNELS: _flat(growth.layers, pool)}, path, _notes(growth, pool))


def growth_bytes(growth: Growth, pool: KernelPool) -> int:
    """What `write_growth` will take."""
    return len(save({KERNELS: _flat(growth.layers, pool)}, _notes(growth, pool)))


def read_growth(path: Path, pool: KernelPool) -> Growth:
    """The kernels of a file that follow those of `pool`; checked against the hash of what they make of it."""
    try:
        header = read_header(inside(path))
        notes, flat = header.metadata, tensors_of(header)[KERNELS]
        counts, wanted = json.loads(notes["layers"]), notes["hash"]
        numbers = [
            count * book.shape[1] for count, book in zip(counts, pool.layers.values(), strict=True) if count >= 0
        ]
        parts = flat.split(numbers)
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise BadFile(f"{path} is damaged or cut short: {error}.") from error
    layers = {
        name: part.to(book.dtype).reshape(-1, book.shape[1])
        for part, (name, book) in zip(parts, pool.layers.items(), strict=True)
        if len(part)
    }
    growth = Growth(pool.hash, layers)
    if growth.hash != wanted:
        raise BadFile(f"{path} is damaged, or follows another pool: its kernels are not those it was written for.")
    return growth


def _notes(growth: Growth, pool: KernelPool) -> dict[str, str]:
    counts = [len(growth.layers.get(name, ())) for name in pool.layers]
    return {
        "format": "pt",
        "brickwork": brickwork.__version__,
        "hash": growth.hash,
        "layers": json.dumps(counts, separators=(",", ":")),
    }


def _flat(layers: Mapping[str, Tensor], pool: KernelPool) -> Tensor:
    flat = torch.cat([layers[name].reshape(-1) for name in pool.layers if name in layers])
    half = flat.half()
    return half if torch.equal(half.to(flat.dtype), flat) else flat
