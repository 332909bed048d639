"""Cuts that a library's configuration can express: one number for every family of layers, and the library's own network."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from brickwork import zoo
from brickwork.blueprint.computed_weights import plain_layers
from brickwork.blueprint.norms import SparseLayerNorm
from brickwork.blueprint.plan import CLASSES, Blueprint
from brickwork.bricks.options import DisassembleOptions
from brickwork.bricks.prices import prices_of
from brickwork.bricks.rebuild import Curve
from brickwork.bricks.subject import Subject
from brickwork.bricks.widths import Kept, best_channels
from brickwork.copying import copy_module
from brickwork.errors import BadModel, BrickworkError, RequestError
from brickwork.origin import attach, origin_of
from brickwork.store.valueless import shapes_of
from brickwork.store.weights import put_state
from brickwork.zoo.configured import ConfiguredWidths, Values, configured_widths

STEPS = 24  # a number goes from where it stands to nothing in so many steps
SAME = 1e-4  # of the largest logit: the library's network adds in another order


class UniformWidths:
    """The widths of a network's spaces under other numbers of its configuration, seen by building it without values."""

    def __init__(self, model: nn.Module, bp: Blueprint, classes: int) -> None:
        origin = origin_of(model)
        if origin.arch is None or zoo.needs_import(origin.arch) or ":" not in origin.arch:
            what = origin.arch or type(model).__name__
            raise RequestError(
                f"`uniform` is for networks of timm, torchvision and transformers that were built by name or imported, and this "
                f"is {what}; leave it out."
            )
        if plain_layers(model):
            raise RequestError(
                f"`uniform` keeps the layers that {origin.arch} builds, which compute their weights ({plain_layers(model)[0]}, "
                "for one), and those of a cut network are plain; leave it out."
            )
        if origin.steps or origin.parts:
            raise RequestError(
                f"`uniform` needs a network as {origin.arch} builds it, and this one was cut or joined before; give the whole."
            )
        self.bp, self.arch, self.args, self.classes = bp, origin.arch, dict(origin.args), classes
        self.configured: ConfiguredWidths = configured_widths(model, origin.arch)
        self._known: dict[tuple[int, ...], dict[str, int] | None] = {}
        self._axes, self._names = _axes_of(bp), set(model.state_dict())
        if self.of(self.configured.numbers) != {name: bp.spaces[name] for name in self._axes}:
            raise RequestError(f"`uniform`: {origin.arch} with its own numbers is not this network; leave it out.")

    def arguments(self, values: Values) -> dict[str, Any]:
        """What `zoo.build` takes for the network with these numbers and the classes that stay."""
        own = {k: v for k, v in self.args.items() if k not in ("num_classes", "num_labels")}
        return {**own, **self.configured.arguments(values), "num_classes": self.classes}

    def of(self, values: Values) -> dict[str, int] | None:
        """{space: width}; None where the numbers give other layers, or a wider one, or none at all."""
        key = tuple(values[name] for name in self.configured.numbers)
        if key not in self._known:
            self._known[key] = self._built(values)
        return self._known[key]

    def _built(self, values: Values) -> dict[str, int] | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of numbers so small that nothing is left of a layer
                shapes = shapes_of(self.arch, self.arguments(values))
        except BrickworkError:
            return None
        if set(shapes) != self._names:
            return None
        widths = {}
        for name, places in self._axes.items():
            seen = {shapes[tensor][axis] / times for tensor, axis, times in places}
            if len(seen) != 1 or (width := seen.pop()) != int(width) or not 1 <= width <= self.bp.spaces[name]:
                return None
            widths[name] = int(width)
        return widths

    def network(self, part: nn.Module, values: Values, example: torch.Tensor) -> nn.Module:
        """The library's own network with the cut one's weights; it must answer the same.

        A cut LayerNorm counts the channels that are gone as zeros, which no library does; here it does so no more, and
        the repair makes good for it.
        """
        plain = _plain_norms(part)
        model = zoo.build(self.arch, **self.arguments(values))
        state = {n: v for n, v in plain.state_dict().items() if not n.endswith(".present")}
        put_state(model.to(next(part.parameters())), state)
        attach(model, replace(origin_of(part), args=origin_of(model).args, steps=()))
        with torch.no_grad():
            here, there = plain(example), model(example)
        if not float((here - there).abs().max()) <= SAME * max(1.0, float(here.abs().max())):
            raise BadModel(f"`uniform`: {self.arch} with the cut weights answers otherwise; leave it out.")
        return model.eval()


def _plain_norms(part: nn.Module) -> nn.Module:
    """A copy in which a LayerNorm looks at the channels that are there alone."""
    part = copy_module(part)
    for module in part.modules():
        if isinstance(module, SparseLayerNorm):
            module.full = len(module.weight)
    return part


