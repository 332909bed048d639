"""Files of tensors that a method leaves behind; what they weigh is what is reported."""

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from brickwork.atomic import file_hash, write_file
from brickwork.errors import BadFile
from brickwork.store.weights import write_safetensors


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Whole or not at all; the same values are the same bytes."""
    with write_file(path) as draft:
        write_safetensors({name: value.detach().clone() for name, value in tensors.items()}, draft, {})


def weigh(paths: Iterable[Path]) -> int:
    """Bytes on disk."""
    return sum(path.stat().st_size for path in paths)


def fingerprint(paths: Iterable[Path]) -> str:
    """One hash over the bytes of files: the same files give the same network."""
    digest = hashlib.sha256()
    for path in paths:
        status = path.stat()
        digest.update(_hash(path, status.st_mtime_ns, status.st_ino, status.st_size).encode())
    return digest.hexdigest()


@functools.lru_cache(maxsize=4096)
def _hash(path: Path, changed: int, place: int, size: int) -> str:
    """A file that was not replaced since is not read again: after task t there are t networks to look at."""
    return file_hash(path)


def pack(values: Tensor, bits: int) -> Tensor:
    """Whole numbers from 0 to 2^bits − 1, `bits` bits each (16 at most), as bytes.

    >>> pack(torch.tensor([1, 2, 3, 0, 1]), 2).tolist()
    [108, 64]
    """
    numbers = values.reshape(-1).cpu().numpy().astype(np.uint16)
    planes = np.empty((len(numbers), bits), np.uint8)
    for k in range(bits):
        planes[:, k] = (numbers >> (bits - 1 - k)) & 1
    return torch.from_numpy(np.packbits(planes.reshape(-1)))


def unpack(stored: Tensor, bits: int, count: int) -> Tensor:
    """The `count` numbers that `pack` stored, as int64.

    >>> unpack(pack(torch.tensor([1, 2, 3, 0, 1]), 2), 2, 5).tolist()
    [1, 2, 3, 0, 1]
    """
    if len(stored) != -(-bits * count // 8):
        raise BadFile(f"{len(stored)} bytes are stored where {count} numbers of {bits} bits were expected.")
    planes = np.unpackbits(stored.numpy(), count=bits * count).reshape(count, bits)
    numbers = np.zeros(count, np.uint16)
    for k in range(bits):
        numbers |= planes[:, k].astype(np.uint16) << (bits - 1 - k)
    return torch.from_numpy(numbers.astype(np.int64))
