"""Indices and small tensors as one stream of bytes, written or read by the same calls.

Indices go on their own (down a tree of models that learns how often each kernel is chosen) or relative to those of another
task: a flag says where one changed, and the new kernel is coded by its rank among the neighbours of the old one, since a
kernel that gives way mostly gives way to one nearby.
"""

import numpy as np

from brickwork.pools import coder
from brickwork.pools.packing import bits_of


class Stream:
    """A coder with its buffer. `Stream()` writes, `Stream(data)` reads.

    >>> out = Stream()
    >>> codes = np.array([3, 1, 3, 3], np.int32)
    >>> data = (out.own(codes, 4), out.close())[1]
    >>> Stream(data).own(np.zeros(4, np.int32), 4).tolist()
    [3, 1, 3, 3]
    """

    def __init__(self, data: bytes | None = None) -> None:
        self.writing = data is None
        self.walk = coder.WRITE if self.writing else coder.READ
        self.data = np.zeros(1 << 16, np.uint8) if data is None else np.frombuffer(data, np.uint8).copy()
        self.at = coder.beginning(None if data is None else self.data)

    def own(self, codes: np.ndarray, size: int) -> np.ndarray:
        """Indices (n,) below `size` on their own; reading takes the place of `codes`. Returned as int32."""
        codes, bits = np.ascontiguousarray(codes, np.int32), bits_of(size)
        self._room(len(codes) * bits)
        model = coder.models(1 << bits)
        self.at = self.walk.own(self.data, self.at, codes, bits, model, coder.PACE)
        return codes

    def relative(self, codes: np.ndarray, old: np.ndarray, order: np.ndarray, columns: int) -> np.ndarray:
        """Indices against old ones, in rows of `columns`; order (K, K−1): from each kernel the others by distance."""
        codes, old = np.ascontiguousarray(codes, np.int32), np.ascontiguousarray(old, np.int32)
        size = len(order)
        bits = bits_of(size - 1)
        self._room(len(codes) * (bits + 1))
        table = order
        if self.writing or size == 1:
            table = np.zeros((size, size), np.int32)
            np.put_along_axis(table, order.astype(np.int64), np.arange(size - 1, dtype=np.int32)[None], 1)
        flags, ranks = coder.models(coder.FLAGS), coder.models(1 << bits)
        self.at = self.walk.relative(self.data, self.at, codes, old, table, columns, bits, flags, ranks, coder.PACE)
        return codes

    def numbers(self, values: np.ndarray, model: np.ndarray | None = None) -> np.ndarray:
        """Small whole numbers of either sign, |v| < 2³⁰; `model` from `coder.number_models` is shared between calls."""
        self._room(len(values) * 40)
        model = coder.number_models() if model is None else model
        self.at = self.walk.numbers(self.data, self.at, values, model, coder.PACE)
        return values

    def close(self) -> bytes:
        """What was written."""
        self._room(64)
        size = coder.finish(self.data, self.at)
        return self.data[:size].tobytes().rstrip(b"\0")  # a reader takes zeros for what is missing

    def _room(self, decisions: int) -> None:
        """A decision is at most twelve bits."""
        if self.writing:
            needed = self.at[3] + self.at[5] + 2 * decisions + 64
            if needed > len(self.data):
                self.data = np.resize(self.data, max(needed, 2 * len(self.data)))


def neighbours(book: np.ndarray) -> np.ndarray:
    """For each entry of (K, d) all others, the nearest first (K, K−1), reckoned in whole numbers: the same everywhere.

    >>> neighbours(np.array([[0.0], [1.0], [5.0]])).tolist()
    [[1, 2], [0, 2], [1, 0]]
    """
    top = float(np.abs(book).max()) or 1.0
    whole = np.rint(book.astype(np.float64) / top * 2048)
    squares, ones = (whole * whole).sum(1)[:, None], np.ones((len(book), 1))
    # |a|² + |b|² − 2 a·b in one product, exact: whole numbers far below 2⁵³
    left, right = np.hstack([whole, squares, ones]), np.hstack([-2 * whole, ones, squares]).T
    # a few rows at a time, in memory that is warm: new memory would take longer than the sums
    rows = [slice(k, k + 64) for k in range(0, len(book), 64)]
    few = np.empty((64, len(book)))
    bits = len(book).bit_length()
    most = max(float(np.matmul(left[r], right, out=few[: len(left[r])]).max()) for r in rows)
    scale = 0.5 ** max(0, int(most).bit_length() - (30 - bits))
    keys = np.empty((len(book), len(book)), np.int32)
    for r in rows:
        some = np.matmul(left[r], right, out=few[: len(left[r])])
        some *= scale
        keys[r] = some  # cut off, not rounded
    keys += 1
    keys <<= bits
    keys |= np.arange(len(book), dtype=np.int32)  # ties: the lower index first
    np.fill_diagonal(keys, 0)
    keys.sort(axis=1)
    order = np.empty((len(book), len(book) - 1), np.int16 if len(book) < 1 << 15 else np.int32)
    return np.bitwise_and(keys[:, 1:], (1 << bits) - 1, out=order, casting="unsafe")
