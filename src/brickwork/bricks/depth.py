"""How deep a cut goes: from the last layer down to a named one (paper 2, §6.7)."""

from __future__ import annotations

from brickwork.blueprint.plan import CLASSES, Blueprint
from brickwork.errors import RequestError, UnknownName


def layers_in_order(bp: Blueprint) -> list[str]:
    """Convolutions and linear layers, from the input up."""
    return list(dict.fromkeys(s.module for s in bp.sites if s.kind in ("conv", "linear") and s.weight))


def spaces_above(bp: Blueprint, depth: str | int | None) -> list[str]:
    """The spaces that may be cut: those that no layer below the named one writes. None: all.

    A number counts layers from the input, 1 for the first; the paper cuts down to the second convolution.

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
    below = set(layers_in_order(bp)) - set(layers_from(bp, depth))
    return [n for n in hidden if not below.intersection(bp.space(n).made_by)]


def layers_from(bp: Blueprint, depth: str | int) -> list[str]:
    """The layers from a named one, or from that of a number, up to the last."""
    order = layers_in_order(bp)
    if isinstance(depth, int) or (depth.isdecimal() and depth not in order):
        if not 1 <= int(depth) <= len(order):
            raise RequestError(f"depth is {depth}; the network has layers 1 to {len(order)}.")
        return order[int(depth) - 1 :]
    if depth not in order:
        raise UnknownName("layer", depth, order)
    return order[order.index(depth) :]
