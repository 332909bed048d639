"""The nearest of K vectors on a CPU, compiled: a row's K distances stay in the first cache, nothing is allocated.

A function for each length of vector, so that the compiler unrolls the sum and runs over the codebook in SIMD registers.
Distances are not negative, so their bits, read as integers, are ordered as they are; integer minima vectorise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

_ROWS = 4096  # the least that a thread is worth starting for
_FAST = {"nnan", "nsz", "arcp", "contract", "reassoc"}
_BITS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}


@functools.lru_cache(maxsize=64)
def _search(length: int) -> Callable[..., Any]:
    """The loop for vectors of one length; `codes` is (length, K), `keys` the bits of `cost`, `zero` of its precision."""

    @njit(cache=True, nogil=True, fastmath=_FAST)
    def search(vectors, codes, found, cost, keys, zero):
        size = codes.shape[1]
        for row in range(vectors.shape[0]):
            for k in range(size):
                total = zero
                for j in range(length):
                    gap = vectors[row, j] - codes[j, k]
                    total += gap * gap
                cost[k] = total
            least = keys[0]
            for k in range(size):
                least = min(least, keys[k])
            first = np.int32(size)
            for k in range(size):  # the first that attains it: ties go to the lowest index
                first = min(first, np.int32(k) if keys[k] == least else np.int32(size))
            found[row] = first

    return search


def search_cpu(vectors: np.ndarray, codebook: np.ndarray, threads: int = 1) -> np.ndarray:
    """For each row of `vectors` (n, d) the index of the nearest row of `codebook` (K, d), int64."""
    vectors = np.ascontiguousarray(vectors)
    codes = np.ascontiguousarray(codebook.T)
    found = np.empty(len(vectors), np.int64)
    search = _search(vectors.shape[1])
    parts = max(1, min(threads, len(vectors) // _ROWS))
    bounds = [len(vectors) * i // parts for i in range(parts + 1)]

    def part(i: int) -> None:
        rows = slice(bounds[i], bounds[i + 1])
        cost = np.zeros(len(codebook), codebook.dtype)
        search(vectors[rows], codes, found[rows], cost, cost.view(_BITS[cost.dtype]), cost.dtype.type(0))

    if parts == 1:
        part(0)
    else:
        with ThreadPoolExecutor(parts) as crew:
            list(crew.map(part, range(parts)))
    return found
