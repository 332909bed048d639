"""Assemble a drafted model and prove it by labels: every channel meets the weights that were built for it.

A draft says which channels every axis of the new model runs over. The assembled model is recorded again on shapes
alone; where channels arrive in another order than drafted, the draft follows; anything else is refused.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from brickwork.blueprint.attributes import patch_attributes
from brickwork.blueprint.labels import KnownUnits, Mismatch
from brickwork.blueprint.norms import SparseGroupNorm, SparseLayerNorm
from brickwork.blueprint.record import Graph, record
from brickwork.blueprint.room import Between
from brickwork.blueprint.walk import Walk
from brickwork.copying import copy_module
from brickwork.errors import BadModel, Unsupported

if TYPE_CHECKING:
    from brickwork.blueprint.plan import Blueprint, LayerSite

Axes = dict[str, list[np.ndarray | None]]


@dataclass
class Draft:
    """The channels every axis of the new model runs over, and what grouped convolutions read."""

    axes: Axes
    reads: dict[str, np.ndarray] = field(default_factory=dict)  # grouped convolution's weight -> input units
    groups: dict[str, int] = field(default_factory=dict)  # module -> its new number of groups
    guess: bool = True  # bring numbers up to date that look like a width
    guessed: bool = False  # whether there were such numbers
    gathers: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)  # index buffer -> units from, to
    _places: dict[tuple[int, int], tuple[np.ndarray, np.ndarray, Tensor | None]] = field(default_factory=dict)

    def places(self, before: np.ndarray, after: np.ndarray) -> Tensor | None:
        """Where the units of an axis lay before, found once for all axes that run over the same; None: as they are now."""
        key = (id(before), id(after))  # both are kept beside the answer, so that no other array takes their ids
        if key not in self._places:
            same = np.array_equal(before, after)
            self._places[key] = (before, after, None if same else torch.from_numpy(locate(before, after)))
        return self._places[key][2]


def build(bp: Blueprint, model: nn.Module, draft: Draft) -> nn.Module:
    """Assemble the drafted model and prove it; orders that differ from what arrives are followed."""
    for _ in range(12):
        new = assemble(bp, model, draft)
        try:
            graph = record(new, _fitting(bp.example, new), output=bp.output)
            units = KnownUnits(bp.classes, _group_reads(bp, draft), bp.heads)
            walk = Walk(graph, units)
            walk.run(given_labels(bp, graph, draft, units))
            _same_constants(bp.graph, graph)
        except (Mismatch, BadModel, IndexError, RuntimeError) as error:
            if not isinstance(error, Mismatch) or not _follow_gathers(draft, walk, units):
                raise _refused(bp, error) from error
            continue
        if not (_follow(draft, units) | _follow_gathers(draft, walk, units)):
            return new
    raise Unsupported("the order of channels did not settle after twelve tries; this model cannot be cut exactly")


def _fitting(example: Any, model: nn.Module) -> Any:
    """The example in the precision of the model, which may have changed since the trace."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)

    def cast(x: Any) -> Any:
        return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() and dtype is not None else x

    return tree_map(cast, example)


def _refused(bp: Blueprint, error: Exception) -> Exception:
    if isinstance(error, Unsupported):
        return error
    beside = next((m for m in _beside(bp.graph) if f" fails at {m} " in str(error)), None)
    if beside is not None:
        output = "the output" if bp.output is None else f"the output {bp.output!r}"
        return Unsupported(
            f"{beside} reads channels that are to be cut, but {output} does not depend on it, so that it cannot be cut "
            f"with them; if it is not needed, put nn.Identity() in its place, and cut again"
        )
    return Unsupported(
        f"this cut cannot be kept exact: {error}; keep whole groups (equal numbers where the forward splits, "
        "shuffles or reshapes channels), or choose other spaces"
    )


def _beside(graph: Graph) -> set[str]:
    """Modules whose weights are used, but not for the output that matters: heads of other outputs."""
    live = {id(op) for op in graph.live()}
    return {op.module for op in graph.ops if id(op) not in live and any(v.name for v in op.inputs())}


