"""Tensors in safetensors files, single or sharded, read and written one at a time; numpy alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from brickwork.algebra.numbers import FLOATS, decode, encode, stored_type
from brickwork.errors import BadFile

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


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
    def is_float(self) -> bool:
        return self.kind in FLOATS

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)


class Tensors(Mapping[str, np.ndarray]):
    """The tensors of a file, of a sharded model or of a model folder, by name; each is read when asked for.

    Values are float32 (float64 for float64), or integers as they are.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.shards = self._find()
        self.metadata: dict[str, dict[str, str]] = {}
        self.entries: dict[str, Entry] = {}
        for file in self.shards:
            header, offset = read_header(file)
            self.metadata[file.name] = header.pop("__metadata__", {})
            for name, facts in header.items():
                if name in self.entries:
                    raise BadFile(f"{self.path} holds {name!r} in two files.")
                begin, end = facts["data_offsets"]
                entry = Entry(name, facts["dtype"], tuple(facts["shape"]), file, offset + begin, end - begin)
                expected = math.prod(entry.shape) * stored_type(entry.kind).itemsize
                if expected != entry.size or entry.start + entry.size > file.stat().st_size:
                    raise BadFile(f"{file} is cut short or damaged at {name!r}.")
                self.entries[name] = entry

    def _find(self) -> list[Path]:
        if self.path.is_file() and self.path.name.endswith(".index.json"):
            return self._indexed(self.path)
        if self.path.is_file():
            return [self.path]
        if (self.path / INDEX).is_file():
            return self._indexed(self.path / INDEX)
        if (self.path / SINGLE).is_file():
            return [self.path / SINGLE]
        if not self.path.exists():
            raise BadFile(f"{self.path} does not exist.")
        raise BadFile(f"{self.path} holds neither {SINGLE} nor {INDEX}.")

    @staticmethod
    def _indexed(index: Path) -> list[Path]:
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise BadFile(f"{index} is not an index of shards: {error}.") from error
        for name in names:
            if "/" in name or "\\" in name or not (index.parent / name).is_file():
                raise BadFile(f"{index} names {name!r}, which is not a file beside it.")
        return [index.parent / name for name in names]

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self.entries[name]
        return decode(self.bits(name), entry.kind).reshape(entry.shape)

    def piece(self, name: str, start: int, count: int) -> np.ndarray:
        """Some of the tensor's numbers, flat, to calculate with."""
        return decode(self.bits(name, start, count), self.entries[name].kind)

    def bits(self, name: str, start: int = 0, count: int | None = None) -> np.ndarray:
        """The stored numbers as they are. Read, not mapped: mapped pages would count as memory."""
        entry = self.entries[name]
        kind = stored_type(entry.kind)
        left = entry.size // kind.itemsize - start
        with open(entry.file, "rb") as file:
            file.seek(entry.start + start * kind.itemsize)
            return np.fromfile(file, dtype=kind, count=left if count is None else min(count, left))

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file and where its data begins."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(100_000_000, path.stat().st_size - 8):
            raise BadFile(f"{path} is not a safetensors file.")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise BadFile(f"{path} is not a safetensors file: {error}.") from error
    return header, 8 + length


class Writer:
    """A safetensors file written in the order of its entries; the header is known before the first tensor."""

    def __init__(self, file: BinaryIO, entries: list[tuple[str, str, tuple[int, ...]]], metadata: dict[str, str]):
        self.file, self.kinds, position = file, {}, 0
        header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
        for name, kind, shape in entries:
            size = math.prod(shape) * stored_type(kind).itemsize
            header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [position, position + size]}
            self.kinds[name] = kind
            position += size
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        file.write(len(text).to_bytes(8, "little") + text)
        self.pending = [name for name, _, _ in entries]

    def put(self, name: str, values: np.ndarray | Iterable[np.ndarray]) -> None:
        """One tensor, whole or in pieces."""
        pieces = [values] if isinstance(values, np.ndarray) else values
        self.put_bits(name, (encode(piece, self.kinds[name]) for piece in pieces))

    def put_bits(self, name: str, bits: np.ndarray | Iterable[np.ndarray]) -> None:
        assert self.pending.pop(0) == name, "tensors are written in the order of the header"
        for piece in [bits] if isinstance(bits, np.ndarray) else bits:
            np.ascontiguousarray(piece).tofile(self.file)
