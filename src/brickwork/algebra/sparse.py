"""Merge methods that drop parts of the task vectors: TIES, DARE, DELLA, breadcrumbs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from brickwork.algebra.methods import LIMITS, PER_STEP, TensorContext, is_number, method, share

ELECT = ("none", "sign")
Walk = Callable[[int], Iterable[np.ndarray]]  # the pieces of a vector, or every so many-th of them


def threshold(size: np.ndarray, density: float) -> float:
    """The smallest of the largest `density` of these magnitudes; exact.

    >>> threshold(np.array([1.0, 2.0, 3.0, 4.0]), 0.5)
    3.0
    """
    keep = max(1, round(density * size.size))
    return float(np.partition(size.ravel(), size.size - keep)[size.size - keep])


def global_threshold(walk: Walk, density: float) -> float:
    """The same over a vector that is walked through in pieces and does not fit into memory; exact.

    A walk over some of the pieces takes a sample, which brackets the answer; a second, over all, counts what lies above
    the bracket and how often each value inside occurs: memory for the bracket, whatever the vector's length. Should the
    sample have misled, or the bracket be wide, bits are counted out.
    """
    sample = [_size(vector)[:: max(1, vector.size // 512)].copy() for vector in walk(8)]  # a view would keep it all
    if not sample:
        return 0.0
    drawn = np.sort(np.concatenate(sample))
    margin = 4 * (0.25 / len(drawn)) ** 0.5 + 2 / len(drawn)
    ranks = [int((1 - density + side * margin) * len(drawn)) for side in (-1, 1)]
    low = float(drawn[ranks[0]]) if ranks[0] > 0 else 0.0
    high = float(drawn[ranks[1]]) if ranks[1] < len(drawn) else np.inf
    first = int(_bits(low))
    span = int(_bits(high)) - first + 1  # float32 values that there are in the bracket
    total = sum(vector.size for vector in walk(1)) if span > WIDEST else 0
    if total:
        return counted_threshold(walk, max(1, round(density * total)))
    above, counts = 0, np.zeros(span, np.int64)
    for vector in walk(1):
        size = _size(vector)
        total += size.size
        above += int(np.count_nonzero(size > high))
        inside = np.compress((size >= low) & (size <= high), size)
        found, times = np.unique(inside.view(np.uint32), return_counts=True)
        counts[found - np.uint32(first)] += times
    keep = max(1, round(density * total))
    reached = np.cumsum(counts[::-1])[::-1]  # how many of the bracket are as large or larger
    left = keep - above
    if not 1 <= left <= reached[0]:
        return counted_threshold(walk, keep)
    return float(np.array([first + int(np.flatnonzero(reached >= left)[-1])], np.uint32).view(np.float32)[0])


WIDEST = 1 << 21  # values of a bracket that are counted one by one


def _bits(value: float) -> np.uint32:
    """The bits of a non-negative float32, which order as its value does."""
    return np.array([value], np.float32).view(np.uint32)[0]


def _size(vector: np.ndarray) -> np.ndarray:
    return np.abs(vector.astype(np.float32, copy=False)).ravel()


def counted_threshold(walk: Walk, keep: int) -> float:
    """The smallest of the `keep` largest magnitudes, by counting bits in two walks.

    The bits of a non-negative float32 order as its value does, so counting the upper half of the bits and then, within
    the bin that holds the answer, the lower half finds it.
    """
    counts = np.zeros(2**16, np.int64)
    for vector in walk(1):
        bits = _size(vector).view(np.uint32)
        counts += np.bincount(bits >> np.uint32(16), minlength=2**16)
    above = np.cumsum(counts[::-1])[::-1]  # how many lie in this bin or higher
    upper = int(np.flatnonzero(above >= keep)[-1])
    left = keep - (int(above[upper + 1]) if upper + 1 < 2**16 else 0)
    inner = np.zeros(2**16, np.int64)
    for vector in walk(1):
        bits = _size(vector).view(np.uint32)
        inside = bits[(bits >> np.uint32(16)) == upper] & np.uint32(0xFFFF)
        inner += np.bincount(inside, minlength=2**16)
    lower = int(np.flatnonzero(np.cumsum(inner[::-1])[::-1] >= left)[-1])
    return float(np.array([upper << 16 | lower], np.uint32).view(np.float32)[0])


def _survey(vectors: Sequence[Walk], options: Mapping[str, Any]) -> dict[str, Any]:
    """Each model's threshold over the task vector that its function walks through, as often as asked."""
    return {"thresholds": [global_threshold(walk, options["density"]) for walk in vectors]}