def given_labels(bp: Blueprint, graph: Graph, draft: Draft, units: KnownUnits) -> dict[str, list[Tensor | None]]:
    """The ids of every axis of the new model: those its places had in the old one."""
    given: dict[str, list[Tensor | None]] = {}
    for name, value in graph.tensors.items():
        given[name] = []
        for dim, size in enumerate(value.shape):
            if size == 1:
                given[name].append(None)  # one channel cannot be out of order
                continue
            home, axis, place = _axis_home(draft, name, dim, len(value.shape))
            layout = bp.axes[home][place] if axis is not None else None
            if axis is None:
                given[name].append(units.fresh(size))
            elif layout is None:  # a grouped convolution that became dense: its inputs are an axis now
                site = next(s for s in bp.sites if s.weight == name and s.reads is not None)
                given[name].append(site.raw.reads[torch.from_numpy(locate(site.reads, axis))])  # type: ignore
            else:
                ids = bp.ids[home][place]
                assert ids is not None
                places = draft.places(layout.units, axis)
                given[name].append(ids if places is None else ids[places])
    return given


def _axis_home(draft: Draft, name: str, dim: int, ndim: int) -> tuple[str, np.ndarray | None, int]:
    """Which axis of the draft describes this one; tensors that surgery put in follow their layer's weight."""
    if name in draft.axes:
        return name, draft.axes[name][dim], dim
    home = name.rsplit(".", 1)[0] + ".weight"
    return (home, draft.axes[home][0], 0) if dim == ndim - 1 else (home, None, 0)


def _group_reads(bp: Blueprint, draft: Draft) -> dict[str, np.ndarray]:
    """What grouped (not depthwise) convolutions were built to read."""
    shapes = {s.weight: bp.graph.tensors[s.weight].shape for s in bp.sites if s.kind == "conv" and s.weight}
    return {name: reads for name, reads in draft.reads.items() if shapes[name][1] > 1 or _transposed(bp, name)}


def _transposed(bp: Blueprint, name: str) -> bool:
    return any(s.weight == name and s.transposed for s in bp.sites)


def _follow(draft: Draft, units: KnownUnits) -> bool:
    """Rebuild axes in the order in which channels really arrive. Says whether anything changed."""
    changed = False
    for (name, built), arrived in units.arrived.items():
        for dim, axis in enumerate(draft.axes.get(name, ())):
            if axis is not None and axis.tobytes() == built and not np.array_equal(axis, arrived):
                draft.axes[name][dim] = arrived
                if name in draft.reads and dim == 1:
                    draft.reads[name] = arrived
                changed = True
    for name, order in units.arrived_groups.items():
        draft.reads[name] = order
        changed = True
    return changed


def _follow_gathers(draft: Draft, walk: Walk, units: KnownUnits) -> bool:
    """A gather picks from the channels that really arrive."""
    changed = False
    for name, source, _ in walk.gathers:
        arrived = units.unit(source).numpy()
        built = draft.gathers[name][0] if name in draft.gathers else arrived
        if not np.array_equal(built, arrived) and np.array_equal(np.sort(built), np.sort(arrived)):
            draft.gathers[name] = (arrived, draft.gathers[name][1])
            changed = True
    return changed


def _same_constants(before: Graph, after: Graph) -> None:
    """A number that changed with the width (a scale of 1/√width, say) would change the function."""

    def numbers(graph: Graph) -> dict[str, list[float]]:
        result: dict[str, list[float]] = {}
        for op in graph.live():
            kinds = (float, int) if torch.Tag.pointwise in getattr(op.func, "tags", ()) else float
            scalars = [a for a in (*op.args, *op.kwargs.values()) if isinstance(a, kinds)]
            result.setdefault(op.module, []).extend(scalars)
        return result

    old = numbers(before)
    for module, floats in numbers(after).items():
        if module in old and len(old[module]) == len(floats) and old[module] != floats:
            pair = next((a, b) for a, b in zip(old[module], floats, strict=True) if a != b)
            raise Mismatch(module or "the top module", f"a constant depends on the width ({pair[0]:g} → {pair[1]:g})")


