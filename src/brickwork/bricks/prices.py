"""What a channel of each space costs, so that a budget is spent where it buys most."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from brickwork.blueprint.plan import Blueprint

Shares = dict[str, float]  # of one axis: which share of it runs over which space; the rest is never cut


class PriceList(Protocol):
    """What channels cost, in whatever a budget counts."""

    @property
    def what(self) -> str: ...
    def total(self, left: Mapping[str, float]) -> float: ...
    def of(self, left: Mapping[str, float]) -> dict[str, float]: ...
    def share(self, bp: Blueprint, kept: Mapping[str, list[int]]) -> float: ...


@dataclass(frozen=True)
class Prices:
    """Sum of products: every weight (or layer) costs its size times what is left of each of its axes.

    Exact for ungrouped layers, near enough to steer by for the others; whoever needs the true cost asks the blueprint.
    """

    terms: tuple[tuple[float, tuple[Shares, ...]], ...]
    what: str = "parameters"

    @cached_property
    def _tables(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Names of the spaces, the terms' costs, and shares (axis, term, space)."""
        names = sorted({name for _, axes in self.terms for axis in axes for name in axis})
        number = {name: k for k, name in enumerate(names)}
        shares = np.zeros((max((len(axes) for _, axes in self.terms), default=0), len(self.terms), len(names)))
        for t, (_, axes) in enumerate(self.terms):
            for k, axis in enumerate(axes):
                for name, share in axis.items():
                    shares[k, t, number[name]] = share
        return names, np.array([cost for cost, _ in self.terms]), shares

    def _rest(self, left: Mapping[str, float]) -> np.ndarray:
        """What is left of each axis of each term."""
        names, _, shares = self._tables
        return 1 - shares @ np.array([1 - left.get(name, 1.0) for name in names])

    def total(self, left: Mapping[str, float]) -> float:
        """The cost of the network, as a share of the whole's. left: of each space the share that stays; 1 if absent."""
        cost = self._tables[1]
        return float(cost @ self._rest(left).prod(0)) / (float(cost.sum()) or 1.0)

    def share(self, bp: Blueprint, kept: Mapping[str, list[int]]) -> float:
        """The true cost of what is kept, as a share of the whole's."""
        return float(getattr(bp.count(dict(kept)), self.what) / getattr(bp.count(), self.what))

    def of(self, left: Mapping[str, float]) -> dict[str, float]:
        """{space: what all its channels together cost now}, as shares of the whole network's cost."""
        names, cost, shares = self._tables
        rest = self._rest(left)
        prices = np.zeros(len(names))
        for k in range(len(rest)):
            prices += (cost * np.delete(rest, k, 0).prod(0)) @ shares[k]
        return dict(zip(names, (prices / (cost.sum() or 1.0)).tolist(), strict=True))


def left_of(axis: Shares, left: Mapping[str, float]) -> float:
    """What is left of an axis."""
    return 1 - sum(share * (1 - left.get(name, 1.0)) for name, share in axis.items())


def axis_shares(bp: Blueprint) -> Callable[[np.ndarray | None], Shares]:
    """Tells of the channels along an axis which share of them is of which space."""
    names = list(bp.spaces)
    owner = np.full(len(bp.classes), -1)
    for k, name in enumerate(names):
        owner[np.asarray(bp.space(name).units).reshape(-1)] = k

    def shares(units: np.ndarray | None) -> Shares:
        if units is None or len(units) == 0:
            return {}
        result, count = np.unique(owner[units], return_counts=True)
        return {names[k]: float(n) / len(units) for k, n in zip(result, count, strict=True) if k >= 0}

    return shares


def prices_of(bp: Blueprint, of: str) -> Prices:
    """Prices in "parameters" or "macs"."""
    shares = axis_shares(bp)
    terms = []
    if of == "parameters":
        seen = set()
        grouped = {s.weight: s for s in bp.sites if s.kind == "conv" and s.groups > 1 and not s.transposed}
        for name in bp.parameters:
            value = bp.graph.tensors[name]
            if value.index not in seen:
                seen.add(value.index)
                axes = [shares(None if axis is None else axis.units) for axis in bp.axes[name]]
                site = grouped.get(name)
                if site is not None and value.shape[1] > 1:  # every group loses its share of the inputs
                    axes[1] = shares(site.reads)
                terms.append((float(math.prod(value.shape)), tuple(axes)))
    else:
        batch = max(1, bp.graph.inputs[0].shape[0] if bp.graph.inputs[0].shape else 1)
        for site in bp.sites:
            if site.kind == "attention" and site.reads is not None:
                terms.append((float(site.positions // batch), (shares(site.reads),)))
            if site.kind in ("conv", "linear") and site.raw.input is not None and site.raw.output is not None:
                axis = 1 if site.kind == "conv" else -1
                inside, outside = site.raw.input.shape[axis], site.raw.output.shape[axis]
                positions = site.positions if site.kind == "conv" else site.positions // batch
                cost = float(positions * site.kernel * (inside // max(1, site.groups)) * outside)
                # a depthwise layer has one input for every output
                alone = site.groups > 1 and site.groups == inside
                both = [shares(site.makes)] if alone else [shares(site.reads), shares(site.makes)]
                terms.append((cost, tuple(both)))
    return Prices(tuple(terms), of)
