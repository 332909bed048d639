"""Matching of channels (Ainsworth et al. 2022, arxiv.org/abs/2209.04836) on the blueprint's channel spaces.

Two networks of one architecture compute alike up to the order of their channels. The order of one is found
that brings its weights closest to the other's. Spaces are settled from the input up, each by what is settled
already, and then refined in turns until nothing moves. Where it is known otherwise how alike channels are (by
what they answer, say), every space is settled by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linear_sum_assignment
from torch import nn

from brickwork.blueprint.building import locate
from brickwork.blueprint.plan import CLASSES
from brickwork.blueprint.request import check_model

if TYPE_CHECKING:
    from brickwork.blueprint.plan import Blueprint

NEVER = 1e30  # more than any gain
ROUNDS = 50  # over all spaces, at most; it ends when none moves


def align(
    bp: Blueprint, model: nn.Module, other: nn.Module, likeness: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """For every space the order of `other`'s channels that matches `model`; `bp.permute(other, order)` applies it.

    likeness: of every space, how much each channel of `model` (rows) is like each of `other` (columns); a space that is
    missing keeps its order. Without: by the weights.

    >>> import torch, brickwork
    >>> net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    >>> bp = brickwork.trace(net, torch.zeros(1, 4))
    >>> turned = bp.permute(net, {"0": [5, 3, 1, 0, 2, 4]})
    >>> align(bp, net, turned)["0"].tolist()
    [3, 2, 4, 1, 5, 0]
    """
    check_model(bp, model)
    check_model(bp, other)
    if likeness is None:
        return _Matcher(bp, model, other).run()
    return {name: best_order(bp, name, gain) for name, gain in likeness.items() if name != CLASSES}


def best_order(bp: Blueprint, space: str, gain: np.ndarray) -> np.ndarray:
    """The order of a space's channels with the largest sum of gains, of those that `permute` allows."""
    gain = allowed_pairs(bp, space, gain)
    return linear_sum_assignment(gain, maximize=True)[1]


def allowed_pairs(bp: Blueprint, space: str, gain: np.ndarray) -> np.ndarray:
    """The gain of pairs of channels that may change places; far below all others where they may not."""
    kinds = bp.kinds(space, groups=True)
    gain = np.where(kinds[:, None] == kinds[None, :], gain, -NEVER)  # nor do channels of different layers or groups
    fixed = list(bp.space(space).fixed)
    if fixed:
        gain[fixed, :] = gain[:, fixed] = -NEVER
        gain[fixed, fixed] = NEVER
    return gain


