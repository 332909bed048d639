"""Indices in as many bits as the largest takes: read a hundred times faster than a coded stream, and hardly larger
where all kernels are chosen about equally often, as they are where k-means has made them."""

import numpy as np


def bits_of(size: int) -> int:
    """Of an index below `size`.

    >>> [bits_of(size) for size in (1, 2, 512, 513)]
    [1, 1, 9, 10]
    """
    return max(1, int(size - 1).bit_length())


def packed_size(count: int, size: int) -> int:
    """Bytes that `pack` takes for so many indices below `size`."""
    whole, rest = divmod(bits_of(size), 8)
    return whole * count + rest * -(-count // 8)


def pack(codes: np.ndarray, size: int) -> bytes:
    """Indices below `size`: their low bytes one after the other, then what is left of them bit by bit.

    >>> pack(np.array([3, 258, 0]), 512).hex()
    '03020040'
    """
    whole, rest = divmod(bits_of(size), 8)
    parts = [((codes >> 8 * k) & 0xFF).astype(np.uint8) for k in range(whole)]
    parts += [np.packbits(((codes >> (8 * whole + k)) & 1).astype(np.uint8)) for k in range(rest)]
    return b"".join(part.tobytes() for part in parts)


def unpack(data: bytes, count: int, size: int) -> np.ndarray:
    """The `count` indices that `pack` wrote, int32; ValueError where bytes are missing."""
    if len(data) != packed_size(count, size):
        raise ValueError(f"{len(data)} bytes where {count} indices below {size} take {packed_size(count, size)}")
    whole, rest = divmod(bits_of(size), 8)
    raw, at = np.frombuffer(data, np.uint8), 0
    codes = np.zeros(count, np.int32)
    for k in range(whole):
        codes |= raw[at : at + count].astype(np.int32) << 8 * k
        at += count
    for k in range(rest):
        plane = -(-count // 8)
        codes |= np.unpackbits(raw[at : at + plane], count=count).astype(np.int32) << (8 * whole + k)
        at += plane
    return codes