def _trimmed(vector: np.ndarray, limit: float, *, coarse: bool) -> np.ndarray:
    """What lies below the limit becomes 0, in place. coarse: the limit was counted out in float32."""
    size = np.abs(vector)
    stays = (size.astype(np.float32, copy=False) if coarse else size) >= limit
    vector *= stays.astype(vector.dtype)  # many times faster than assigning under a mask
    return vector


def _elected(vectors: list[np.ndarray], weights: Sequence[float] | None) -> np.ndarray:
    """The sign of the larger total mass wins; the mean of the entries that agree with it (TIES, §3)."""
    scales = [1.0] * len(vectors) if weights is None else list(weights)
    for vector, scale in zip(vectors, scales, strict=True):
        if scale != 1:
            vector *= vector.dtype.type(scale)
    mass = vectors[0].copy()
    for vector in vectors[1:]:
        mass += vector
    total, parts = np.zeros_like(mass), np.zeros_like(mass)
    for vector, scale in zip(vectors, scales, strict=True):
        agrees = (vector * mass > 0).astype(mass.dtype)
        vector *= agrees
        total += vector
        parts += agrees if abs(scale) == 1 else agrees * mass.dtype.type(abs(scale))
    total /= np.maximum(parts, np.finfo(parts.dtype).tiny)  # where none agrees, nothing was added
    return total


def _summed(vectors: list[np.ndarray], weights: Sequence[float] | None) -> np.ndarray:
    scales = [1.0] * len(vectors) if weights is None else list(weights)
    total = vectors[0] * vectors[0].dtype.type(scales[0])
    for vector, scale in zip(vectors[1:], scales[1:], strict=True):
        total += vector * vector.dtype.type(scale)
    return total


@method("ties", paper="https://arxiv.org/abs/2306.01708", base=True, survey=_survey, elementwise=True)
def ties(
    tensors: Sequence[np.ndarray],
    base: np.ndarray,
    context: TensorContext,
    *,
    density: float = 0.2,
    scale: float = 1.0,
    trim: str = "global",
    weights: Any = None,
) -> np.ndarray:
    """Trim each task vector to its largest entries, elect a sign an entry, average what agrees.

    trim: "global" (the paper's: the largest of the whole vector) or "tensor" (the largest of every tensor).
    """
    limits = context.found.get("thresholds")
    vectors = []
    for k, x in enumerate(tensors):
        vector = x - base
        limit = limits[k] if limits is not None else threshold(np.abs(vector), density)
        vectors.append(_trimmed(vector, limit, coarse=limits is not None))
    merged = _elected(vectors, weights)
    merged *= merged.dtype.type(scale)
    merged += base
    return merged


@method("dare", paper="https://arxiv.org/abs/2311.03099", base=True, elementwise=True)
def dare(
    tensors: Sequence[np.ndarray],
    base: np.ndarray,
    context: TensorContext,
    *,
    density: float = 0.5,
    elect: str = "none",
    weights: Any = None,
) -> np.ndarray:
    """Drop entries of the task vectors at random and divide the rest by the share that stays.

    elect: "none" adds the vectors up, "sign" averages those that agree in sign, as TIES does.
    """
    vectors = []
    for k, x in enumerate(tensors):
        stays = context.uniform(k, x.shape) < density
        vectors.append(np.where(stays, (x - base) / x.dtype.type(density), x.dtype.type(0)))
    return base + (_elected(vectors, weights) if elect == "sign" else _summed(vectors, weights))


