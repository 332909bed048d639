"""What a channel of each space costs in time: a table of layer times, measured on the device at a few widths."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from brickwork.blueprint.plan import Blueprint
from brickwork.bricks.prices import Shares, axis_shares, left_of
from brickwork.copying import copy_module
from brickwork.latency import latency
from brickwork.prediction import works_channels_last

WIDTHS = np.array([0.125, 0.25, 0.5, 0.75, 1.0])  # shares of a layer's inputs and outputs at which it is timed
PLAIN = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)  # layers that can be built in other widths; no others like them
_known: dict[tuple[object, ...], np.ndarray] = {}  # what was timed in this process, by all that a time depends on


@dataclass(frozen=True)
class TimedLayer:
    """Seconds of one layer, at WIDTHS of what it reads (rows) and of what it makes (columns)."""

    seconds: np.ndarray
    reads: Shares
    makes: Shares
    besides: float  # seconds of norms, activations and the like, all outputs there

    def at(self, reads: float, makes: float) -> float:
        """Between the widths that were timed, linear in each; narrower ones take as long as the narrowest."""
        rows = [float(np.interp(makes, WIDTHS, row)) for row in self.seconds]
        return float(np.interp(reads, WIDTHS, rows)) + self.besides * makes


@dataclass(frozen=True)
class Times:
    """Answers what `Prices` answers, in time."""

    layers: tuple[TimedLayer, ...]
    what: str = "latency"

    @cached_property
    def whole(self) -> float:
        return sum(layer.at(1.0, 1.0) for layer in self.layers) or 1.0

    def total(self, left: Mapping[str, float]) -> float:
        """Time as a share of the whole's. left: of each space the share that stays; 1 if absent."""
        return (
            sum(layer.at(left_of(layer.reads, left), left_of(layer.makes, left)) for layer in self.layers) / self.whole
        )

    def share(self, bp: Blueprint, kept: Mapping[str, list[int]]) -> float:
        return self.total({name: len(ids) / bp.spaces[name] for name, ids in kept.items()})

    def of(self, left: Mapping[str, float]) -> dict[str, float]:
        """{space: what all its channels together cost now}: on the way to the narrowest width, not to the next.

        Kernels work on tiles of channels, and a few channels less may save nothing where many save much.
        """
        prices: dict[str, float] = {}
        for layer in self.layers:
            reads, makes = left_of(layer.reads, left), left_of(layer.makes, left)
            now, low = layer.at(reads, makes), float(WIDTHS[0])
            by_axis = (layer.reads, reads, layer.at(low, makes)), (layer.makes, makes, layer.at(reads, low))
            for shares, width, narrow in by_axis:
                slope = (now - narrow) / (width - low) if width > low else 0.0
                for name, share in shares.items():
                    prices[name] = prices.get(name, 0.0) + slope * share / self.whole
        return prices


class Clock:
    """Times a network and parts of it on batches like one that is given, where they are.

    On a GPU as a recorded CUDA graph, and channels last where the network works so.
    """

    def __init__(self, model: nn.Module, bp: Blueprint, images: Tensor) -> None:
        last = images.is_cuda and images.ndim == 4 and works_channels_last(model, images[:2], bp.output)
        self.layout = torch.channels_last if last else torch.contiguous_format
        self.images = images.contiguous(memory_format=self.layout) if last else images
        self.bp, self.model = bp, model
        self.whole = self.seconds(model)

    def seconds(self, model: nn.Module) -> float:
        if self.layout == torch.channels_last:
            model = copy_module(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return _seconds(model, self.images)

    def share(self, part: nn.Module) -> float:
        """Time of a part as a share of the whole's, the better of two of each: a busy machine slows one or the other."""
        pairs = [(self.seconds(part), self.seconds(self.model)) for _ in range(2)]
        return min(mine for mine, _ in pairs) / min(whole for _, whole in pairs)

    @cached_property
    def times(self) -> Times:
        """Of all layers; what is alike is timed once in a process."""
        shares = axis_shares(self.bp)
        found: list[tuple[np.ndarray, Shares, Shares, int]] = []
        for site in self.bp.sites:
            given, made = site.raw.input, site.raw.output
            if site.kind not in ("conv", "linear") or given is None or made is None:
                continue
            module = self.model.get_submodule(site.module)
            if type(module) not in PLAIN:
                continue  # its time is among what is done besides
            depthwise = site.groups > 1 and site.groups == given.shape[1]
            rows = given.shape[0] * len(self.images) // self.bp.graph.inputs[0].shape[0]
            table = self._table(module, (rows, *given.shape[1:]), depthwise)
            found.append((table, {} if depthwise else shares(site.reads), shares(site.makes), math.prod(made.shape)))
        besides = max(0.0, self.whole - sum(float(table[-1, -1]) for table, *_ in found))
        volumes = sum(volume for *_, volume in found) or 1
        return Times(tuple(TimedLayer(t, reads, makes, besides * v / volumes) for t, reads, makes, v in found))

    def _table(self, module: nn.Module, shape: tuple[int, ...], depthwise: bool) -> np.ndarray:
        """Never less time for more channels: a clock's noise is smoothed away."""
        like = self.images
        where = torch.cuda.get_device_name(like.device) if like.is_cuda else f"{torch.get_num_threads()} threads"
        key = (repr(module), shape, like.dtype, where, self.layout)
        if key not in _known:
            axis = 1 if isinstance(module, _ConvNd) else len(shape) - 1
            table = np.zeros((len(WIDTHS), len(WIDTHS)))
            for i, reads in enumerate(WIDTHS):
                for k, makes in enumerate(WIDTHS):
                    if depthwise and i:
                        table[i] = table[0]
                        continue
                    layer, inputs = _narrow(module, makes if depthwise else reads, makes)
                    x = torch.rand(*shape[:axis], inputs, *shape[axis + 1 :], device=like.device, dtype=like.dtype)
                    layer.to(x)
                    if x.ndim == 4 and self.layout == torch.channels_last:
                        layer.to(memory_format=self.layout)  # type: ignore[call-overload]
                        x = x.contiguous(memory_format=self.layout)
                    table[i, k] = _seconds(layer, x)
            _known[key] = np.maximum.accumulate(np.maximum.accumulate(table, 0), 1)
        return _known[key]


def _narrow(module: nn.Module, reads: float, makes: float) -> tuple[nn.Module, int]:
    """A layer like this one with these shares of its inputs and outputs, and how many inputs those are."""
    if isinstance(module, _ConvNd):
        groups = module.groups
        alone = groups > 1 and groups == module.in_channels
        unit = 1 if alone else groups
        inputs = max(1, round(module.in_channels * reads / unit)) * unit
        outputs = max(1, round(module.out_channels * makes / unit)) * unit
        if alone:
            outputs, groups = inputs * (module.out_channels // module.in_channels), inputs
        rest = module.kernel_size, module.stride, module.padding, module.dilation, groups, module.bias is not None
        kind: Any = type(module)
        return kind(inputs, outputs, *rest).eval(), inputs
    assert isinstance(module, nn.Linear)
    inputs = max(1, round(module.in_features * reads))
    return nn.Linear(inputs, max(1, round(module.out_features * makes)), module.bias is not None).eval(), inputs


def _seconds(model: nn.Module, batch: Tensor) -> float:
    return latency(model, batch, repeat=9, warm_up=2, record=batch.is_cuda)
