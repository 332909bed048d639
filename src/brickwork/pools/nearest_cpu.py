"""The nearest of K vectors on a CPU, compiled: a row's K distances stay in the first cache, nothing is allocated.

A function for each length of vector, so that the compiler unrolls the sum and runs over the codebook in SIMD registers; long
sums, which it would not unroll, are taken in pieces.
Distances are not negative, so their bits, read as integers, are ordered as they are; integer minima vectorise.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

_ROWS = 4096  # the least that a thread is worth starting for
_UNROLLED = 20  # numbers of a vector; from 24 on the other loop is six to eleven times as fast
_FAST = {"nnan", "nsz", "arcp", "contract", "reassoc"}
_BITS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}


@njit(cache=True, nogil=True, inline="always")
def _first_least(keys):
    """The first place of the least: ties go to the lowest index."""
    size = np.int32(keys.shape[0])
    least = keys[0]
    for k in range(size):
        least = min(least, keys[k])
    first = size
    for k in range(size):
        first = min(first, np.int32(k) if keys[k] == least else size)
    return first


@functools.lru_cache(maxsize=64)
def _search(length: int) -> Callable[..., Any]:
    """The loop for vectors of one length; `codes` is (length, K), the keys are the bits of the costs.

    Two vectors at a time, so that an entry of the codebook is loaded once for both.
    """

    @njit(cache=True, nogil=True, fastmath=_FAST)
    def search(vectors, codes, index, cost_a, keys_a, cost_b, keys_b, zero):
        for row in range(0, vectors.shape[0], 2):
            other = min(row + 1, vectors.shape[0] - 1)
            for k in range(codes.shape[1]):
                a, b = zero, zero
                for j in range(length):
                    entry = codes[j, k]
                    gap_a, gap_b = vectors[row, j] - entry, vectors[other, j] - entry
                    a += gap_a * gap_a
                    b += gap_b * gap_b
                cost_a[k], cost_b[k] = a, b
            index[row], index[other] = _first_least(keys_a), _first_least(keys_b)

    return search


@njit(cache=True, nogil=True, fastmath=_FAST)
def _search_long(vectors, codes, index, cost, keys, zero):
    """As `_search` for vectors of many numbers, eight of them at a time."""
    whole = vectors.shape[1] // 8 * 8
    for row in range(vectors.shape[0]):
        for k in range(codes.shape[1]):
            cost[k] = zero
        for j in range(0, whole, 8):
            for k in range(codes.shape[1]):
                total = zero
                for i in range(8):
                    gap = vectors[row, j + i] - codes[j + i, k]
                    total += gap * gap
                cost[k] += total
        for j in range(whole, vectors.shape[1]):
            value = vectors[row, j]
            for k in range(codes.shape[1]):
                gap = value - codes[j, k]
                cost[k] += gap * gap
        index[row] = _first_least(keys)


def search_cpu(vectors: np.ndarray, codebook: np.ndarray, threads: int = 1) -> np.ndarray:
    """For each row of `vectors` (n, d) the index of the nearest row of `codebook` (K, d), int64."""
    vectors = np.ascontiguousarray(vectors)
    codes = np.ascontiguousarray(codebook.T)
    index = np.empty(len(vectors), np.int64)
    parts = max(1, min(threads, len(vectors) // _ROWS))
    bounds = [len(vectors) * i // parts for i in range(parts + 1)]

    def part(i: int) -> None:
        rows = slice(bounds[i], bounds[i + 1])
        costs = np.zeros((2, len(codebook)), codebook.dtype)
        keys = costs.view(_BITS[costs.dtype])
        zero = costs.dtype.type(0)
        if vectors.shape[1] > _UNROLLED:
            _search_long(vectors[rows], codes, index[rows], costs[0], keys[0], zero)
        else:
            search = _search(vectors.shape[1])
            search(vectors[rows], codes, index[rows], costs[0], keys[0], costs[1], keys[1], zero)

    if parts == 1:
        part(0)
    else:
        with ThreadPoolExecutor(parts) as crew:
            list(crew.map(part, range(parts)))
    return index
