"""The one reader of safetensors files: a checked header, every byte accounted for, the recorded hash compared.

A file's hash stands in the config.json beside it (`recorded_hash`), or in its own header (`seal`): the digest of the whole
file with 64 zeros in its place. A file that has neither is a stranger's; it is read, and whoever reads it says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open

from brickwork.errors import BadFile, Unverified

#: safetensors' types as torch, and so a model folder's config.json, calls them
TORCH_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
}
SEAL = "brickwork_sha256"  # the entry of a file's own metadata
_BLANK = "0" * 64
_PIECE = 1 << 22


@dataclass(frozen=True)
class Entry:
    """One tensor of a file: where its bytes are."""

    name: str
    kind: str  # safetensors' name of the type
    shape: tuple[int, ...]
    file: Path
    start: int
    size: int

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Header:
    """What a file says it holds: tensors that fill it from front to end, without holes and without overlap."""

    path: Path
    entries: Mapping[str, Entry]  # in the order of their bytes
    metadata: Mapping[str, str]
    text: bytes  # as it stands in the file, its length included


def read_marked(path: Path, mark: str, otherwise: str) -> Header:
    """The header of a file of Brickwork's own, which says its format; `otherwise` is said of any other."""
    if not path.is_file():
        raise BadFile(f"{path} does not exist.")
    header = read_header(path)
    if header.metadata.get("format") != mark:
        raise BadFile(f"{path} {otherwise}.")
    return header


def read_header(path: Path) -> Header:
    """The header of a file, checked against the file; one BadFile for whatever is wrong with it."""
    try:
        with open(path, "rb"):  # of a file that it may not open, the library says that it is not there
            pass
        with safe_open(path, framework="numpy"):  # the library's own check: lengths, types, offsets, nothing left over
            pass
        with open(path, "rb") as file:
            length = file.read(8)
            text = file.read(int.from_bytes(length, "little"))
            whole = os.fstat(file.fileno()).st_size  # of this file: by its name it may be another one by now
        facts = json.loads(text)
        metadata = facts.pop("__metadata__", None) or {}
        begin = 8 + len(text)
        found = [
            Entry(name, f["dtype"], tuple(f["shape"]), path, begin + f["data_offsets"][0], f["data_offsets"][1])
            for name, f in facts.items()
        ]
    except FileNotFoundError:
        raise BadFile(f"{path} is missing.") from None
    except PermissionError as error:
        raise BadFile(f"{path} cannot be opened: {error.strerror}; mend its permissions.") from error
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise BadFile(f"{path} is damaged or cut short, it cannot be read as safetensors: {why}.") from error
    entries, position = {}, begin
    for entry in sorted(found, key=lambda e: (e.start, e.size)):
        size = begin + entry.size - entry.start
        if entry.start != position or size < 0 or any(n < 0 for n in entry.shape):
            raise BadFile(f"{path} is damaged: {entry.name!r} does not begin where the tensor before it ends.")
        if entry.kind not in TORCH_NAMES:
            raise BadFile(f"{path}: {entry.name!r} is of type {entry.kind}; known: {', '.join(TORCH_NAMES)}.")
        position += size
        entries[entry.name] = Entry(entry.name, entry.kind, entry.shape, path, entry.start, size)
    if position != whole:
        raise BadFile(f"{path} is damaged or cut short: its tensors end at byte {position} of {whole}.")
    return Header(path, entries, metadata, length + text)


def recorded_hash(path: Path) -> str | None:
    """The sha256 that the config.json beside a file records for it; None where there is none."""
    with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError):
        weights = json.loads((path.parent / "config.json").read_text(encoding="utf-8")).get("weights")
        if isinstance(weights, dict) and weights.get("file", "model.safetensors") == path.name:
            return weights.get("sha256")
    return None


def verify(path: Path, wanted: str | None = None) -> bool:
    """Compare a file with its recorded hash; BadFile where it differs, False where none is recorded."""
    header = read_header(path)
    wanted = wanted or recorded_hash(path)
    digest = _Digest(header, wanted)
    if not digest.needed:
        return False
    with open(path, "rb") as file:
        file.seek(len(header.text))
        while piece := file.read(_PIECE):
            digest.update(piece)
    digest.check()
    return True


