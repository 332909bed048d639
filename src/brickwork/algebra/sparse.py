"""Merge methods that drop parts of the task vectors: TIES, DARE, DELLA, breadcrumbs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from brickwork.algebra.methods import LIMITS, TensorContext, is_number, method, share

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
    the bracket and keeps what lies inside, a few in a hundred. Should the sample have misled, bits are counted out.
    """
    sample = [_size(vector)[:: max(1, vector.size // 512)] for vector in walk(8)]
    if not sample:
        return 0.0
    drawn = np.sort(np.concatenate(sample))
    margin = 4 * (0.25 / len(drawn)) ** 0.5 + 2 / len(drawn)
    ranks = [int((1 - density + side * margin) * len(drawn)) for side in (-1, 1)]
    low = float(drawn[ranks[0]]) if ranks[0] > 0 else 0.0
    high = float(drawn[ranks[1]]) if ranks[1] < len(drawn) else np.inf
    above, total, inside = 0, 0, []
    for vector in walk(1):
        size = _size(vector)
        total += size.size
        above += int(np.count_nonzero(size > high))
        inside.append(np.compress((size >= low) & (size <= high), size))
    keep = max(1, round(density * total))
    middle = np.concatenate(inside)
    left = keep - above
    if not 1 <= left <= middle.size:
        return counted_threshold(walk, keep)
    return float(np.partition(middle, middle.size - left)[middle.size - left])


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
    vectors = []
    for k, x in enumerate(tensors):
        vector = (x - base).reshape(x.shape[0] if x.ndim > 1 else 1, -1)
        rank = np.argsort(np.argsort(np.abs(vector), axis=1, kind="stable"), axis=1, kind="stable")
        spread = rank / max(1, vector.shape[1] - 1) - 0.5  # −½ for the smallest, ½ for the largest
        chance = np.clip(density + window * spread, 1e-3, 1).astype(np.float32)
        stays = context.uniform(k, vector.shape) < chance
        kept = np.where(stays, vector / chance.astype(x.dtype), x.dtype.type(0))
        vectors.append(kept.reshape(x.shape))
    merged = _elected(vectors, weights) if elect == "sign" else _summed(vectors, weights)
    return base + merged * merged.dtype.type(scale)


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
        order = np.argsort(-size, kind="stable")
        kept = np.zeros_like(vector).ravel()
        chosen = order[top : top + keep]
        kept[chosen] = vector.ravel()[chosen]
        vectors.append(kept.reshape(x.shape))
    return base + _summed(vectors, weights)


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
