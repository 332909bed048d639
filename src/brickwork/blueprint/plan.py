"""The blueprint: which channel space every axis of every parameter and buffer runs over, and in which order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import nn

from brickwork.blueprint import rules_mix, rules_move, rules_reduce  # noqa: F401  (registers the rules)
from brickwork.blueprint.labels import Units, align, varies
from brickwork.blueprint.record import Graph, Value, is_view, record
from brickwork.blueprint.walk import Site, Walk
from brickwork.copying import collector_paused
from brickwork.errors import BadModel, UnknownName

if TYPE_CHECKING:
    from brickwork.blueprint.count import Counts

CLASSES = "classes"  #: the space of the model's output


@dataclass(frozen=True)
class Layout:
    """What one axis runs over: a unit for each place, 0 where there is none."""

    units: np.ndarray
    text: str

    def __str__(self) -> str:
        return self.text

    def __len__(self) -> int:
        return len(self.units)


@dataclass
class Space:
    """A set of channels that are cut together: who makes them, who reads them, which must stay and why."""

    name: str
    units: np.ndarray  # ids, in the order of the space's indices
    made_by: list[str] = field(default_factory=list)
    read_by: list[str] = field(default_factory=list)
    fixed: dict[int, str] = field(default_factory=dict)  # index -> why it cannot be removed

    @property
    def size(self) -> int:
        return len(self.units)


@dataclass
class LayerSite:
    """A use of parameters with its channels as unit ids: what surgery, counting and matching read."""

    kind: str
    module: str
    weight: str | None
    bias: str | None
    reads: np.ndarray | None
    makes: np.ndarray | None
    groups: int
    transposed: bool
    positions: int
    kernel: int
    raw: Site

    @property
    def called(self) -> str:
        """What a message calls it; of a kernel that is computed in the forward of the network itself there is no name."""
        return self.module or self.weight or "a layer of the top module"


class Blueprint:
    """Channel spaces of a traced model. Made by `brickwork.trace`.

    >>> import torch, brickwork
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5))
    >>> bp = brickwork.trace(model, torch.zeros(1, 3, 4, 4))
    >>> bp.spaces
    {'0': 8, 'classes': 5}
    >>> [str(axis) for axis in bp.axes["4.weight"]]
    ['classes', '0 × 4']
    >>> small = bp.select(model, {"0": [0, 2, 5], "classes": [1, 4]})
    >>> small(torch.zeros(1, 3, 4, 4)).shape
    torch.Size([1, 2])
    """

    def __init__(self, graph: Graph, walk: Walk, example: Any, output: str | int | None, parameters: set[str]) -> None:
        self.graph, self.example, self.output = graph, example, output
        self.walk = walk
        units = walk.units
        self.classes = units.classes()  # id -> unit
        self._fixed = units.reasons(self.classes)
        self.sites = [self._site(s) for s in walk.sites]
        self.raw_segments = [s.numpy() for s in walk.segments]  # ids that a split takes out of a layer's output
        self.mixes = list(dict.fromkeys(walk.mixes))
        self.heads = [self._units(table) for table in units.heads]  # (heads, dimensions) of open attentions
        plane = walk.of(graph.output).plane
        self.output_units = np.zeros(0, np.int64) if plane is None else self._units(plane.reshape(-1))
        dims = varies(align(plane, len(graph.output.shape))) if plane is not None else set()
        self.output_dim = next(iter(dims)) if len(dims) == 1 else None
        raw = {n: [None if a is None else self._units(a) for a in axes] for n, axes in walk.axes.items()}
        self.written = self._written(walk)  # (bytes, units or None) of everything the operations write
        self.parameters = [n for n in graph.tensors if n in parameters]
        self.gathers = {name: (self._units(a), self._units(b)) for name, a, b in walk.gathers}
        self.channel_dims = self._channel_dims(walk)  # module -> the axis of its (first) input that holds channels
        self.ids = walk.axes  # labels before uniting: every place of an axis has its own
        self._plain = {u for u, f in self._fixed.items() if not f.channel}
        self._spaces = self._find_spaces(raw)
        self._names = list(self._spaces)
        self._cells: dict[str, np.ndarray | None] = {}
        self._owner, self._index = _places([space.units for space in self._spaces.values()])
        known: dict[bytes, Layout | None] = {}  # a convolution and its batch norm run over the same

        def layout(units: np.ndarray | None) -> Layout | None:
            if units is None:
                return None
            key = units.tobytes()
            if key not in known:
                known[key] = self._layout(units)
            return known[key]

        self.axes = {name: tuple(layout(a) for a in axes) for name, axes in raw.items()}

    # -- looking ----------------------------------------------------------------------------------------

    @property
    def spaces(self) -> dict[str, int]:
        """Every channel space and its size."""
        return {name: space.size for name, space in self._spaces.items()}

    @property
    def outputs(self) -> int:
        """How many numbers an example, or a place of it, is answered with."""
        shape = self.graph.output.shape
        if self.answers_maps and not self.by_class:  # places of a shuffle are no outputs
            return int(shape[1])
        return len(self.output_units) or (shape[1] if len(shape) > 1 else 1)

    @property
    def answers_maps(self) -> bool:
        """Whether an example is answered place by place, as an image is by a segmenter."""
        return len(self.graph.output.shape) > 2

    @property
    def by_class(self) -> bool:
        """Whether every output is one channel of the last layers, so that some can be had without the others.

        Not behind a softmax, nor where there is one output only: then all stay.
        """
        return CLASSES in self._spaces and np.array_equal(self._spaces[CLASSES].units, self.output_units)

    def space(self, name: str) -> Space:
        """One space with who makes it, who reads it, and what must stay."""
        if name not in self._spaces:
            raise UnknownName("channel space", name, self._spaces)
        return self._spaces[name]

    def channels(self, value: Value) -> tuple[np.ndarray, int] | None:
        """The units of a recorded tensor along its channel axis, and that axis; None where it has none."""
        plane = self.walk.of(value).plane
        if plane is None:
            return None
        dims = varies(align(plane, len(value.shape)))
        return (self._units(plane.reshape(-1)), next(iter(dims))) if len(dims) == 1 else None

    def place(self, unit: int) -> tuple[str, int]:
        """The space of a unit, and its index there."""
        if not self.has_place(unit):
            raise KeyError(unit)
        return self._names[self._owner[unit]], int(self._index[unit])

    def places(self, units: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Space by space: which of these units lie there, as numbers into `units`, and their indices there."""
        owners = _owners(self._owner, units)
        for owner in np.unique(owners[owners >= 0]):
            mine = np.flatnonzero(owners == owner)
            yield self._names[owner], mine, self._index[units[mine]]

    def kinds(self, name: str, *, groups: bool = False) -> np.ndarray:
        """A number for every channel of a space; channels that live on the same axes have the same number.

        groups: channels of different groups of a grouped convolution or normalisation differ too.
        """
        units = self.space(name).units
        axes: dict[Any, np.ndarray] = {
            a.units.tobytes(): a.units for layouts in self.axes.values() for a in layouts if a is not None
        }
        for site in self.sites if groups else ():
            own = site.kind == "group_norm" or (
                site.kind == "conv" and site.weight and self.graph.tensors[site.weight].shape[1] > 1
            )
            if site.groups > 1 and own and site.makes is not None:
                for units_of in (site.reads, site.makes):
                    if units_of is not None:
                        size = len(units_of) // site.groups
                        axes.update(
                            {
                                (site.module, k, id(units_of)): units_of[k * size : (k + 1) * size]
                                for k in range(site.groups)
                            }
                        )
        counts = [
            np.bincount(np.searchsorted(np.sort(units), a[np.isin(a, units)]), minlength=len(units))
            for a in axes.values()
        ]
        back = np.argsort(np.argsort(units))
        table = np.stack(counts, 1)[back] if counts else np.zeros((len(units), 1), int)
        return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)

    def cells(self, name: str) -> np.ndarray | None:
        """The number of every channel's group where grouped layers, or heads, divide a space into equal groups; else None."""
        if name not in self._cells:
            within = [
                table for table in self.heads if (_owners(self._owner, table[0]) == self._names.index(name)).all()
            ]
            if within:
                self._cells[name] = self._heads_of(name, within[0])
                return self._cells[name]
            if not any(1 < site.groups < len(site.makes) for site in self.sites if site.makes is not None):
                return None
            groups = self.kinds(name, groups=True)
            sizes = np.bincount(groups)
            equal = len(sizes) > 1 and sizes.min() == sizes.max() > 1 and not self.kinds(name).any()
            self._cells[name] = groups if equal else None
        return self._cells[name]

    def _heads_of(self, name: str, table: np.ndarray) -> np.ndarray:
        """The head of every channel of a space that runs over the dimensions of heads."""
        result = np.zeros(self._spaces[name].size, np.int64)
        for number, head in enumerate(table):
            result[self._index[head]] = number
        return result

    def has_place(self, unit: int) -> bool:
        return 0 <= unit < len(self._owner) and bool(self._owner[unit] >= 0)

    def layers(self) -> dict[str, list[int]]:
        """For every layer with a weight, the space indices of the channels it makes."""
        result = {}
        for site in self.sites:
            if site.makes is not None and site.kind in ("conv", "linear"):
                result[site.module] = self._index[site.makes[_owners(self._owner, site.makes) >= 0]].tolist()
        return result

    def count(self, keep: Mapping[str, Any] | None = None) -> Counts:
        """Parameters, multiply-adds and activation memory, of the model or of a cut of it."""
        from brickwork.blueprint.count import count

        return count(self, keep)

    def __repr__(self) -> str:
        inner = ", ".join(f"{n}: {s}" for n, s in list(self.spaces.items())[:8])
        return f"Blueprint({len(self._spaces)} spaces: {inner}{', …' if len(self._spaces) > 8 else ''})"

    def to_dict(self) -> dict[str, Any]:
        return {
            "spaces": [
                {
                    "name": s.name,
                    "size": s.size,
                    "made_by": s.made_by,
                    "read_by": s.read_by,
                    "fixed": len(s.fixed),
                    "why_fixed": sorted(set(s.fixed.values())),
                }
                for s in self._spaces.values()
            ],
            "axes": {n: [None if a is None else str(a) for a in axes] for n, axes in self.axes.items()},
        }

    # -- surgery (each returns a new module; the given one is left unchanged) ----------------------------

    def select(self, model: nn.Module, keep: Mapping[str, Any], *, round_to: int | None = None) -> nn.Module:
        """The model with only the kept indices of the named spaces; spaces not named stay whole."""
        from brickwork.blueprint.surgery import select

        return select(self, model, keep, round_to=round_to)

    def permute(self, model: nn.Module, order: Mapping[str, Any]) -> nn.Module:
        """The same function with the channels of the named spaces in another order."""
        from brickwork.blueprint.surgery import permute

        return permute(self, model, order)

    def align(
        self, model: nn.Module, other: nn.Module, likeness: Mapping[str, np.ndarray] | None = None
    ) -> dict[str, np.ndarray]:
        """The order of `other`'s channels, for `permute`, that brings its weights closest to `model`'s.

        likeness: of every space, how alike channels of `model` (rows) and of `other` (columns) are; then that decides.
        """
        from brickwork.blueprint.align import align

        return align(self, model, other, likeness)

    def zero(self, model: nn.Module, keep: Mapping[str, Any]) -> nn.Module:
        """The model at full width with every parameter of the channels that are not kept set to zero."""
        from brickwork.blueprint.surgery import zero

        return zero(self, model, keep)

    # -- how it is made ---------------------------------------------------------------------------------

    def _units(self, labels: torch.Tensor) -> np.ndarray:
        return self.classes[labels.numpy()]

    def _site(self, site: Site) -> LayerSite:
        reads = None if site.reads is None else self._units(site.reads)
        makes = reads if site.makes is site.reads else None if site.makes is None else self._units(site.makes)
        return LayerSite(
            site.kind,
            site.module,
            site.weight,
            site.bias,
            reads,
            makes,
            site.groups,
            site.transposed,
            site.positions,
            site.kernel,
            site,
        )

    def _written(self, walk: Walk) -> list[tuple[int, np.ndarray | None]]:
        result = []
        for op in walk.graph.live():
            out = op.outputs[0]
            if isinstance(op.func, str) or out is None or (op.func._schema.arguments and walk.of(out).weight):
                continue
            if is_view(op.func):
                continue  # views and in-place writes take no memory of their own
            plane = walk.of(out).plane
            size = math.prod(out.shape) * out.dtype.itemsize
            result.append((size, None if plane is None else self._units(plane.reshape(-1))))
        return result

    @staticmethod
    def _channel_dims(walk: Walk) -> dict[str, int]:
        result = {}
        for path, value in walk.graph.module_inputs.items():
            plane = walk.of(value).plane
            if plane is not None and len(varies(plane)) == 1:
                result[path] = next(iter(varies(plane))) + len(value.shape) - plane.dim()
        return result

    def _find_spaces(self, raw: dict[str, list[np.ndarray | None]]) -> dict[str, Space]:
        """Units made by one layer, and all that share a unit with them, are one space."""
        made = [(s.module, s.makes) for s in self.sites if s.makes is not None and s.kind in ("conv", "linear")]
        covered = np.zeros(len(self.classes), bool)
        for _, made_here in made:
            covered[made_here] = True
        used = {v.index for op in self.graph.live() for v in op.inputs()}
        for name, axes in raw.items():  # parameters that no layer makes: embeddings, tokens, free gains
            for units in axes:
                if units is None or self.graph.tensors[name].index not in used:
                    continue
                if not covered[units].any():
                    made.append((name, units))
                    covered[units] = True
        left_out = np.zeros(len(self.classes), bool)
        left_out[[0, *self._plain]] = True
        made = [(name, units[~left_out[units]]) for name, units in made]
        made = [(name, units) for name, units in made if len(units)]
        spaces: dict[str, Space] = {}
        groups = _merge_parts(_components([units for _, units in made]), [name for name, _ in made])
        put_out = np.zeros(len(self.classes), bool)
        put_out[self.output_units] = True
        last = [g for g in groups if all(put_out[made[k][1]].all() for k in g)]
        if len(last) > 1:  # several heads side by side are one axis of classes
            groups = [g for g in groups if g not in last] + [sorted(k for g in last for k in g)]
        for group in groups:
            units = np.concatenate([made[g][1] for g in group])
            name = _layer_of(made[group[0]][0]) or "output"
            if len(self.output_units) and put_out[units].any() and np.isin(self.output_units, units).all():
                name = CLASSES
                # in the order of the logits: several heads side by side, or a forward that turns its own
                if (group == groups[-1] and len(last) > 1) or sorted(set(units)) == sorted(self.output_units):
                    units = self.output_units
            _, first = np.unique(units, return_index=True)
            units = units[np.sort(first)]
            while name in spaces:
                name += "'"
            fixed = {k: self._fixed[u].reason for k, u in enumerate(units.tolist()) if u in self._fixed}
            spaces[name] = Space(name, units, list(dict.fromkeys(made[g][0] for g in group)), [], fixed)
        every = list(spaces.values())
        owner, _ = _places([space.units for space in every])
        for site in self.sites:
            if site.reads is not None and site.kind in ("conv", "linear"):
                for number in np.unique(_owners(owner, site.reads)):
                    if number >= 0 and site.module not in every[number].read_by:
                        every[number].read_by.append(site.module)
        return spaces

    def _layout(self, units: np.ndarray) -> Layout | None:
        owners = _owners(self._owner, units)
        kinds, first = np.unique(owners, return_index=True)
        if not len(kinds) or kinds[-1] < 0:
            return None
        parts = []
        for owner in kinds[np.argsort(first)]:
            name = self._names[owner] if owner >= 0 else "-"
            mine = units[owners == owner]
            distinct = len(np.unique(mine)) if name != "-" else len(mine)
            size = self._spaces[name].size if name != "-" else distinct
            times = f" × {len(mine) // distinct}" if len(mine) > distinct else ""
            parts.append(name + (f"[{distinct} of {size}]" if distinct < size else "") + times)
        return Layout(units, " + ".join(parts))


