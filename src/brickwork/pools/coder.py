"""An adaptive binary range coder, compiled, in whole numbers only: the same bytes on every machine.

Every decision is a bit with a model of its own that learns while it codes, so no tables of frequencies are stored. A
number is written bit by bit down a tree of such models. Writing and reading are the same walk: `bit` does either, and
its place in the stream is a handful of numbers (`at`) handed from one decision to the next, so that they stay in registers.
All compiled functions are in this one file: numba's cache looks at the file of a function, not at those it calls.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.core.registry import cpu_target

# numba reads a great part of itself at its first use, for a fifth of a second: part of the import, not of the first task
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()

Place = tuple[int, int, int, int, int, int]  # low end, range, code read, position, byte held back, 255s behind it
ONE = 1 << 22  # probabilities are counted in 1/2²²
CLASSES = 6  # bits of the length of a number
FLAGS = 64  # models of "changed"
#: how far a model moves at its n-th decision, in 1/2¹⁶: the last entry is how many decisions it remembers
PACE = (65536 / (np.arange(1024) + 1.6)).astype(np.int64)


def models(count: int) -> np.ndarray:
    """So many models that know nothing yet: probability of a one, and decisions seen."""
    fresh = np.zeros((count, 2), np.int64)
    fresh[:, 0] = ONE // 2
    return fresh


def number_models() -> np.ndarray:
    """Fresh models for `numbers`: the length, the sign, and the two highest bits behind the first."""
    return models((1 << CLASSES) + 64 + 4 * 64)


def beginning(data: np.ndarray | None = None) -> Place:
    """Where a stream begins: to be written, or to be read from `data`."""
    if data is None:
        return 0, 0xFFFFFFFF, 0, 0, -1, 1
    code = 0
    for position in range(4):
        code = (code << 8) | (int(data[position]) if position < len(data) else 0)
    return 0, 0xFFFFFFFF, code, 4, -1, 1


@njit(cache=True, nogil=True)
def _shift(data, at):
    """Put out the highest byte; a carry may still run through the 255s that wait."""
    low, wide, code, position, held, waiting = at
    if low < 0xFF000000 or low > 0xFFFFFFFF:
        carry = low >> 32
        for k in range(waiting):
            byte = held if k == 0 else 0xFF
            if byte >= 0:  # else nothing was held back yet
                data[position] = (byte + carry) & 0xFF
                position += 1
        waiting = 0
        held = (low >> 24) & 0xFF
    return (low & 0x00FFFFFF) << 8, wide, code, position, held, waiting + 1


@njit(cache=True, nogil=True, inline="always")
def _bit(writing, data, at, model, number, value, pace):
    """Write `value` (0 or 1), or read it, with the model of that number."""
    low, wide, code, position, held, waiting = at
    chance, seen = model[number, 0], model[number, 1]
    bound = (wide >> 16) * min(max(chance >> 6, 24), 65536 - 24)
    if not writing:
        value = np.int64(code < bound)
    if value:
        wide = bound
        model[number, 0] = chance + (((1 << 22) - chance) * pace[seen] >> 16)
    else:
        if writing:
            low += bound
        else:
            code -= bound
        wide -= bound
        model[number, 0] = chance - (chance * pace[seen] >> 16)
    model[number, 1] = min(seen + 1, pace.shape[0] - 1)
    while wide < 0x1000000:
        wide <<= 8
        if writing:
            low, wide, code, position, held, waiting = _shift(data, (low, wide, code, position, held, waiting))
        else:
            code = (code << 8) | (np.int64(data[position]) if position < data.shape[0] else 0)
            position += 1
    return value, (low, wide, code, position, held, waiting)


@njit(cache=True, nogil=True, inline="always")
def _tree(writing, data, at, model, bits, value, pace):
    """A number of so many bits, the highest first."""
    node = 1
    for k in range(bits - 1, -1, -1):
        got, at = _bit(writing, data, at, model, node, (value >> k) & 1, pace)
        node = 2 * node + got
    return node - (1 << bits), at


class Walks(NamedTuple):
    """The three kinds of numbers in a stream."""

    own: Callable[..., Place]
    relative: Callable[..., Place]
    numbers: Callable[..., Place]


def _walks(writing: bool) -> Walks:
    """To write or to read: known when it is compiled, which makes reading twice as fast as asking at every bit."""

    @njit(cache=True, nogil=True)
    def own(data, at, codes, bits, model, pace):
        """Indices on their own."""
        for i in range(codes.shape[0]):
            codes[i], at = _tree(writing, data, at, model, bits, codes[i], pace)
        return at

    @njit(cache=True, nogil=True)
    def relative(data, at, codes, old, table, columns, bits, flags, ranks, pace):
        """Indices against old ones; table: rank of the new by old and new (writing), new by old and rank (reading)."""
        above = np.zeros(columns, np.int64)
        share = np.zeros(columns, np.int64)  # how often a column changed lately, in 1/256
        left = row = column = 0
        for i in range(codes.shape[0]):
            context = left + 2 * above[column] + 4 * min(3, share[column] >> 5) + 16 * min(3, row >> 5)
            changed, at = _bit(writing, data, at, flags, context, np.int64(codes[i] != old[i]), pace)
            if changed:
                rank = np.int64(table[old[i], codes[i]]) if writing else 0
                rank, at = _tree(writing, data, at, ranks, bits, rank, pace)
                if not writing:
                    codes[i] = table[old[i], min(rank, table.shape[1] - 1)]
            elif not writing:
                codes[i] = old[i]
            above[column] = left = changed
            share[column] += ((changed << 8) - share[column]) >> 4
            row += ((changed << 8) - row) >> 4
            column += 1
            if column == columns:
                left = row = column = 0
        return at

    @njit(cache=True, nogil=True)
    def numbers(data, at, values, model, pace):
        """Whole numbers of either sign: length down a tree, sign, two modelled bits, the rest as they are."""
        even = np.full((1, 2), 1 << 21, np.int64)
        for i in range(values.shape[0]):
            size = 0
            while (abs(values[i]) >> size) > 0:
                size += 1
            size, at = _tree(writing, data, at, model, CLASSES, size, pace)
            if size == 0:
                values[i] = 0
                continue
            sign, at = _bit(writing, data, at, model, (1 << CLASSES) + size, np.int64(values[i] < 0), pace)
            total = 1
            for k in range(size - 2, -1, -1):
                want = (abs(values[i]) >> k) & 1
                if total < 4:
                    got, at = _bit(writing, data, at, model, (1 << CLASSES) + 64 + 4 * size + total, want, pace)
                else:
                    even[0, 0], even[0, 1] = 1 << 21, 0  # nothing is known of this bit
                    got, at = _bit(writing, data, at, even, 0, want, pace)
                total = 2 * total + got
            values[i] = -total if sign else total
        return at

    return Walks(own, relative, numbers)


WRITE, READ = _walks(True), _walks(False)


@njit(cache=True, nogil=True)
def finish(data, at):
    """Write out what is left; the number of bytes."""
    for _ in range(5):
        at = _shift(data, at)
    return at[3]
