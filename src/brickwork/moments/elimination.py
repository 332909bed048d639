"""Which channels can be rebuilt from the others: backward elimination by least squares.

A layer answers x·W. Without the inputs c of one channel its other weights can make good for part of what c gave; what is
left is tr(W_cᵀ (P_cc)⁻¹ W_c), P the inverse covariance of the inputs (Hassibi and Stork's optimal brain surgeon, for
blocks of inputs). The cheapest channel goes, W and P are those of the inputs that are left, and so on: one pass gives the
order in which channels go and the error at every width. A channel that several layers read costs what all of them lose.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

STEPS = 96  # a wide space goes in about this many steps, several channels at a time, a narrow one channel by channel
DENSE = 0.8  # the share of rows that are still there below which the others are taken out of the tables


@dataclass(frozen=True)
class Reader:
    """A layer that reads channels: its weight (d, m), the covariance (d, d) of its inputs, and where channels lie in them.

    importance: (m,) what a squared error of each output counts.
    channels: for every input the number of the channel it belongs to; -1: of none that may go.
    """

    weight: Tensor
    covariance: Tensor
    importance: Tensor
    channels: np.ndarray


@dataclass(frozen=True)
class Elimination:
    """order: channels in the order in which they go; errors[k]: the error once k of them are gone."""

    order: tuple[int, ...]
    errors: np.ndarray
    weights: dict[int, tuple[Tensor, ...]]  # {number of channels gone: the readers' weights that make good for them}


def eliminate(
    readers: Sequence[Reader],
    size: int,
    *,
    fixed: Collection[int] = (),
    cells: np.ndarray | None = None,
    keep_weights: Collection[int] = (),
) -> Elimination:
    """The order in which the channels 0 … size - 1 go, all but one of them (of each cell) and the fixed ones.

    cells: the group of each channel, where as many of every group must stay: they go together, one of each.
    keep_weights: after so many channels are gone (or the first step beyond), the readers' weights are kept.

    >>> weight, covariance = torch.ones(3, 1, dtype=torch.float64), torch.diag(torch.tensor([3.0, 1.0, 2.0]).double())
    >>> gone = eliminate([Reader(weight, covariance, torch.ones(1), np.arange(3))], 3)
    >>> gone.order, gone.errors.round(6).tolist()
    ((1, 2), [0.0, 1.0, 3.0])
    """
    states = [_State(reader) for reader in readers]
    alive = np.ones(size, bool)
    alive[list(fixed)] = False  # never a candidate
    order: list[int] = []
    errors = [0.0]
    kept: dict[int, tuple[Tensor, ...]] = {}
    wanted = sorted(keep_weights)
    groups = 1 if cells is None else int(cells.max()) + 1
    at_once = 1 if cells is not None else max(1, size // STEPS)
    least = 0 if fixed else 1
    while alive.sum() > least * groups:
        cost = sum((state.cost(size) for state in states), np.zeros(size))
        cost[~alive] = np.inf
        if cells is None:
            going = np.argsort(cost, kind="stable")[: min(at_once, int(alive.sum()) - least)]
        else:
            going = np.array([int(np.where(cells == g, cost, np.inf).argmin()) for g in range(groups)])
            if not np.isfinite(cost[going]).all():
                break
        lost = sum(state.remove(going) for state in states)
        alive[going] = False
        share = np.maximum(cost[going], 0)
        share = share / share.sum() if share.sum() > 0 else np.full(len(going), 1 / len(going))
        errors += list(errors[-1] + np.cumsum(share) * lost)
        order += going.tolist()
        while wanted and len(order) >= wanted[0]:
            wanted.pop(0)
            kept[len(order)] = tuple(state.full_weight() for state in states)
    return Elimination(tuple(order), np.array(errors), kept)


class _State:
    """One reader while channels go: weight and inverse covariance of the inputs that may go and have not yet.

    What never goes changes with them and changes nothing for them, so it is looked at again only where weights are wanted:
    a layer behind a concat reads a thousand channels, of which a space has thirty. What is gone stays in the tables as zeros
    and is taken out now and then: to copy them at every step takes longer than to change them.
    """

    def __init__(self, reader: Reader) -> None:
        weight, channels = reader.weight.double(), np.asarray(reader.channels)
        read, others = np.flatnonzero(channels >= 0), np.flatnonzero(channels < 0)
        columns = _inverse(reader.covariance.double(), read)
        self.own, self.start = (
            t[torch.from_numpy(read).to(t.device)] for t in (weight, columns)
        )  # as they were at first
        self.stay, self.beside = (t[torch.from_numpy(others).to(t.device)] for t in (weight, columns))
        self.weight, self.inverse = self.own.clone(), self.start.clone() if len(others) else self.start
        self.importance = reader.importance.to(self.weight)
        self.channels = channels[read]  # of each row; -1: it is gone
        self.left = np.arange(len(read))  # which of the rows of `own` the rows are
        self.read, self.others = read, others

    def cost(self, size: int) -> np.ndarray:
        """What each channel costs; 0 for those that are not read here."""
        result = np.zeros(size)
        rows = np.argsort(self.channels, kind="stable")[np.count_nonzero(self.channels < 0) :]
        names, starts, counts = np.unique(self.channels[rows], return_index=True, return_counts=True)
        for width in np.unique(counts):  # all channels have as many inputs, but where one is read twice
            which = np.flatnonzero(counts == width)
            index = torch.from_numpy(rows[starts[which][:, None] + np.arange(width)]).to(self.weight.device)
            blocks = self.inverse[index[:, :, None], index[:, None, :]]
            own = self.weight[index]
            if width == 1:
                costs = (own.square()[:, 0] @ self.importance) / blocks[:, 0, 0]
            else:
                solved = torch.linalg.solve(blocks, own)
                costs = ((own * solved).sum(1) * self.importance).sum(1)
            result[names[which]] = costs.cpu().numpy()
        return result

    def remove(self, going: np.ndarray) -> float:
        """Take these channels out; the error that remains."""
        out = np.isin(self.channels, going)
        if not out.any():
            return 0.0
        rows = torch.from_numpy(np.flatnonzero(out)).to(self.weight.device)
        beside, own = self.inverse[:, rows], self.weight[rows]
        solved = torch.linalg.solve(beside[rows], torch.cat([own, beside.mT], 1))
        lost = float(((own * solved[:, : own.shape[1]]).sum(0) * self.importance).sum())
        self.weight.addmm_(beside, solved[:, : own.shape[1]], alpha=-1)
        self.inverse.addmm_(beside, solved[:, own.shape[1] :], alpha=-1)
        for table in (self.weight, self.inverse, self.inverse.mT):  # zeros but for rounding
            table[rows] = 0
        self.channels = np.where(out, -1, self.channels)
        if np.count_nonzero(self.channels >= 0) < DENSE * len(self.channels):
            self._compact()
        return max(0.0, lost)

    def _compact(self) -> None:
        there = self.channels >= 0
        rows = torch.from_numpy(np.flatnonzero(there)).to(self.weight.device)
        self.weight, self.inverse = self.weight[rows], self.inverse[rows][:, rows]
        self.left, self.channels = self.left[there], self.channels[there]

    def full_weight(self) -> Tensor:
        """The weight at its full size, zero where inputs are gone."""
        there = self.channels >= 0
        full = self.weight.new_zeros(len(self.read) + len(self.others), self.weight.shape[1])
        full[torch.from_numpy(self.read[self.left]).to(full.device)] = self.weight
        if len(self.others):
            gone = torch.from_numpy(np.setdiff1d(np.arange(len(self.read)), self.left[there])).to(full.device)
            made_good = self.beside[:, gone] @ torch.linalg.solve(self.start[gone][:, gone], self.own[gone])
            full[torch.from_numpy(self.others).to(full.device)] = self.stay - made_good
        return full


def _inverse(covariance: Tensor, columns: np.ndarray) -> Tensor:
    """Columns of the inverse; directions in which inputs do not vary but for rounding count as if they varied a little."""
    index = torch.from_numpy(columns).to(covariance.device)
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if not bool(failed):
        if len(columns) == len(covariance):
            return torch.cholesky_inverse(factor)
        return torch.cholesky_solve(
            torch.eye(len(covariance), dtype=factor.dtype, device=factor.device)[:, index], factor
        )
    values, vectors = torch.linalg.eigh(covariance)
    return vectors @ ((1 / values.clamp(min=1e-6 * float(values.max()) + 1e-12)).unsqueeze(-1) * vectors[index].mT)
