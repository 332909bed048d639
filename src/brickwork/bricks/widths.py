"""How much to keep: by the paper's threshold, by one ratio for all layers, or by a budget spent where it costs least."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from brickwork.blueprint.plan import CLASSES, Blueprint
from brickwork.bricks.prices import Prices, prices_of
from brickwork.bricks.scores import above_mean
from brickwork.errors import RequestError

Kept = dict[str, list[int]]


def by_ratio(bp: Blueprint, scores: Mapping[str, np.ndarray], ratio: float, *, least: int = 8, step: int = 1) -> Kept:
    """The best-scored share of every space; at least `least` channels, widths a multiple of `step`."""
    if not 0 < ratio <= 1:
        raise RequestError(f"a keep ratio must be above 0 and at most 1, not {ratio}")
    return {name: best_channels(bp, name, s, round(len(s) * ratio), least, step) for name, s in scores.items()}


def by_threshold(bp: Blueprint, tables: Mapping[str, np.ndarray], factor: float = 1.0) -> Kept:
    """Paper 2: of each class the channels above `factor` × the layer's mean score; the union over classes."""
    kept = {}
    for name, table in tables.items():
        ids = set(np.flatnonzero(above_mean(table, factor).any(0)).tolist())
        ids |= set(bp.space(name).fixed) | {int(table.sum(0).argmax())}
        cells = bp.cells(name)
        if cells is not None:  # every group as wide as the widest
            lifted = table.sum(0) + (table.sum(0).max() + 1) * np.isin(np.arange(table.shape[1]), list(ids))
            ids = set(_alike(cells, lifted, set(), max(np.bincount(cells[list(ids)])), 1))
        kept[name] = sorted(ids)
    return kept


def rounded(bp: Blueprint, scores: Mapping[str, np.ndarray], kept: Kept, step: int) -> Kept:
    """The kept channels and the best of the others, up to a multiple of `step`."""
    if step == 1:
        return kept
    wide = {}
    for name, ids in kept.items():
        lifted = scores[name].astype(np.float64).copy()
        lifted[ids] += lifted.max() + 1  # what is kept stays kept
        wide[name] = best_channels(bp, name, lifted, len(ids), 1, step)
    return wide


def by_worth(
    bp: Blueprint,
    scores: Mapping[str, np.ndarray],
    generosity: float,
    *,
    of: str = "parameters",
    power: float = 1.5,
    left: Mapping[str, float] | None = None,
    least: int = 8,
    step: int = 1,
    prices: Prices | None = None,
) -> Kept:
    """Widths at which no channel is worth less than its price: a budget goes where it buys most.

    A space that keeps the share m of its score suffers (1 - m)^power at every place where it is written (a residual
    stream at many); minimised is the sum of that plus a price per channel, which falls as the generosity grows from
    0 to 1. What a channel costs depends on how wide its neighbours are, so prices are asked again until the widths
    stand. left: shares of spaces that are already settled.

    A power above 1 keeps a space from being given up for its neighbours: at 1, whole layers fall to `least`. VGG-16 on
    half of CIFAR-100 (75.6 %), half of the parameters: 74.7, 74.8, 74.5, 74.0 % at powers 1, 1.5, 2, 3, and 73.0 if every
    layer keeps the same share of its score; a quarter: 41.6, 73.1, 72.3, 71.8 and 66.3 (H200, 2026-11-15).
    """
    prices = prices or prices_of(bp, of)
    rate = 10.0 ** (4 - 8 * generosity)
    one_place = min((s.sum() for s in scores.values() if s.sum() > 0), default=1.0)
    harm = {}
    for name, s in scores.items():
        gone = 1 - np.concatenate([[0.0], np.cumsum(np.sort(s)[::-1])]) / max(s.sum(), 1e-300)
        harm[name] = max(1.0, s.sum() / one_place) * np.clip(gone, 0, 1) ** power
    shares = dict.fromkeys(scores, 1.0)
    for _ in range(24):
        now = prices.of({**(left or {}), **shares})
        moved = 0.0
        for name, s in scores.items():
            bill = rate * now.get(name, 0.0) * np.arange(len(s) + 1) / max(1, len(s))
            best = max(1, int(np.argmin(harm[name] + bill))) / len(s)
            # half the way: neighbours that answer each other at once would swing for ever
            step_to = (shares[name] * best) ** 0.5
            moved = max(moved, abs(step_to - shares[name]))
            shares[name] = step_to
        if moved < 1e-3:
            break
    widths = {name: round(shares[name] * len(s)) for name, s in scores.items()}
    return {name: best_channels(bp, name, s, widths[name], least, step) for name, s in scores.items()}


def within(
    bp: Blueprint,
    make: Callable[[float], Kept],
    budget: float,
    *,
    of: str = "parameters",
    classes: list[int] | None = None,
) -> Kept:
    """The widest kept set `make(x)`, x in (0, 1], whose parameters (or macs) stay within a share of the whole."""
    full = getattr(bp.count(), of)
    extra = {CLASSES: classes} if classes is not None and bp.by_class else {}
    low, high, best = 0.0, 1.0, None
    for _ in range(24):
        middle = (low + high) / 2
        kept = make(middle)
        if getattr(bp.count({**kept, **extra}), of) <= budget * full:
            low, best = middle, kept
        else:
            high = middle
    if best is None:
        least = getattr(bp.count({**make(0.0), **extra}), of) / full
        raise RequestError(too_little(budget, of, least))
    return best


def too_little(budget: float, of: str, least: float) -> str:
    """
    >>> too_little(0.5, "parameters", 0.50321)
    'a budget of 0.5 of the parameters is less than the narrowest network needs, which is 0.504; give more.'
    """
    least = math.ceil(1000 * least) / 1000 if least > 0.001 else least  # a budget of so much is enough
    return (
        f"a budget of {budget:g} of the {of} is less than the narrowest network needs, which is {least:.3g}; give more."
    )


def best_channels(bp: Blueprint, name: str, scores: np.ndarray, count: int, least: int = 1, step: int = 1) -> list[int]:
    """The best of a space, in as many as asked for or as few more as its groups, fixed channels and `step` need."""
    size = len(scores)
    count = min(size, max(count, min(least, size), 1))
    if step > 1:
        count = min(size, -(-count // step) * step)
    fixed = set(bp.space(name).fixed)
    cells = bp.cells(name)
    if cells is not None:
        return _alike(cells, scores, fixed, -(-count // (int(cells.max()) + 1)), step)
    order = [int(k) for k in np.argsort(-scores, kind="stable") if int(k) not in fixed]
    return sorted(fixed | set(order[: max(0, count - len(fixed))]))


def _alike(cells: np.ndarray, scores: np.ndarray, fixed: set[int], each: int, step: int) -> list[int]:
    """The best of every group of a grouped layer, equally many: else it would have to become a dense one.

    >>> _alike(np.array([0, 0, 0, 1, 1, 1]), np.array([5.0, 4, 3, 1, 2, 0]), set(), 2, 1)
    [0, 1, 3, 4]
    """
    groups = int(cells.max()) + 1
    size = len(cells) // groups
    each = max(each, min(2, size), *np.bincount(cells[list(fixed)], minlength=groups).tolist())
    while each < size and each * groups % step:
        each += 1
    lifted = np.where(np.isin(np.arange(len(scores)), list(fixed)), np.inf, scores)
    order = np.argsort(-lifted, kind="stable")
    return sorted(int(k) for g in range(groups) for k in order[cells[order] == g][:each])
