"""Networks of one architecture interleaved layer by layer, proved by recording the result again.

Layers become block-diagonal: one grouped convolution where the parts' widths agree, parts in lock-step where they do not.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from brickwork.blueprint.attributes import HEADS, WIDTHS
from brickwork.blueprint.building import locate
from brickwork.blueprint.labels import KnownUnits, Mismatch
from brickwork.blueprint.norms import SparseGroupNorm, SparseLayerNorm
from brickwork.blueprint.parts import Parts
from brickwork.blueprint.plan import Blueprint, LayerSite, shapes_of
from brickwork.blueprint.prove import (
    Drawn,
    Sides,
    draw_together,
    on_meta,
    precision,
    proof_input,
    prove,
    run,
    scrambled,
)
from brickwork.blueprint.record import record
from brickwork.blueprint.walk import Walk
from brickwork.copying import copy_module
from brickwork.errors import BadModel, Unsupported

#: layers that run over all channels of a part at once, and so run part by part
TOGETHER = (nn.LayerNorm, nn.GroupNorm, SparseLayerNorm, SparseGroupNorm)
Axis = np.ndarray  # (2, n): for each place of the joined axis its part, and the place on that part's axis


class Interleaved:
    """One attempt to interleave networks of one architecture."""

    def __init__(self, models: list[nn.Module], bps: list[Blueprint], trust: bool) -> None:
        self.models, self.bps, self.trust = models, bps, trust
        self.proving = False  # the tensors are a proof's own, and may be shared
        self.tensors = [_tensors(m) for m in models]
        self._check_structure()
        self.offsets = np.cumsum([0, *(len(bp.classes) for bp in bps)])[:-1]
        self.known = np.concatenate(
            [np.where(bp.classes == 0, 0, bp.classes + o) for bp, o in zip(bps, self.offsets, strict=True)]
        )
        self.sites = {s.weight or s.module: s for s in bps[0].sites}
        self._by_path = {s.module: s for s in reversed(bps[0].sites)}
        self.split: set[str] = set()  # convolutions that cannot be grouped: channels arrive interleaved
        self.reads: dict[tuple[str, int], np.ndarray] = {}  # (Parts module, part) -> places of the input
        self.axes: dict[tuple[str, int], Axis] = {}

    def _check_structure(self) -> None:
        first, bp = self.models[0], self.bps[0]
        if not first._modules:
            raise Unsupported("a network that is one layer has no layers to interleave; join them as branches")
        kinds = [(n, type(m)) for n, m in first.named_modules()]
        ops = [o.name for o in bp.graph.live()]
        for k, (model, other) in enumerate(zip(self.models[1:], self.bps[1:], strict=True), 1):
            same = kinds == [(n, type(m)) for n, m in model.named_modules()]
            if not same or ops != [o.name for o in other.graph.live()] or set(self.tensors[0]) != set(self.tensors[k]):
                raise Unsupported(
                    f"network {k} has another structure than network 0; networks of different architectures are "
                    'joined as branches: how="branches"'
                )
        loose = [how for path, how in bp.mixes if not isinstance(first.get_submodule(path), TOGETHER)]
        if loose:
            raise Unsupported(f"parts cannot be kept apart: {loose[0]}; join them as branches")

    # -- axes ---------------------------------------------------------------------------------------------

    def _runs(self, bp: Blueprint, units: np.ndarray, ids: np.ndarray | None) -> list[int]:
        """Where an axis is made of pieces: places at which another layer's channels, or another split, begin."""
        marks = [self._births(bp)[units]]
        if ids is not None:
            inside = (np.isin(ids, segment) for segment in bp.raw_segments)
            marks += [i for i in inside if i.any() and not i.all()]
        change = np.any([m[1:] != m[:-1] for m in marks], axis=0)
        return [0, *(np.flatnonzero(change) + 1).tolist()]

    @functools.cache  # noqa: B019  (a joiner lives for one join)
    def _births(self, bp: Blueprint) -> np.ndarray:
        """For every unit the first layer that makes it."""
        births = np.full(len(bp.classes), -1)
        for k, site in reversed(list(enumerate(bp.sites))):
            if site.makes is not None and site.kind in ("conv", "linear"):
                births[site.makes] = k
        return births

    @functools.cache  # noqa: B019
    def _weave(self, name: str, dim: int) -> Axis:
        """Part behind part, piece by piece."""
        cuts, sizes = [], []
        for bp in self.bps:
            layout = bp.axes[name][dim]
            if layout is None or sum(len(mine) for _, mine, _ in bp.places(layout.units)) < len(layout.units):
                raise Unsupported(f"{name} reads channels of the parts together with ones that belong to no part")
            ids = bp.ids[name][dim]
            starts = self._runs(bp, layout.units, None if ids is None else ids.numpy())
            cuts.append([*starts, len(layout.units)])
            sizes.append(len(starts))
        if len(set(sizes)) > 1:
            raise Unsupported(f"the channels of {name} are put together differently in the parts")
        runs = [(p, c[piece], c[piece + 1]) for piece in range(sizes[0]) for p, c in enumerate(cuts)]
        return np.concatenate([np.stack([np.full(end - at, p), np.arange(at, end)]) for p, at, end in runs], 1)

    def _unit(self, name: str, dim: int, axis: Axis) -> np.ndarray:
        layouts = [bp.axes[name][dim] for bp in self.bps]
        return self._taken([layout.units for layout in layouts], axis)  # type: ignore[union-attr]

    def _ids(self, name: str, dim: int, axis: Axis) -> Tensor:
        return torch.from_numpy(self._taken([bp.ids[name][dim].numpy() for bp in self.bps], axis))  # type: ignore[union-attr]

    def _taken(self, values: Sequence[np.ndarray], axis: Axis) -> np.ndarray:
        """What the parts have at the places of an axis, in the numbers of the joined network."""
        result = np.empty(axis.shape[1], np.int64)
        for p, own in enumerate(values):
            mine = axis[0] == p
            result[mine] = own[axis[1, mine]] + self.offsets[p]
        return result

    # -- building -----------------------------------------------------------------------------------------

    def build(self) -> nn.Module:
        for _ in range(24):
            self.home: dict[str, tuple[int, str]] = {}  # tensor of the joined model -> (part, tensor) where copied
            model = self._assemble()
            try:
                graph = record(model, self.bps[0].example, output=self.bps[0].output)
            except BadModel as error:
                raise Unsupported(f"these networks cannot be interleaved: {error}") from error
            units = KnownUnits(self.known, self._group_reads())
            walk = Walk(graph, units)
            try:
                walk.run(self._given(graph, units))
            except Mismatch as error:
                if self._follow_parts(model, walk):
                    continue
                raise Unsupported(f"these networks cannot be interleaved exactly: {error}") from error
            except (BadModel, IndexError, RuntimeError) as error:
                raise Unsupported(f"these networks cannot be interleaved exactly: {error}") from error
            if not self._follow(units):
                return model
        raise Unsupported("the order of joined channels did not settle; join the networks as branches")

    def prove(self, example: Any, output: Any) -> None:
        """Join scrambled copies in the same way and compare numbers."""
        if any(on_meta(m) for m in self.models):
            return
        kept, own = self.models, self.tensors
        try:
            prove(lambda how: self._sides(kept, own, example, output, how), "this join")
        finally:
            self.models = kept

    def _sides(
        self, models: list[nn.Module], tensors: list[dict[str, Tensor]], example: Any, output: Any, how: Drawn
    ) -> Sides:
        dtype = precision(self.bps[0], models[0])
        owned = [name for name in tensors[0] if any(self.bps[0].axes[name])]
        drawn = draw_together(tensors, owned, dtype) if how == "any" else [{} for _ in models]
        # unlike weights: crosstalk must show
        twins = [scrambled(m, k, dtype, own, how) for k, (m, own) in enumerate(zip(models, drawn, strict=True))]
        shared = _tensors(twins[0])
        for twin in twins[1:]:
            for name, tensor in _tensors(twin).items():
                if not any(self.bps[0].axes[name]):  # belongs to no part, so the parts share it
                    tensor.copy_(shared[name])
        self.models, self.proving = twins, True
        self.tensors = [_tensors(m) for m in twins]
        joined = self._assemble()
        dim = 1 if self.bps[0].output_dim is None else self.bps[0].output_dim

        def apart(x: Any) -> Tensor:
            return torch.cat([run(t, x, output) for t in twins], dim)

        numbers, wanted = proof_input(shapes_of(example), dtype, apart, asked=twins, how=how)
        return lambda: run(joined, numbers, output), lambda: apart(numbers) if wanted is None else wanted

    def _assemble(self) -> nn.Module:
        first = self.models[0]
        memo: dict[int, Any] = {}
        done: dict[str, nn.Module] = {}
        for path, module in first.named_modules():
            own = [t for t in (*module._parameters.values(), *module._buffers.values()) if t is not None]
            if module._modules or not own:
                continue
            replacement = self._join_leaf(path, module)
            if replacement is not None:
                done[path] = replacement
                for tensor in own:
                    memo[id(tensor)] = tensor  # replaced below; no need to copy
        for name, tensor in self.tensors[0].items():
            if id(tensor) not in memo and name.rpartition(".")[0] not in done:
                memo[id(tensor)] = self._join_tensor(name)
        joined = copy_module(first, memo)
        for path, module in done.items():
            parent, _, leaf = path.rpartition(".")
            setattr(joined.get_submodule(parent), leaf, module)
        self._patch_heads(joined)
        return joined

    def _leaf_site(self, path: str) -> LayerSite | None:
        return self._by_path.get(path)

    def _join_leaf(self, path: str, module: nn.Module) -> nn.Module | None:
        leaves = [m.get_submodule(path) for m in self.models]
        if isinstance(module, TOGETHER):
            return self._parts(path, leaves)
        site = self._leaf_site(path)
        if site is None or site.kind not in ("conv", "linear") or site.weight != f"{path}.weight":
            return None  # tensor by tensor; so, too, layers of somebody's own that call their weight otherwise
        if site.reads is None:
            return self._widen(path, module)
        if isinstance(module, _ConvNd) and path not in self.split and not module.transposed:
            same = len({tuple(m.get_parameter("weight").shape) for m in leaves}) == 1
            depthwise = site.groups > 1 and module.weight.shape[1] == 1
            if depthwise or (same and self._out_order(path) is None and self._in_order(site) is None):
                return self._group(path, module, leaves)
        return self._parts(path, leaves)

    def _in_order(self, site: LayerSite) -> np.ndarray | None:
        """Where channels reach a layer piece by piece (behind a concatenation): the part each comes from."""
        name = site.weight or ""
        dim = 0 if site.transposed else 1
        if site.groups > 1 or any(len(bp.axes[name]) <= dim or bp.axes[name][dim] is None for bp in self.bps):
            return None
        parts = self._weave(name, dim)[0]
        return None if (np.diff(parts) >= 0).all() else parts

    def _out_order(self, path: str) -> np.ndarray | None:
        """Where a layer's outputs must stand piece by piece (query, key, value), the places to take them from."""
        name = f"{path}.weight"
        dim = 1 if getattr(self.models[0].get_submodule(path), "transposed", False) else 0
        if any(bp.axes[name][dim] is None for bp in self.bps):
            return None
        starts = np.cumsum([0, *(len(bp.axes[name][dim] or ()) for bp in self.bps)])
        axis = self._weave(name, dim)
        order = starts[axis[0]] + axis[1]
        return None if np.array_equal(order, np.arange(len(order))) else order

    def _widen(self, path: str, module: nn.Module) -> nn.Module:
        """The first layer: all parts read the same input, so their outputs are simply stacked."""
        if isinstance(module, _ConvNd) and (module.transposed or module.groups > 1):
            raise Unsupported(f"{path} reads the model's input through groups; join the networks as branches")
        new = _emptied(module)
        for name, _ in module.named_parameters(recurse=False):
            setattr(new, name, self._join_tensor(f"{path}.{name}"))
        width = new.get_parameter("weight").shape[0]
        setattr(new, "out_channels" if isinstance(new, _ConvNd) else "out_features", width)
        return new

    def _group(self, path: str, module: _ConvNd, leaves: Sequence[nn.Module]) -> nn.Module:
        new = _emptied(module)
        for name, _ in module.named_parameters(recurse=False):
            setattr(new, name, self._join_tensor(f"{path}.{name}", dims=[0]))
        convs = [m for m in leaves if isinstance(m, _ConvNd)]
        new.groups = sum(m.groups for m in convs)
        new.in_channels = sum(m.in_channels for m in convs)
        new.out_channels = new.weight.shape[0]
        return new

    def _parts(self, path: str, leaves: Sequence[nn.Module]) -> Parts:
        norm = isinstance(leaves[0], TOGETHER)
        conv = isinstance(leaves[0], (_ConvNd, nn.GroupNorm, SparseGroupNorm))
        dim = self.bps[0].channel_dims.get(path, 1 if conv else -1)
        widths = [len(self._reads_of(p, path)) for p in range(len(leaves))]
        starts = np.cumsum([0, *widths])
        site = self._leaf_site(path)
        woven = self._in_order(site) if site is not None and not norm else None
        reads = []
        for p, width in enumerate(widths):
            guess = np.arange(starts[p], starts[p] + width) if woven is None else np.flatnonzero(woven == p)
            places = self.reads.setdefault((path, p), guess)
            reads.append(torch.from_numpy(places))
        for p, leaf in enumerate(leaves):
            for name, _ in [*leaf.named_parameters(), *leaf.named_buffers()]:
                self.home[f"{path}.parts.{p}.{name}"] = (p, f"{path}.{name}")
        order = self._norm_order(reads, int(starts[-1])) if norm else self._out_order(path)
        index = None if order is None else torch.as_tensor(order)
        device = next(leaves[0].parameters()).device
        parts = Parts([copy_module(m) for m in leaves], reads, int(starts[-1]), dim, index)
        return parts if device.type == "meta" else parts.to(device)

    def _norm_order(self, reads: list[Tensor], total: int) -> Tensor | None:
        """A normalisation hands channels on in the order they came."""
        places = torch.cat(reads)
        return None if torch.equal(places, torch.arange(total)) else torch.argsort(places)

    def _reads_of(self, part: int, path: str) -> np.ndarray:
        layout = self.bps[part].axes.get(f"{path}.weight", (None,))[0]
        if isinstance(self.models[part].get_submodule(path), TOGETHER) and layout is not None:
            return layout.units
        reads = self._site_of(part, path).reads
        if reads is None:
            raise Unsupported(f"{path} reads channels in one part and none in another")
        return reads

    def _site_of(self, part: int, path: str) -> LayerSite:
        site = next((s for s in self.bps[part].sites if s.module == path), None)
        if site is None:
            raise Unsupported(f"{path} has no channels of its own to join")
        return site

    def _join_tensor(self, name: str, dims: list[int] | None = None) -> Any:
        tensors = [t[name] for t in self.tensors]
        dims = dims or [d for d, a in enumerate(self.bps[0].axes[name]) if a is not None]
        site = self.sites.get(name)
        if site is not None and len(dims) == 2 and site.reads is None:
            dims = dims[:1]
        if not dims:
            if any(t.shape != tensors[0].shape or not (self.trust or _equal(t, tensors[0])) for t in tensors[1:]):
                raise Unsupported(f"{name} belongs to no channel and differs between the parts")
            data = tensors[0].detach().clone()
        elif len(dims) > 1:
            raise Unsupported(f"{name} mixes two channel axes outside a layer that can be joined")
        else:
            dim = dims[0]
            axis = self.axes.setdefault((name, dim), self._weave(name, dim))
            starts = np.cumsum([0, *(t.shape[dim] for t in tensors)])
            try:
                together = (
                    _side_by_side(tensors, dim) if self.proving else torch.cat([t.detach() for t in tensors], dim)
                )
            except RuntimeError as error:
                raise Unsupported(f"{name} has different shapes in the parts beside its channels") from error
            places = starts[axis[0]] + axis[1]
            if np.array_equal(places, np.arange(len(places))) and len(places) == together.shape[dim]:
                data = together  # part behind part, as they were put together
            else:
                data = together.index_select(dim, torch.from_numpy(places).to(together.device))
        if isinstance(tensors[0], nn.Parameter):
            return nn.Parameter(data, tensors[0].requires_grad)
        return data

    def _patch_heads(self, joined: nn.Module) -> None:
        heads = {
            s.module.rpartition(".")[0]
            for s in self.bps[0].sites
            if s.kind == "linear" and s.makes is not None and len(np.unique(s.makes)) < len(s.makes)
        } | self.bps[0].graph.open_heads
        for path, module in joined.named_modules():
            if isinstance(module, _NormBase) and module.running_mean is not None:
                module.num_features = module.running_mean.shape[0]
            if isinstance(module, nn.PReLU):
                module.num_parameters = module.weight.shape[0]
            for name in (*HEADS, *WIDTHS):
                if path in heads and isinstance(getattr(module, name, None), int):
                    setattr(module, name, sum(getattr(m.get_submodule(path), name) for m in self.models))

    # -- proving ------------------------------------------------------------------------------------------

    def _given(self, graph: Any, units: KnownUnits) -> dict[str, list[Tensor | None]]:
        given: dict[str, list[Tensor | None]] = {}
        for name, value in graph.tensors.items():
            given[name] = []
            part, home = self.home.get(name, (None, name))
            for dim, size in enumerate(value.shape):
                if size == 1:
                    given[name].append(None)
                elif part is not None:
                    ids = self.bps[part].ids[home][dim] if self.bps[part].axes[home][dim] is not None else None
                    given[name].append(units.fresh(size) if ids is None else ids + int(self.offsets[part]))
                elif len(self.axes.get((name, dim), ())):
                    given[name].append(self._ids(name, dim, self.axes[name, dim]))
                else:
                    given[name].append(units.fresh(size))
        return given

    def _follow_parts(self, model: nn.Module, walk: Walk) -> bool:
        """Channels arrive interleaved at layers in lock-step: read them from where they really are."""
        changed = False
        units = walk.units
        assert isinstance(units, KnownUnits)
        for path, module in model.named_modules():
            value = walk.graph.module_inputs.get(path)
            if not isinstance(module, Parts) or value is None or value.index not in walk.tags:
                continue
            plane = walk.of(value).plane
            if plane is None or plane.numel() != module.total:
                continue
            arrived = units.unit(plane.reshape(-1)).numpy()
            for p in range(len(self.models)):
                wanted = self._reads_of(p, path) + self.offsets[p]
                if not set(wanted.tolist()) <= set(arrived.tolist()):
                    continue
                places = locate(arrived, wanted)
                if not np.array_equal(places, self.reads[path, p]):
                    self.reads[path, p] = places
                    changed = True
        return changed

    def _follow(self, units: KnownUnits) -> bool:
        changed = False
        by_name: dict[str, list[tuple[int, Axis]]] = {}
        for (name, dim), axis in self.axes.items():
            by_name.setdefault(name, []).append((dim, axis))
        for (name, built), order in units.arrived.items():
            for dim, axis in by_name.get(name, ()):
                if not axis.size:
                    continue
                mine = self._unit(name, dim, axis)
                if mine.tobytes() == built and not np.array_equal(mine, order):
                    places = locate(mine, order)
                    self.axes[name, dim] = axis[:, places]
                    changed = True
        for name in units.arrived_groups:  # interleaved: this convolution must run part by part
            path = name.rpartition(".")[0]
            if path in self.split or ".parts." in name:
                raise Unsupported(f"channels arrive at the groups of {name} in another order")
            self.split.add(path)
            changed = True
        return changed

    def _group_reads(self) -> dict[str, np.ndarray]:
        """What every convolution that may run in groups reads, in the joined network's units."""
        result: dict[str, np.ndarray] = {}
        for site in self.bps[0].sites:
            if site.kind != "conv" or site.reads is None or not site.weight:
                continue
            depthwise = site.groups > 1 and self.tensors[0][site.weight].shape[1] == 1
            if not depthwise:
                each = [self._reads_of(p, site.module) + o for p, o in enumerate(self.offsets)]
                result[site.weight] = np.concatenate(each)
                leaf = site.weight.rpartition(".")[2]
                result.update({f"{site.module}.parts.{p}.{leaf}": units for p, units in enumerate(each)})
        return result


def _emptied(module: nn.Module) -> Any:
    """A copy of a layer that still has the parameters of the layer itself: they are replaced next, not copied."""
    return copy_module(module, {id(value): value for value in module._parameters.values()})


def _side_by_side(tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Tensors put together along an axis; without a copy where they already lie so in memory."""
    first, place = tensors[0].detach(), tensors[0].storage_offset()
    for tensor in tensors:
        aside = tensor.untyped_storage()._cdata != first.untyped_storage()._cdata or tensor.storage_offset() != place
        if dim or aside or not tensor.is_contiguous():
            return torch.cat([t.detach() for t in tensors], dim)
        place += tensor.numel()
    return first.as_strided((sum(len(t) for t in tensors), *first.shape[1:]), first.stride())


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return dict([*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)])


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.is_meta or b.is_meta or bool(torch.equal(a.to(b.device), b))
