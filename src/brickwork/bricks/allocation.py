"""Widths under a budget: from the whole network down, always the channels that do least harm for what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from brickwork.blueprint.plan import CLASSES, Blueprint
from brickwork.bricks.prices import PriceList, prices_of
from brickwork.bricks.rebuild import Curve
from brickwork.bricks.widths import Kept, too_little
from brickwork.errors import RequestError

CHUNKS = 48  # a space goes in about so many steps


def by_damage(
    bp: Blueprint,
    curves: Mapping[str, Curve],
    budget: float,
    classes: list[int],
    *,
    prices: PriceList | None = None,
    step: int = 1,
    tilt: float = 0.0,
) -> Kept:
    """What is kept of each space when at most this share of what the prices count may stay: parameters, by default.

    One path leads from the whole network to the narrowest: at each step goes the piece of a space that does the least
    damage for what it saves at the widths of that moment. With the same tilt a larger budget stops earlier on the same path,
    so that its network contains the smaller one. tilt: damage counts more the later its space, exp(tilt) times at the last.
    """
    prices = prices or prices_of(bp, "parameters")
    settled = {CLASSES: classes} if bp.by_class else {}
    left_of_classes = {CLASSES: len(classes) / len(bp.output_units)} if settled else {}
    descents = {name: _Descent(bp, name, curve, step) for name, curve in curves.items()}
    weight = {name: math.exp(tilt * k / len(curves)) for k, name in enumerate(curves)}

    def kept() -> Kept:
        return {name: curves[name].kept(d.size, d.width) for name, d in descents.items()}

    def share() -> float:
        return prices.share(bp, {**kept(), **settled})

    last: tuple[_Descent, int] | None = None  # the space that was cut last, and its width before
    while True:
        shares = {**left_of_classes, **{name: d.width / d.size for name, d in descents.items()}}
        # the exact count takes longer than the prices' and is asked for near the end
        if prices.total(shares) <= budget + 1e-9 and share() <= budget:
            break
        cost = prices.of(shares)
        rates = {}
        for name, d in descents.items():
            if d.next is not None and cost.get(name, 0.0) > 0:
                width, harm = d.next
                rates[name] = weight[name] * harm / (cost[name] * (d.width - width) / d.size)
        if not rates:
            raise RequestError(too_little(budget, prices.what, share()))
        chosen = descents[min(rates, key=rates.__getitem__)]
        last = chosen, chosen.width
        chosen.go()
    if last is not None:  # the last step may have taken more than it had to
        chosen, before = last
        low, high = chosen.width, before
        while high - low > chosen.unit:
            chosen.width = low + max(1, (high - low) // (2 * chosen.unit)) * chosen.unit
            low, high = (chosen.width, high) if share() <= budget else (low, chosen.width)
        chosen.width = low
    return kept()


class _Descent:
    """A space on its way from all its channels to the least."""

    def __init__(self, bp: Blueprint, name: str, curve: Curve, step: int) -> None:
        self.size = self.width = bp.spaces[name]
        self.damage = curve.damage
        cells = bp.cells(name)
        groups = 1 if cells is None else int(cells.max()) + 1
        self.unit = math.lcm(step, groups)  # widths are multiples of it
        self.floor = -(-(self.size - len(curve.order)) // self.unit) * self.unit
        self.next = self._next()

    def go(self) -> None:
        assert self.next is not None
        self.width = self.next[0]
        self.next = self._next()

    def _next(self) -> tuple[int, float] | None:
        """The next width and the damage on the way there: the piece that does the least damage per channel."""
        widths = np.arange(self.floor, self.width, self.unit)
        if not len(widths):
            return None
        widths = widths[widths <= max(self.width - max(1, self.size // CHUNKS), widths[0])]
        harm = self.damage[self.size - widths] - self.damage[self.size - self.width]
        k = int(np.argmin(harm / (self.width - widths)))
        return int(widths[k]), float(harm[k])