def read_arrays(
    header: Header, wanted: str | None = None, allocate: Callable[[int], np.ndarray] = lambda n: np.empty(n, np.uint8)
) -> Iterator[tuple[Entry, np.ndarray]]:
    """Every tensor's bytes, in memory of its own, hashed on the way: the file is read once and held once.

    The hash is known at the end: use nothing before the last one came. wanted: the recorded sha256.
    """
    path = header.path
    digest = _Digest(header, wanted)
    with open(path, "rb") as file:
        file.seek(len(header.text))
        for entry in header.entries.values():
            content = allocate(entry.size)
            if file.readinto(content.data) != entry.size:
                raise BadFile(f"{path} was cut short while it was read.")
            digest.update(content)
            yield entry, content
    digest.check()


def seal(path: Path) -> None:
    """Put the digest of a file that was written with `unsealed` in its metadata where the zeros are."""
    header = read_header(path)
    place = _place(header)
    assert place is not None and header.metadata[SEAL] == _BLANK
    with open(path, "r+b") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(place)
        file.write(digest.encode())


def unsealed(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata with room for the digest."""
    return {**metadata, SEAL: _BLANK}


def warn_unverified(path: object) -> None:
    """Say that a file of an older version or of a stranger carries no hash."""
    warnings.warn(
        f"{path} was read and not verified: no sha256 is recorded for it; saved again, it gets one.",
        Unverified,
        stacklevel=3,
    )


def inside(path: Path) -> Path:
    """The path of a folder's file, which must not be a link out of the folder.

    One way out is allowed: huggingface_hub keeps a snapshot's files as links into the `blobs` of the same repository.
    """
    if path.is_symlink():
        target, folder = path.resolve(), path.parent.resolve()
        blobs = folder.parent.parent / "blobs" if folder.parent.name == "snapshots" else None
        if not target.is_relative_to(folder) and target.parent != blobs:
            raise BadFile(f"{path} is a link to {target}, outside the folder.")
    return path


def is_name(text: str) -> bool:
    """Whether it can name a file of a folder: no path, no control characters, not too long for a disk."""
    return text not in ("", ".", "..") and not any(c in "/\\" or c < " " for c in text) and len(text.encode()) < 256


class _Digest:
    """The hash of a file as its bytes come by: the recorded one of the whole file, or its own seal."""

    def __init__(self, header: Header, wanted: str | None) -> None:
        self.path, self.wanted, text = header.path, wanted, header.text
        place = _place(header)
        self.needed = wanted is not None or place is not None
        if wanted is None and place is not None:
            self.wanted = header.metadata[SEAL]
            text = text[:place] + _BLANK.encode() + text[place + 64 :]
        self.digest = hashlib.sha256(text)

    def update(self, content: Any) -> None:
        if self.needed:
            self.digest.update(content)

    def check(self) -> None:
        if self.needed and self.digest.hexdigest() != self.wanted:
            raise BadFile(
                f"{self.path} is damaged or was changed: its sha256 is not the one recorded when it was written."
            )


def _place(header: Header) -> int | None:
    """Where the digest stands in the header; None where the file has none."""
    if SEAL not in header.metadata:
        if any(_nearly(SEAL, name) for name in header.metadata):  # a stranger's file has no entry like it
            raise BadFile(f"{header.path} is damaged: the name of the sha256 in its header is changed.")
        return None
    at = header.text.find(f'"{SEAL}":"{header.metadata[SEAL]}"'.encode())
    if at < 0 or len(header.metadata[SEAL]) != 64:
        raise BadFile(f"{header.path} is damaged: the sha256 in its header is none.")
    return at + len(SEAL) + 4


def _nearly(name: str, other: str) -> bool:
    """Whether one is the other with a letter or two changed."""
    return len(name) == len(other) and sum(a != b for a, b in zip(name, other, strict=True)) <= 2


class Sealed:
    """A file that is hashed while it is written, the header first, and sealed at the end."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest, self.place = file, hashlib.sha256(), -1

    def write(self, content: Any) -> None:
        if self.place < 0:
            self.place = content.index(f'"{SEAL}":"{_BLANK}"'.encode()) + len(SEAL) + 4
        self.file.write(content)
        self.digest.update(content)

    def end(self) -> None:
        self.file.seek(self.place)
        self.file.write(self.digest.hexdigest().encode())
