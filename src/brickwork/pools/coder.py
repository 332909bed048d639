"""An adaptive binary range coder, compiled, in whole numbers only: the same bytes on every machine.

Every decision is a bit with a model of its own that learns while it codes, so no tables of frequencies are stored. A
number is written bit by bit down a tree of such models. Encoder and decoder are the same walk; `bit` does either.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# where the coder keeps what: one array, so that the functions below can share it
LOW, RANGE, CODE, CACHE, PENDING, POSITION, WRITING = range(7)
_ONE = 1 << 22  # probabilities are counted in 1/2²²
_LIMIT = 1023  # a model remembers about so many decisions
#: how far a model moves at its n-th decision, in 1/2¹⁶
PACE = (65536 / (np.arange(_LIMIT + 1) + 1.6)).astype(np.int64)


def models(count: int) -> np.ndarray:
    """So many models that know nothing yet: probability of a one, and decisions seen."""
    fresh = np.zeros((count, 2), np.int64)
    fresh[:, 0] = _ONE // 2
    return fresh


def writer() -> np.ndarray:
    state = np.zeros(7, np.int64)
    state[RANGE], state[PENDING], state[WRITING] = 0xFFFFFFFF, 1, 1
    state[CACHE] = -1  # nothing has been put out yet
    return state


def reader(data: np.ndarray) -> np.ndarray:
    state = np.zeros(7, np.int64)
    state[RANGE] = 0xFFFFFFFF
    for position in range(4):
        state[CODE] = (state[CODE] << 8) | (int(data[position]) if position < len(data) else 0)
    state[POSITION] = 4
    return state


@njit(cache=True, nogil=True)
def _shift(state, data):
    """Put out the highest byte; a carry may still run through the 255s that wait."""
    low = state[LOW]
    if low < 0xFF000000 or low > 0xFFFFFFFF:
        carry = low >> 32
        for waiting in range(state[PENDING]):
            byte = state[CACHE] if waiting == 0 else 0xFF
            if byte >= 0:
                data[state[POSITION]] = (byte + carry) & 0xFF
                state[POSITION] += 1
        state[PENDING] = 0
        state[CACHE] = (low >> 24) & 0xFF
    state[PENDING] += 1
    state[LOW] = (low & 0x00FFFFFF) << 8


@njit(cache=True, nogil=True)
def bit(state, data, model, at, value, pace):
    """Write `value` (0 or 1), or read it where the coder is a reader, with the model number `at`."""
    chance = model[at, 0]
    bound = (state[RANGE] >> 16) * min(max(chance >> 6, 24), 65536 - 24)
    if state[WRITING] == 0:
        value = 1 if state[CODE] < bound else 0
    if value:
        state[RANGE] = bound
    else:
        state[LOW] += bound
        state[CODE] -= bound
        state[RANGE] -= bound
    while state[RANGE] < 0x1000000:
        state[RANGE] <<= 8
        if state[WRITING]:
            _shift(state, data)
        else:
            byte = data[state[POSITION]] if state[POSITION] < data.shape[0] else 0
            state[CODE] = (state[CODE] << 8) | byte
            state[POSITION] += 1
    seen = model[at, 1]
    model[at, 0] = chance + ((((1 << 22) if value else 0) - chance) * pace[seen] >> 16)
    if seen < pace.shape[0] - 1:
        model[at, 1] = seen + 1
    return value


@njit(cache=True, nogil=True)
def tree(state, data, model, offset, bits, value, pace):
    """A number of so many bits, the highest first; the models of its tree are 2^bits from `offset` on."""
    node = 1
    for k in range(bits - 1, -1, -1):
        node = 2 * node + bit(state, data, model, offset + node, (value >> k) & 1, pace)
    return node - (1 << bits)


@njit(cache=True, nogil=True)
def finish(state, data):
    """Write out what is left; returns how many bytes there are."""
    for _ in range(5):
        _shift(state, data)
    return state[POSITION]
