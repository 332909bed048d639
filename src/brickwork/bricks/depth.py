"""How deep a cut goes: from the last layer down to a named one (paper 2, §6.7)."""

from __future__ import annotations

from collections.abc import Mapping

from brickwork.blueprint.plan import CLASSES, Blueprint
from brickwork.errors import RequestError, UnknownName


def layers_in_order(bp: Blueprint) -> list[str]:
    """Convolutions and linear layers, from the input up."""
    return list(dict.fromkeys(s.module for s in bp.sites if s.kind in ("conv", "linear") and s.weight))


def spaces_above(bp: Blueprint, depth: str | int | None, given: Mapping[str, str] | None = None) -> list[str]:
    """The spaces that may be cut: those that no layer below the named one writes. None: all.

    A number counts layers from the input, 1 for the first; the paper cuts down to the second convolution.
    given: of each layer, that of the network given, where it was changed since; names and numbers are those.

    >>> import torch, brickwork
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    >>> bp = brickwork.trace(net, torch.zeros(1, 4))
    >>> spaces_above(bp, None), spaces_above(bp, 2), spaces_above(bp, "4")
    (['0', '2'], ['2'], [])
    """
    hidden = [name for name in bp.spaces if name != CLASSES]
    if depth is None:
        return hidden
    named = given or {layer: layer for layer in layers_in_order(bp)}
    above = _from(list(dict.fromkeys(named.values())), depth)
    below = {layer for layer, name in named.items() if name not in above}
    return [n for n in hidden if not below.intersection(bp.space(n).made_by)]


def layers_from(bp: Blueprint, depth: str | int) -> list[str]:
    """The layers from a named one, or from that of a number, up to the last."""
    return _from(layers_in_order(bp), depth)


def _from(order: list[str], depth: str | int) -> list[str]:
    if isinstance(depth, int) or (depth.isdecimal() and depth not in order):
        if not 1 <= int(depth) <= len(order):
            raise RequestError(f"depth is {depth}; the network has layers 1 to {len(order)}.")
        return order[int(depth) - 1 :]
    if depth not in order:
        raise UnknownName("layer", depth, order)
    return order[order.index(depth) :]