def locate(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """For each entry of `new` its place in `old`; the k-th occurrence of a unit maps to the k-th."""
    order = np.argsort(old, kind="stable")
    ranked = old[order]
    occurrence = np.zeros(len(new), np.int64)
    by_value = np.argsort(new, kind="stable")
    sorted_new = new[by_value]
    starts = np.r_[True, sorted_new[1:] != sorted_new[:-1]] if len(new) else np.zeros(0, bool)
    run = np.arange(len(new)) - np.maximum.accumulate(np.where(starts, np.arange(len(new)), 0))
    occurrence[by_value] = run
    return order[np.searchsorted(ranked, new) + occurrence]


def assemble(bp: Blueprint, model: nn.Module, draft: Draft) -> nn.Module:
    tensors = _tensors(model)
    memo: dict[int, Any] = {}
    for name, (source, result) in draft.gathers.items():
        memo[id(tensors[name])] = torch.from_numpy(locate(source, result)).to(tensors[name].device)
    for name, data in _drafted(bp, tensors, draft, done=memo):
        tensor = tensors[name]
        if data.data_ptr() == tensor.data_ptr():
            data = data.clone()
        memo[id(tensor)] = nn.Parameter(data, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else data
    new = copy_module(model, memo)
    _replace_norms(bp, new, draft)
    patch_attributes(bp, model, new, draft, own=draft.guess)
    return new


def drafted_numbers(bp: Blueprint, source: nn.Module, new: nn.Module, draft: Draft) -> dict[int, Tensor]:
    """By the id of each floating tensor of an assembled module, the same places of another model's tensor."""
    tensors, own = _tensors(source), _tensors(new)
    tensors = {name: tensor for name, tensor in tensors.items() if name in own and tensor.is_floating_point()}
    result = {}
    for name, data in _drafted(bp, tensors, draft, done={}):  # as `assemble` does it: a proof is to see its faults
        alone = data.data_ptr() != tensors[name].data_ptr()
        result[id(own[name])] = data if alone else data.clone()
    return result


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return dict([*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)])


def _drafted(
    bp: Blueprint, tensors: dict[str, Tensor], draft: Draft, *, done: Container[int]
) -> Iterator[tuple[str, Tensor]]:
    """Each tensor over the channels that the draft keeps of it, tied ones once; one that is not cut comes as it is.

    done: the ids of those that are there already.
    """
    grouped = {s.weight: s for s in bp.sites if s.kind == "conv" and s.groups > 1 and s.weight in draft.reads}
    seen: set[int] = set()
    between = Between()
    for name, tensor in tensors.items():
        if id(tensor) in seen or id(tensor) in done:
            continue
        seen.add(id(tensor))
        site = grouped.get(name)
        if site is not None and not site.transposed and tensor.shape[1] > 1:
            yield name, _grouped_weight(tensor, site, draft, name)
            continue
        changes = []
        for dim, axis in enumerate(draft.axes[name]):
            layout = bp.axes[name][dim]
            places = draft.places(layout.units, axis) if axis is not None and layout is not None else None
            if places is not None:
                changes.append((dim, places.to(tensor.device)))
        yield name, between.select(tensor.detach(), changes)


def _grouped_weight(weight: Tensor, site: LayerSite, draft: Draft, name: str) -> Tensor:
    """A grouped kernel over fewer channels: still grouped where every group keeps as many, else dense with zeros."""
    assert site.reads is not None and site.makes is not None
    per_in, per_out = weight.shape[1], weight.shape[0] // site.groups
    makes = draft.axes[name][0]
    makes = site.makes if makes is None else makes
    places_in, places_out = locate(site.reads, draft.reads[name]), locate(site.makes, makes)
    group_in, group_out = places_in // per_in, places_out // per_out
    groups = regroup(group_in, group_out)
    local = torch.from_numpy(places_in % per_in)
    rows = weight.detach()[torch.from_numpy(places_out).to(weight.device)]
    if groups:
        draft.groups[site.module] = groups
        draft.axes[name][1] = None
        index = local.reshape(groups, -1).repeat_interleave(len(group_out) // groups, 0)
        index = index.reshape(*index.shape, *[1] * (weight.dim() - 2)).expand(-1, -1, *weight.shape[2:])
        return rows.gather(1, index.to(weight.device))
    draft.groups[site.module] = 1
    draft.axes[name][1] = draft.reads[name]
    dense = rows[:, local.to(weight.device)]
    same = torch.from_numpy(group_out[:, None] == group_in[None, :]).to(weight.device)
    return dense * same.reshape(*same.shape, *[1] * (weight.dim() - 2)).to(weight.dtype)


def regroup(group_in: np.ndarray, group_out: np.ndarray) -> int | None:
    """The number of groups that kept inputs and outputs still form, block by block; None where they do not."""
    groups = len(np.unique(group_in))
    if not groups or len(group_in) % groups or len(group_out) % groups or not len(group_out):
        return None
    blocks_in, blocks_out = group_in.reshape(groups, -1), group_out.reshape(groups, -1)
    tidy = (blocks_in == blocks_in[:, :1]).all() and (blocks_out == blocks_out[:, :1]).all()
    return groups if tidy and (blocks_in[:, 0] == blocks_out[:, 0]).all() else None


def _replace_norms(bp: Blueprint, new: nn.Module, draft: Draft) -> None:
    for site in bp.sites:
        if site.kind not in ("layer_norm", "group_norm") or site.reads is None:
            continue
        old = new.get_submodule(site.module)
        if not isinstance(old, (nn.LayerNorm, nn.GroupNorm)):
            continue
        axis = draft.axes[site.weight][0] if site.weight else None
        before = bp.axes[site.weight][0] if site.weight else None
        if (
            axis is None or before is None or len(axis) == len(before)
        ):  # of several heads it reads more than its weight has
            continue
        module = _sparse_norm(bp, site, old, axis)
        module.weight, module.bias = old.weight, old.bias
        for name, layer in old.named_children():  # what comes behind, in norms that bring their activation
            module.add_module(name, layer)
        weight = old.weight
        module.to(device=weight.device)
        for name, buffer in module.named_buffers():
            setattr(module, name, buffer.to(weight.dtype))
        parent, _, leaf = site.module.rpartition(".")
        setattr(new.get_submodule(parent), leaf, module)


def _sparse_norm(bp: Blueprint, site: LayerSite, old: nn.Module, axis: np.ndarray) -> SparseLayerNorm | SparseGroupNorm:
    assert site.reads is not None
    inner = {o.name for o in bp.graph.live() if o.module == site.module}
    plain = {
        "aten.native_layer_norm.default",
        "aten.native_group_norm.default",
        "aten.permute.default",
        "aten.transpose.int",
        "aten.clone.default",
        "aten.view.default",
        "aten._to_copy.default",
    }
    if inner - plain or not hasattr(old, "eps"):
        raise Unsupported(
            f"{site.module} ({type(old).__name__}) normalises channels together in its own way "
            f"({', '.join(sorted(inner - plain))}); its channels cannot be cut exactly"
        )
    if site.kind == "layer_norm":
        source = bp.graph.module_inputs[site.module]
        dim = -1 if source.shape[-1] == len(site.reads) and site.raw.input is source else 1
        return SparseLayerNorm(len(axis), len(site.reads), eps=old.eps, dim=dim, bias=old.bias is not None)  # type: ignore
    places = locate(site.reads, axis)
    size = len(site.reads) // site.groups
    member = torch.zeros(site.groups, len(axis))
    member[torch.from_numpy(places // size), torch.arange(len(axis))] = 1
    return SparseGroupNorm(member[member.any(1)], size, eps=old.eps)  # type: ignore[arg-type]