class _Matcher:
    def __init__(self, bp: Blueprint, model: nn.Module, other: nn.Module) -> None:
        self.bp = bp
        self.mine, self.theirs = (_arrays(m) for m in (model, other))
        self.axes = {
            n: [None if a is None else a.units for a in axes]
            for n, axes in bp.axes.items()
            if n in self.mine and self.mine[n].ndim and any(axes)
        }
        for site in bp.sites:  # a grouped kernel is matched as the dense one it stands for
            if site.kind == "conv" and site.groups > 1 and site.weight in self.axes and site.reads is not None:
                shape = self.mine[site.weight].shape
                if shape[1] > 1 and not site.transposed and shape[0] % site.groups == 0:
                    self.mine[site.weight] = _dense(self.mine[site.weight], site.groups)
                    self.theirs[site.weight] = _dense(self.theirs[site.weight], site.groups)
                    self.axes[site.weight] = [site.makes, site.reads, *[None] * (len(shape) - 2)]
        self.order = {name: np.arange(size) for name, size in bp.spaces.items()}
        self.names = list(bp.spaces)
        self.owner = np.full(len(bp.classes), -1)  # unit -> number of its space
        self.place = np.full(len(bp.classes), -1)  # unit -> its index there
        for k, name in enumerate(self.names):
            self.owner[bp.space(name).units] = k
            self.place[bp.space(name).units] = np.arange(bp.spaces[name])
        self._known_spaces: dict[bytes, set[str]] = {}
        self.free = [n for n in bp.spaces if n != CLASSES]
        self.uses: dict[str, list[tuple[str, int]]] = {n: [] for n in bp.spaces}
        for name, axes in self.axes.items():
            for dim, units in enumerate(axes):
                for space in self._spaces(units) if units is not None else ():
                    self.uses[space].append((name, dim))

    def _spaces(self, units: np.ndarray) -> set[str]:
        key = units.tobytes()
        if key not in self._known_spaces:
            result = np.unique(self.owner[units])
            self._known_spaces[key] = {self.names[k] for k in result if k >= 0}
        return self._known_spaces[key]

    def run(self) -> dict[str, np.ndarray]:
        settled = {n for n in self.bp.spaces if n not in self.free}
        for space in self.free:  # first time through: only by what is settled
            self._match(space, settled)
            settled.add(space)
        for _ in range(ROUNDS):
            moved = [self._match(space, settled) for space in self.free]  # all of them, not only up to the first
            if not any(moved):
                break
        return {n: self.order[n] for n in self.free}

    def _match(self, space: str, settled: set[str]) -> bool:
        size = self.bp.spaces[space]
        gain = np.zeros((size, size))
        for name, dim in self.uses[space]:
            if self._known(name, dim, settled):
                a, b = (
                    self._rows(self.mine[name], name, dim, space),
                    self._rows(self._turned(name, dim), name, dim, space),
                )
                gain += a @ b.T
        gain = allowed_pairs(self.bp, space, gain)
        order = linear_sum_assignment(gain, maximize=True)[1]
        before = gain[np.arange(size), self.order[space]].sum()
        if gain[np.arange(size), order].sum() <= before + 1e-12 * max(1.0, abs(before)):
            return False
        self.order[space] = order
        return True

    def _known(self, name: str, dim: int, settled: set[str]) -> bool:
        others = (units for k, units in enumerate(self.axes[name]) if k != dim and units is not None)
        return all(self._spaces(units) <= settled for units in others)

    def _turned(self, name: str, dim: int) -> np.ndarray:
        """The other network's tensor with every axis but one in the order found so far."""
        array = self.theirs[name]
        for other, units in enumerate(self.axes[name]):
            if other != dim and units is not None:
                array = np.take(array, locate(units, self._moved(units)), axis=other)
        return array

    def _moved(self, units: np.ndarray) -> np.ndarray:
        result = units.copy()
        for name in self._spaces(units):
            mine = self.owner[units] == self.names.index(name)
            result[mine] = self.bp.space(name).units[self.order[name][self.place[units[mine]]]]
        return result

    def _rows(self, array: np.ndarray, name: str, dim: int, space: str) -> np.ndarray:
        """One row a unit of the space: everything the tensor holds for it."""
        axis = self.axes[name][dim]
        assert axis is not None
        array = np.moveaxis(array, dim, 0).reshape(array.shape[dim], -1)
        places = np.flatnonzero(self.owner[axis] == self.names.index(space))
        index = self.place[axis[places]]
        order = np.argsort(index, kind="stable")
        places, index = places[order], index[order]
        counts = np.bincount(index, minlength=self.bp.spaces[space])
        rank = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.zeros((len(counts), counts.max(), array.shape[1]))
        rows[index, rank] = array[places]
        return rows.reshape(len(counts), -1)


def _arrays(model: nn.Module) -> dict[str, np.ndarray]:
    return {k: v.detach().cpu().double().numpy() for k, v in model.state_dict().items()}


def _dense(weight: np.ndarray, groups: int) -> np.ndarray:
    outputs, inputs = weight.shape[0] // groups, weight.shape[1]
    full = np.zeros((weight.shape[0], inputs * groups, *weight.shape[2:]))
    for g in range(groups):
        rows = slice(g * outputs, (g + 1) * outputs)
        full[rows, g * inputs : (g + 1) * inputs] = weight[rows]
    return full
