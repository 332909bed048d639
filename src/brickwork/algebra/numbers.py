"""Numbers as safetensors stores them, to and from what we calculate in; numpy alone, so that torch need not be imported.

Everything is calculated in float32 (float64 for float64) whatever it is stored in, and rounded to nearest, ties to even.
"""

from functools import cache

import numpy as np

from brickwork.errors import BadFile, BadModel

#: safetensors' name -> numpy type of the stored bits
STORED = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
    "F8_E4M3": np.uint8,
    "F8_E5M2": np.uint8,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")


def stored_type(kind: str) -> np.dtype:
    if kind not in STORED:
        raise BadFile(f"tensors of type {kind} cannot be read; known: {', '.join(STORED)}.")
    return np.dtype(STORED[kind])


def decode(bits: np.ndarray, kind: str) -> np.ndarray:
    """Stored bits as numbers to calculate with; integers and float64 stay what they are.

    >>> decode(np.array([0x3F80, 0xC000], np.uint16), "BF16")
    array([ 1., -2.], dtype=float32)
    """
    if kind == "BF16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if kind.startswith("F8"):
        return _table(kind)[bits]
    return bits.astype(np.float32) if kind == "F16" else bits


LARGEST_HALF = 65520.0  # from here on float16 rounds to infinity


def in_range(values: np.ndarray, kind: str, name: str) -> np.ndarray:
    """The same numbers; BadModel where half precision would store them as infinite."""
    if kind == "F16" and values.size and float(np.abs(values).max()) >= LARGEST_HALF:
        raise BadModel(
            f"{name} would reach {float(np.abs(values).max()):.3g}, which float16 cannot hold; give smaller weights."
        )
    return values


def encode(values: np.ndarray, kind: str) -> np.ndarray:
    """Numbers as stored bits, to the nearest, ties to even.

    >>> hex(encode(np.array([1.00390625], np.float32), "BF16")[0])  # half way: to the even one
    '0x3f80'
    """
    if kind == "BF16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
        return np.where(np.isnan(values), np.uint16(0x7FC0), rounded.astype(np.uint16))
    if kind.startswith("F8"):
        return _to_eight_bits(values, kind)
    return values.astype(stored_type(kind), copy=False)


@cache
def _table(kind: str) -> np.ndarray:
    """What each of the 256 patterns of an 8-bit float means."""
    exponent_bits, bias = (4, 7) if kind == "F8_E4M3" else (5, 15)
    mantissa_bits = 7 - exponent_bits
    code = np.arange(256)
    sign = np.where(code & 0x80, -1.0, 1.0)
    exponent, mantissa = (code >> mantissa_bits) & (2**exponent_bits - 1), code & (2**mantissa_bits - 1)
    scale = np.where(exponent == 0, 1 - bias, exponent - bias).astype(np.float64)
    value = sign * 2.0**scale * (mantissa / 2**mantissa_bits + (exponent > 0))
    if kind == "F8_E4M3":  # no infinities; all ones is not a number
        value[(code & 0x7F) == 0x7F] = np.nan
    else:
        top = exponent == 31
        value[top] = np.where(mantissa[top] == 0, sign[top] * np.inf, np.nan)
    return value.astype(np.float32)


def _to_eight_bits(values: np.ndarray, kind: str) -> np.ndarray:
    table = _table(kind)[:128]
    levels = table[np.isfinite(table)].astype(np.float64)
    size = np.abs(values.astype(np.float64))
    above = np.clip(np.searchsorted(levels, size), 1, len(levels) - 1)
    low, high = levels[above - 1], levels[above]
    up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    code = np.where(up, above, above - 1).astype(np.uint8)
    code = np.where(size >= levels[-1], np.uint8(len(levels) - 1), code)  # beyond the largest: the largest
    code = np.where(np.isnan(values), np.uint8(0x7F), code)
    return (code | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)