def _axes_of(bp: Blueprint) -> dict[str, list[tuple[str, int, int]]]:
    """{space: the axes that run over it alone, and how often}."""
    found: dict[str, list[tuple[str, int, int]]] = {name: [] for name in bp.spaces if name != CLASSES}
    for tensor, layouts in bp.axes.items():
        for axis, layout in enumerate(layouts):
            owners = [] if layout is None else list(bp.places(layout.units))
            if layout is not None and len(owners) == 1 and owners[0][0] in found:
                name, mine, indices = owners[0]
                if len(mine) == len(layout) and len(set(indices.tolist())) == bp.spaces[name]:
                    found[name].append((tensor, axis, len(layout) // bp.spaces[name]))
    return {name: places for name, places in found.items() if places}


@dataclass(frozen=True)
class ByConfiguration:
    """The channels that the others could not make good for, as many in every layer as a configuration says."""

    subject: Subject
    curves: Mapping[str, Curve]
    options: DisassembleOptions
    widths: UniformWidths
    images: int
    settled: dict[tuple[int, ...], dict[str, int]] = field(default_factory=dict)  # the numbers of what was kept

    @property
    def spaces(self) -> Collection[str]:
        return self.curves

    def within(self, spaces: Collection[str]) -> ByConfiguration:
        """A space that must stay whole leaves no uniform cut."""
        return replace(self, curves={})

    def network(self, part: nn.Module, kept: Kept) -> nn.Module:
        """The library's own network for a part of which `kept` gave the channels; with none, the whole one."""
        values = self.settled.get(self._key(kept), self.widths.configured.numbers)
        return self.widths.network(part, values, self.subject.samples.inputs(self.subject.samples.use[:4]))

    def kept(self, budget: float | None) -> Kept:
        budget = self.options.budget if budget is None else budget
        if budget is not None:
            values = self._within(budget)
        else:
            assert self.options.keep is not None
            values = self._scaled(self.options.keep)
        kept = self._kept(values)
        self.settled[self._key(kept)] = dict(values)
        return kept

    def _scaled(self, share: float) -> dict[str, int]:
        values = dict(self.widths.configured.numbers)
        for name, full in self.widths.configured.numbers.items():
            for value in range(max(1, round(share * full)), full + 1):
                if self._allowed({**values, name: value}) is not None:
                    values[name] = value
                    break
        return values

    def _within(self, budget: float) -> dict[str, int]:
        """From the whole down: always the number that does the least damage for what it saves, then up where there is room."""
        bp, prices = self.subject.bp, prices_of(self.subject.bp, self.options.of)
        full = self.widths.configured.numbers
        settled = {CLASSES: self.subject.wanted} if bp.by_class else {}

        def share(values: Values) -> float:
            return prices.share(bp, {**self._kept(values), **settled})

        values, cost = dict(full), share(full)
        while cost > budget:
            rates, steps = {}, {}
            for name in full:
                steps[name], less = self._lower(values, name, share, cost)
                if less < cost:
                    harm = self._damage(self._kept({**values, name: steps[name]})) - self._damage(self._kept(values))
                    rates[name] = max(harm, 0.0) / (cost - less), less
            if not rates:
                raise RequestError(
                    f"a budget of {budget:g} of the {self.options.of} is less than the narrowest configuration needs, which is "
                    f"{cost:.2g}; give more."
                )
            chosen = min(rates, key=lambda name: rates[name][0])
            values[chosen], cost = steps[chosen], rates[chosen][1]
        return self._widened(values, lambda wider: share(wider) <= budget)

    def _widened(self, values: dict[str, int], fits: Callable[[Values], bool]) -> dict[str, int]:
        """Numbers like that of heads go in large steps: what those leave of the budget goes to the numbers it helps most."""
        while True:
            wider = {name: best for name in values if (best := self._widest(values, name, fits)) > values[name]}
            if not wider:
                return values
            harm = {name: self._damage(self._kept({**values, name: value})) for name, value in wider.items()}
            chosen = min(harm, key=harm.__getitem__)
            values = {**values, chosen: wider[chosen]}

    def _widest(self, values: Values, name: str, fits: Callable[[Values], bool]) -> int:
        """The largest value of a number, by halves, that is allowed and fits."""
        low, high = values[name], self.widths.configured.numbers[name] + 1
        while high - low > 1:
            middle = (low + high) // 2
            tried = {**values, name: middle}
            low, high = (middle, high) if self._allowed(tried) is not None and fits(tried) else (low, middle)
        return low

    def _lower(self, values: Values, name: str, share: Callable[[Values], float], cost: float) -> tuple[int, float]:
        """The next number below that saves something, a step away at the least, and the share it leaves; else as it is."""
        step = max(1, self.widths.configured.numbers[name] // STEPS)
        for value in range(values[name] - step, 0, -1):  # widths may be rounded, and stay for a while
            lower = {**values, name: value}
            if self._allowed(lower) is not None and (less := share(lower)) < cost:
                return value, less
        return values[name], cost

    def _allowed(self, values: Values) -> Kept | None:
        """What is kept under these numbers, where every space can be that narrow."""
        widths, bp = self.widths.of(values), self.subject.bp
        if widths is None:
            return None
        kept = {}
        for name, width in widths.items():
            if name in self.curves:
                kept[name] = best_channels(bp, name, self.curves[name].rank(bp.spaces[name]), width)
            if len(kept.get(name, range(bp.spaces[name]))) != width:  # groups and fixed channels may need more
                return None
        return kept

    def _damage(self, kept: Kept) -> float:
        spaces = self.subject.bp.spaces
        return sum(float(self.curves[name].damage[spaces[name] - len(ids)]) for name, ids in kept.items())

    def _kept(self, values: Values) -> Kept:
        kept = self._allowed(values)
        if kept is None:
            raise RequestError(f"`uniform`: {self.widths.arch} cannot be built with {dict(values)}.")
        return kept

    def _key(self, kept: Kept) -> tuple[int, ...]:
        return tuple(len(kept[name]) for name in self.curves if name in kept)