@method("della", paper="https://arxiv.org/abs/2406.11617", base=True)
def della(
    tensors: Sequence[np.ndarray],
    base: np.ndarray,
    context: TensorContext,
    *,
    density: float = 0.5,
    window: float = 0.2,
    elect: str = "sign",
    scale: float = 1.0,
    weights: Any = None,
) -> np.ndarray:
    """As DARE, but small entries are dropped more often: the chance to stay rises with the rank within a row.

    window: how far the chances lie apart, around `density`.
    """
    if not base.size:
        return base.copy()
    rows = base.shape[0] if base.ndim > 1 else 1
    flat, models = base.reshape(rows, -1), [x.reshape(rows, -1) for x in tensors]
    columns = flat.shape[1]
    spread = np.arange(columns) / max(1, columns - 1) - 0.5  # −½ for the smallest, ½ for the largest
    chances = np.clip(density + window * spread, 1e-3, 1).astype(np.float32)
    merged = np.empty_like(flat)
    some = -(-BLOCK // max(1, columns * PER_STEP)) * PER_STEP  # rows at a time; random numbers come in eights
    for at in range(0, rows, some):
        block = slice(at, at + some)
        here = replace(context, start=at * columns)
        vectors = []
        for k, x in enumerate(models):
            vector = x[block] - flat[block]
            chance = np.empty(vector.shape, np.float32)
            np.put_along_axis(chance, _order(np.abs(vector)), np.broadcast_to(chances, vector.shape), 1)
            stays = here.uniform(k, vector.shape) < chance
            vector /= chance.astype(x.dtype, copy=False)
            vector *= stays
            vectors.append(vector)
        result = _elected(vectors, weights) if elect == "sign" else _summed(vectors, weights)
        result *= result.dtype.type(scale)
        np.add(flat[block], result, out=merged[block])
    return merged.reshape(base.shape)


BLOCK = 2**18  # numbers of a tensor that are ranked at a time


def _order(size: np.ndarray) -> np.ndarray:
    """The places of each row's numbers, the smallest first, the first of equal ones first.

    The bits of a non-negative float32 order as its value does: with the place behind them they are sorted as whole
    numbers, which takes a fraction of the time of sorting places.
    """
    if size.dtype != np.float32:
        return np.argsort(size, axis=1, kind="stable")
    keys = size.view(np.uint32).astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(size.shape[1], dtype=np.uint64)
    keys.sort(axis=1)
    keys &= np.uint64(0xFFFFFFFF)
    return keys.view(np.int64)


@method("breadcrumbs", paper="https://arxiv.org/abs/2312.06795", base=True)
def breadcrumbs(
    tensors: Sequence[np.ndarray],
    base: np.ndarray,
    context: TensorContext,
    *,
    density: float = 0.9,
    outliers: float = 0.01,
    weights: Any = None,
) -> np.ndarray:
    """Drop the largest entries of every tensor of a task vector (outliers) and the smallest, so that `density` stays."""
    vectors = []
    for x in tensors:
        vector = x - base
        size = np.abs(vector).ravel()
        top = round(outliers * size.size)
        keep = min(size.size - top, max(1, round(density * size.size)))
        vector *= _between_ranks(size, top, keep).reshape(x.shape)
        vectors.append(vector)
    merged = _summed(vectors, weights)
    merged += base
    return merged


def _between_ranks(size: np.ndarray, top: int, keep: int) -> np.ndarray:
    """Which of these numbers stand at places top to top + keep when the largest is first; of equal ones the first is.

    >>> _between_ranks(np.array([3.0, 1.0, 3.0, 2.0, 1.0]), 1, 3).tolist()
    [False, True, True, True, False]
    """
    if keep <= 0:
        return np.zeros(size.shape, bool)
    places = [size.size - top - keep, size.size - 1 - top]
    low, high = np.partition(size, places)[places]
    stays = (size >= low) & (size <= high)
    dropped = top - int(np.count_nonzero(size > high))  # of those that equal the largest that stays
    if dropped:
        stays[np.flatnonzero(size == high)[:dropped]] = False
    beyond = int(np.count_nonzero(stays)) - keep
    if beyond:
        stays[np.flatnonzero(stays & (size == low))[-beyond:]] = False
    return stays


def _limits(**options: Any) -> list[str]:
    wrong = share("density", options["density"])
    for name, allowed in (("trim", ("global", "tensor")), ("elect", ELECT)):
        if name in options and options[name] not in allowed:
            wrong.append(f"{name} is {options[name]!r}; it must be {' or '.join(allowed)}")
    for name in ("window", "outliers"):
        if name in options and not (is_number(options[name]) and 0 <= options[name] < 1):
            wrong.append(f"{name} is {options[name]!r}; it must be 0 or more and below 1")
    if not wrong and options.get("outliers", 0) + options["density"] > 1 + 1e-12:
        wrong.append(f"density {options['density']} and outliers {options['outliers']} are more than everything")
    return wrong


LIMITS.update(dict.fromkeys(("ties", "dare", "della", "breadcrumbs"), _limits))
