"""Parameters, multiply-adds and activation memory, read off the layouts, before or after a cut."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from brickwork.blueprint.building import regroup
from brickwork.blueprint.request import kept_indices

if TYPE_CHECKING:
    from brickwork.blueprint.plan import Blueprint, LayerSite


@dataclass(frozen=True)
class Counts:
    """What a network costs for one example."""

    parameters: int
    macs: int  # multiply-adds of convolutions, linear layers and attention
    activation_bytes: int  # everything the operations write, as a training step would keep it

    @property
    def flops(self) -> int:
        """Two for each multiply-add."""
        return 2 * self.macs

    def to_dict(self) -> dict[str, int]:
        return {**asdict(self), "flops": self.flops}


def count(bp: Blueprint, keep: Mapping[str, Any] | None = None) -> Counts:
    """Counts of the model, or of the model that `select(keep)` would give."""
    gone: set[int] = set()
    for name, ids in kept_indices(bp, keep or {}).items():
        gone |= set(np.delete(bp.space(name).units, ids).tolist())
    lost = np.zeros(len(bp.classes), bool)
    lost[list(gone)] = True
    batch = max(1, bp.graph.inputs[0].shape[0] if bp.graph.inputs[0].shape else 1)
    activations = sum(
        size if units is None else size * int((~lost[units]).sum()) // len(units) for size, units in bp.written
    )
    return Counts(_parameters(bp, lost), _macs(bp, lost, batch), activations // batch)


def _left(units: np.ndarray | None, lost: np.ndarray, full: int) -> int:
    return full if units is None else int((~lost[units]).sum())


def _groups(bp: Blueprint, site: LayerSite, lost: np.ndarray) -> int:
    """How many groups a grouped convolution has after the cut."""
    if site.reads is None or site.makes is None or not site.weight:
        return site.groups  # a kernel built in forward
    shape = bp.graph.tensors[site.weight].shape
    if shape[1] == 1:
        return _left(site.reads, lost, site.groups)
    places = [np.flatnonzero(~lost[u]) for u in (site.reads, site.makes)]
    return regroup(places[0] // shape[1], places[1] // (shape[0] // site.groups)) or 1


def _parameters(bp: Blueprint, lost: np.ndarray) -> int:
    grouped = {
        s.weight: s for s in bp.sites if s.kind == "conv" and s.groups > 1 and s.reads is not None and not s.transposed
    }
    total, seen = 0, set()
    for name in bp.parameters:
        value = bp.graph.tensors[name]
        if value.index in seen:
            continue
        seen.add(value.index)
        sizes = [
            _left(None if a is None else a.units, lost, n) for a, n in zip(bp.axes[name], value.shape, strict=True)
        ]
        if name in grouped and value.shape[1] > 1:
            site = grouped[name]
            sizes[1] = _left(site.reads, lost, 0) // _groups(bp, site, lost)
        total += math.prod(sizes)
    return total


def _macs(bp: Blueprint, lost: np.ndarray, batch: int) -> int:
    total = 0
    for site in bp.sites:
        if site.kind == "attention":
            share = (
                (1, 1)
                if site.reads is None
                else (len(np.unique(site.reads[~lost[site.reads]])), len(np.unique(site.reads)))
            )
            total += site.positions * share[0] // share[1] // batch
        if site.kind not in ("conv", "linear") or site.raw.input is None or site.raw.output is None:
            continue
        axis = 1 if site.kind == "conv" else -1
        inside = _left(site.reads, lost, site.raw.input.shape[axis])
        outside = _left(site.makes, lost, site.raw.output.shape[axis])
        groups = site.groups if site.reads is None or site.groups == 1 else _groups(bp, site, lost)
        positions = site.positions if site.kind == "conv" else site.positions // batch
        total += positions * site.kernel * (inside // max(1, groups)) * outside
    return total
