"""Tensors in safetensors files, single or sharded, read and written one at a time; numpy alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from brickwork.algebra.numbers import decode, encode, in_range, stored_type
from brickwork.errors import BadFile
from brickwork.tensor_file import SEAL, Entry, Sealed, inside, is_name, read_header, unsealed, verify

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


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
            header = read_header(file)
            self.metadata[file.name] = {n: text for n, text in header.metadata.items() if n != SEAL}
            for name, entry in header.entries.items():
                if name in self.entries:
                    raise BadFile(f"{self.path} holds {name!r} in two files.")
                self.entries[name] = entry

    def _find(self) -> list[Path]:
        if self.path.is_file() and self.path.name.endswith(".index.json"):
            return self._indexed(self.path)
        if self.path.is_file():
            return [self.path]
        if (self.path / INDEX).is_file():
            return self._indexed(inside(self.path / INDEX))
        if (self.path / SINGLE).is_file():
            return [inside(self.path / SINGLE)]
        if not self.path.exists():
            raise BadFile(f"{self.path} does not exist.")
        raise BadFile(f"{self.path} holds neither {SINGLE} nor {INDEX}.")

    @staticmethod
    def _indexed(index: Path) -> list[Path]:
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else error
            raise BadFile(f"{index} is not an index of shards: {why}.") from error
        if not names:
            raise BadFile(f"{index} is not an index of shards: it names no file.")
        for name in names:
            if not isinstance(name, str) or not is_name(name) or not (index.parent / name).is_file():
                raise BadFile(f"{index} names {str(name)[:80]!r}, which is not a file beside it.")
        return [inside(index.parent / name) for name in names]

    def verify(self) -> list[Path]:
        """Compare every file with its recorded hash, two at a time; BadFile for one that differs. Which have none?"""
        with ThreadPoolExecutor(2) as crew:
            known = list(crew.map(verify, self.shards))
        return [file for file, has in zip(self.shards, known, strict=True) if not has]

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


class Writer:
    """A safetensors file written in the order of its entries; the header is known before the first tensor.

    sealed: the file's sha256, taken on the way, stands in its header at the end.
    """

    def __init__(
        self,
        file: BinaryIO,
        entries: list[tuple[str, str, tuple[int, ...]]],
        metadata: dict[str, str],
        *,
        sealed: bool = False,
    ) -> None:
        self.kinds, position = {}, 0
        metadata = unsealed(metadata) if sealed else metadata
        header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
        for name, kind, shape in entries:
            size = math.prod(shape) * stored_type(kind).itemsize
            header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [position, position + size]}
            self.kinds[name] = kind
            position += size
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        self.file: BinaryIO | Sealed = Sealed(file) if sealed else file
        self.pending = [name for name, _, _ in entries]
        self.file.write(len(text).to_bytes(8, "little") + text)
        self._finish()

    def put(self, name: str, values: np.ndarray | Iterable[np.ndarray]) -> None:
        """One tensor, whole or in pieces."""
        pieces = [values] if isinstance(values, np.ndarray) else values
        self.put_bits(name, (encode(in_range(piece, self.kinds[name], name), self.kinds[name]) for piece in pieces))

    def put_bits(self, name: str, bits: np.ndarray | Iterable[np.ndarray]) -> None:
        assert self.pending.pop(0) == name, "tensors are written in the order of the header"
        for piece in [bits] if isinstance(bits, np.ndarray) else bits:
            if piece.size:  # written, not `tofile`, which does not say that a disk is full
                self.file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
        self._finish()

    def _finish(self) -> None:
        if not self.pending and isinstance(self.file, Sealed):
            self.file.end()
