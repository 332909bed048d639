"""Sizes are known before anything is allocated: a small file must not take a large machine's memory.

What a file unfolds to is refused when it is more than `BRICKWORK_LIMIT_GB` (4 unless set) and more than 20 times the file:
a large file may be large, and a small one may unfold a little.
"""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from brickwork.errors import BadFile, RequestError

LIMIT = "BRICKWORK_LIMIT_GB"
_DEFAULT, _TIMES = 4.0, 20


def bound() -> int:
    """The bytes that a file may unfold to, whatever its own size."""
    text = os.environ.get(LIMIT, "")
    try:
        gigabytes = float(text) if text else _DEFAULT
    except ValueError:
        gigabytes = -1.0
    if not 0 < gigabytes < 1e9:
        raise RequestError(f"{LIMIT} is {text!r}; it must be a number of gigabytes above 0.")
    return int(gigabytes * 1e9)


def check_size(what: object, needed: int, stored: int) -> None:
    """Refuse what would take far more memory than its file; `stored` is the file's size in bytes.

    >>> check_size("x.npz", 8 * 10**9, 8 * 10**6)
    Traceback (most recent call last):
    ...
    brickwork.errors.BadFile: x.npz would take 8.0 GB of memory from 8.0 MB on disk; if you trust it, set BRICKWORK_LIMIT_GB=9.
    """
    if needed > bound() and needed > _TIMES * stored:
        raise BadFile(
            f"{what} would take {needed / 1e9:.1f} GB of memory from {stored / 1e6:.1f} MB on disk; if you trust it, set "
            f"{LIMIT}={math.floor(needed / 1e9) + 1}."
        )


def unzipped(data: bytes, what: object, most: int = 1 << 24) -> bytes:
    """What zlib packed, of at most so many bytes; ValueError for what is none."""
    reader = zlib.decompressobj()
    try:
        result = reader.decompress(data, most)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if reader.unconsumed_tail:
        raise BadFile(f"{what} has a header of more than {most >> 20} MB, which no task needs.")
    if not reader.eof:
        raise ValueError("it ends too early")
    return result


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The plain arrays of an .npz; what they take is read off the zip's directory and each array's header first."""
    try:
        # opened here: numpy leaves a broken file open
        with open(path, "rb") as raw, zipfile.ZipFile(raw) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            check_size(path, sum(member.file_size for member in members), path.stat().st_size)
            for member in members:
                with archive.open(member) as file:
                    _check_header(file, member.file_size, f"{path}: {member.filename}")  # type: ignore[arg-type]
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as arrays:
            return {key: value for key in arrays.files if isinstance(value := arrays[key], np.ndarray)}
    except MemoryError as error:
        raise BadFile(f"{path} takes more memory than this machine has.") from error
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise BadFile(
            f"{path} cannot be read as an .npz of plain arrays: {error}; copy it again if it was cut short."
        ) from error


def read_npy(path: Path, *, mapped: bool = False) -> np.ndarray:
    """The plain array of an .npy, whose header must fit its size. mapped: on the disk, read where it is looked at."""
    try:
        with open(path, "rb") as file:
            _check_header(file, path.stat().st_size, str(path))
        return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except MemoryError as error:
        raise BadFile(f"{path} takes more memory than this machine has.") from error
    except (OSError, ValueError, EOFError) as error:
        raise BadFile(
            f"{path} cannot be read as a plain .npy array: {error}; copy it again if it was cut short."
        ) from error


def _check_header(file: BinaryIO, size: int, what: str) -> None:
    """Compare what an array's header asks for with the bytes that are there."""
    form = np.lib.format
    version = form.read_magic(file)
    read = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    asked = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or asked != size - file.tell():
        raise BadFile(
            f"{what} cannot be read: its header asks for {asked} bytes, and there are {size - file.tell()}; copy it again if "
            "it was cut short."
        )
