"""What a channel of each space costs, so that a budget is spent where it buys most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from brickwork.blueprint.plan import Blueprint

Shares = dict[str, float]  # of one axis: which share of it runs over which space; the rest is never cut


@dataclass(frozen=True)
class Prices:
    """Sum of products: every weight (or layer) costs its size times what is left of each of its axes.

    Exact for ungrouped layers, near enough to steer by for the others; whoever needs the true cost asks the blueprint.
    """

    terms: tuple[tuple[float, tuple[Shares, ...]], ...]

    def of(self, left: Mapping[str, float]) -> dict[str, float]:
        """{space: what all its channels together cost now}, as shares of the whole network's cost.

        left: of each space the share of channels that stay; 1 where absent.
        """
        total = sum(cost for cost, _ in self.terms) or 1.0
        prices: dict[str, float] = {}
        for cost, axes in self.terms:
            rest = [1 - sum(share * (1 - left.get(name, 1.0)) for name, share in axis.items()) for axis in axes]
            for k, axis in enumerate(axes):
                others = math.prod(rest[:k] + rest[k + 1 :])
                for name, share in axis.items():
                    prices[name] = prices.get(name, 0.0) + cost * others * share / total
        return prices


def prices_of(bp: Blueprint, of: str) -> Prices:
    """Prices in "parameters" or "macs"."""
    names = list(bp.spaces)
    owner = np.full(len(bp.classes), -1)
    for k, name in enumerate(names):
        owner[np.asarray(bp.space(name).units).reshape(-1)] = k

    def shares(units: np.ndarray | None) -> Shares:
        if units is None or len(units) == 0:
            return {}
        result, count = np.unique(owner[units], return_counts=True)
        return {names[k]: float(n) / len(units) for k, n in zip(result, count, strict=True) if k >= 0}

    terms = []
    if of == "parameters":
        seen = set()
        for name in bp.parameters:
            value = bp.graph.tensors[name]
            if value.index not in seen:
                seen.add(value.index)
                axes = (shares(None if axis is None else axis.units) for axis in bp.axes[name])
                terms.append((float(math.prod(value.shape)), tuple(axes)))
    else:
        batch = max(1, bp.graph.inputs[0].shape[0] if bp.graph.inputs[0].shape else 1)
        for site in bp.sites:
            if site.kind in ("conv", "linear") and site.raw.input is not None and site.raw.output is not None:
                axis = 1 if site.kind == "conv" else -1
                inside, outside = site.raw.input.shape[axis], site.raw.output.shape[axis]
                positions = site.positions if site.kind == "conv" else site.positions // batch
                cost = float(positions * site.kernel * (inside // max(1, site.groups)) * outside)
                # a channel of a grouped layer takes its group's inputs with it
                grouped = site.groups > 1
                both = [shares(site.makes)] if grouped else [shares(site.reads), shares(site.makes)]
                terms.append((cost, tuple(both)))
    return Prices(tuple(terms))