def _places(spaces: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """For every unit the number of its space (−1: of none) and its place there."""
    size = 1 + max((int(units.max()) for units in spaces if len(units)), default=-1)
    owner, index = np.full(size, -1), np.zeros(size, np.int64)
    for number, units in enumerate(spaces):
        owner[units] = number
        index[units] = np.arange(len(units))
    return owner, index


def _owners(owner: np.ndarray, units: np.ndarray) -> np.ndarray:
    """The numbers of the spaces of these units, −1 for those of none."""
    result = np.full(len(units), -1)
    known = (units >= 0) & (units < len(owner))
    result[known] = owner[units[known]]
    return result


def _components(sets: list[np.ndarray]) -> list[list[int]]:
    """Groups of sets that are linked by common members, in order of first appearance."""
    if not sets:
        return []
    members, flat = np.unique(np.concatenate(sets), return_inverse=True)
    which = np.repeat(np.arange(len(sets)), [len(s) for s in sets])
    size = len(sets) + len(members)
    links = coo_matrix((np.ones(len(flat), np.int8), (which, flat + len(sets))), shape=(size, size))
    _, part = connected_components(links, directed=False)
    groups: dict[int, list[int]] = {}
    for k in range(len(sets)):
        groups.setdefault(int(part[k]), []).append(k)
    return list(groups.values())


def _layer_of(name: str) -> str:
    """The layer that a part of a joined network belongs to."""
    layer, result, part = name.rpartition(".parts.")
    return layer if result and part.isdigit() else name


def _merge_parts(groups: list[list[int]], names: list[str]) -> list[list[int]]:
    """The parts of one joined layer make one space, part behind part."""
    merged: dict[str, list[int]] = {}
    for group in groups:
        layer = _layer_of(names[group[0]])
        key = layer if layer != names[group[0]] else f"{names[group[0]]}#{group[0]}"
        merged.setdefault(key, []).extend(group)
    return [sorted(g) for g in merged.values()]


def trace(model: nn.Module, example: Any, *, output: str | int | None = None) -> Blueprint:
    """Trace a model once on shapes alone; `example` is a tensor, a tuple of arguments or a dict of keywords.

    >>> net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
    >>> trace(net, torch.zeros(1, 4)).spaces
    {'0': 32, 'classes': 3}
    """
    with collector_paused():
        return _trace(model, example, output)


def _trace(model: nn.Module, example: Any, output: str | int | None) -> Blueprint:
    graph = record(model, example, output=output)
    walk = Walk(graph, Units()).run()
    for site in walk.sites:
        if site.kind in ("layer_norm", "group_norm") and site.reads is not None:
            module = model.get_submodule(site.module)
            if not isinstance(module, (nn.LayerNorm, nn.GroupNorm)) or module.weight is None:
                why = (
                    "its channels are normalised together by something else than a LayerNorm or GroupNorm with weights"
                )
                walk.units.fix(site.reads, f"{why} ({site.module or 'the top module'})")
    if not walk.sites:
        raise BadModel("nothing to cut: the output does not pass through any convolution or linear layer")
    names = {n for n, _ in model.named_parameters(remove_duplicate=False)}
    return Blueprint(graph, walk, shapes_of(example), output, names)


def shapes_of(example: Any) -> Any:
    """The example without its data, so that a blueprint never holds on to images."""
    from torch.utils._pytree import tree_map

    return tree_map(lambda x: torch.empty_like(x, device="meta") if isinstance(x, torch.Tensor) else x, example)
