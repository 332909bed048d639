"""Select and permute: new modules from old ones, channel by channel, proved before they are returned.

The new module is the old one's structure with re-indexed tensors. Before it is handed out it is recorded
again on shapes alone, and every meeting of two tensors is checked: the channels that arrive at a layer must
be exactly the ones its weights were built for. What does not hold is mended where only an order differs,
and refused by name otherwise; nothing wrong leaves this file.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from brickwork.blueprint.attributes import patch_attributes
from brickwork.blueprint.gather import with_gathers
from brickwork.blueprint.labels import KnownUnits, Mismatch
from brickwork.blueprint.norms import SparseGroupNorm, SparseLayerNorm
from brickwork.blueprint.prove import on_meta, output_places, precision, prove, random_input, run, scrambled
from brickwork.blueprint.record import Graph, record
from brickwork.blueprint.request import as_indices, check_model, example_to_json, kept_indices
from brickwork.blueprint.walk import Walk
from brickwork.errors import BadModel, RequestError, UnknownName, Unsupported
from brickwork.origin import attach, origin_of

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
    gathers: dict[str, tuple[np.ndarray, np.ndarray]] = field(
        default_factory=dict
    )  # index buffer -> units from, to


def select(
    bp: Blueprint, model: nn.Module, keep: Mapping[str, Any], *, round_to: int | None = None
) -> nn.Module:
    check_model(bp, model)
    kept = kept_indices(bp, keep, round_to)
    gone = {int(u) for name, ids in kept.items() for u in np.delete(bp.space(name).units, ids)}
    _refuse_empty(bp, gone)
    small = _cut(bp, model, gone)
    unsorted = {n: np.argsort(np.argsort(ids)) for n, ids in kept.items() if (np.diff(ids) < 0).any()}
    step = {"op": "select", "keep": {n: ids.tolist() for n, ids in kept.items()}}
    finish(bp, model, small, step)
    if not unsorted:
        return small
    return _reorder(small, bp, kept, step)


def _refuse_empty(bp: Blueprint, gone: set[int]) -> None:
    lost = _lost(bp, gone)
    for name, axes in bp.axes.items():
        for axis in axes:
            if axis is not None and lost[axis.units].all() and not _whole_part(bp, name, lost):
                raise RequestError(
                    f"nothing would be left of {name} (an axis over {axis}); keep a channel of it"
                )


def _whole_part(bp: Blueprint, name: str, lost: np.ndarray) -> bool:
    """In a joined network a part may go as a whole: all that its layer makes."""
    owner, found, rest = name.rpartition(".parts.")
    weight = f"{owner}.parts.{rest.split('.')[0]}.weight" if found else ""
    layout = bp.axes.get(weight, (None,))[0]
    return layout is not None and bool(lost[layout.units].all())


def _cut(bp: Blueprint, model: nn.Module, gone: set[int]) -> nn.Module:
    """The model without some units: its own forward where that can be kept exact, else with explicit gathers."""
    try:
        return _proved_cut(bp, model, gone)
    except Unsupported as refusal:
        explicit = with_gathers(model, bp)
        if explicit is None:
            raise
        module, blueprint = explicit
        if blueprint.spaces != bp.spaces:
            raise
        lost = {int(u): bp.place(int(u)) for u in gone}
        units = {int(blueprint.space(name).units[k]) for name, k in lost.values()}
        try:
            return _proved_cut(blueprint, module, units)
        except Unsupported:
            raise refusal from None


def _proved_cut(bp: Blueprint, model: nn.Module, gone: set[int]) -> nn.Module:
    lost = _lost(bp, gone)
    draft = _draft(bp, lambda units: units[~lost[units]])
    try:
        small = build(bp, model, draft)
    except Unsupported:  # perhaps a number was taken for a width that only looks like one
        draft = _draft(bp, lambda units: units[~lost[units]])
        draft.guess = False
        small = build(bp, model, draft)
    if not on_meta(model):
        dtype = precision(bp, model)
        twin, example = scrambled(model, 0, dtype), random_input(bp.example, 1, dtype)
        places = output_places(bp, gone)

        def reference() -> Tensor:
            full = run(_blank(bp, twin, gone), example, bp.output)
            return full if places is None else full.index_select(*places)

        prove(bp, lambda: run(_assemble(bp, twin, draft), example, bp.output), reference, "this cut")
    return small


def permute(bp: Blueprint, model: nn.Module, order: Mapping[str, Any]) -> nn.Module:
    check_model(bp, model)
    to: dict[int, int] = {}
    for name, what in order.items():
        if name not in bp.spaces:
            raise UnknownName("channel space", name, bp.spaces)
        space = bp.space(name)
        indices = as_indices(what, space.size, name)
        if len(indices) != space.size:
            raise RequestError(
                f"an order of space {name!r} must name all its {space.size} channels, not {len(indices)}"
            )
        stuck = [k for k in space.fixed if indices[k] != k]
        if stuck:
            raise BadModel(f"channel {stuck[0]} of space {name!r} cannot move: {space.fixed[stuck[0]]}")
        kinds = bp.kinds(name)
        crossed = np.flatnonzero(kinds[indices] != kinds)
        if len(crossed):
            a, b = int(crossed[0]), int(indices[crossed[0]])
            raise BadModel(
                f"channels {a} and {b} of space {name!r} live in different layers and cannot change places"
            )
        to.update({int(u): int(v) for u, v in zip(space.units, space.units[indices], strict=True)})
    draft = _draft(bp, lambda units: np.array([to.get(int(u), int(u)) for u in units], np.int64))
    moved = build(bp, model, draft)
    if not on_meta(model):
        dtype = precision(bp, model)
        twin, example = scrambled(model, 0, dtype), random_input(bp.example, 1, dtype)
        back = torch.from_numpy(locate(bp.output_units, draft_output(bp, to)))

        def reference() -> Tensor:
            full = run(twin, example, bp.output)
            return full if bp.output_dim is None else full.index_select(bp.output_dim, back)

        prove(bp, lambda: run(_assemble(bp, twin, draft), example, bp.output), reference, "this order")
    finish(bp, model, moved, {"op": "permute", "order": {n: [int(i) for i in o] for n, o in order.items()}})
    return moved


def draft_output(bp: Blueprint, to: dict[int, int]) -> np.ndarray:
    return np.array([to.get(int(u), int(u)) for u in bp.output_units], np.int64)


def zero(bp: Blueprint, model: nn.Module, keep: Mapping[str, Any]) -> nn.Module:
    check_model(bp, model)
    kept = kept_indices(bp, keep)
    gone = {int(u) for name, ids in kept.items() for u in np.delete(bp.space(name).units, ids)}
    return _blank(bp, model, gone)


def _blank(bp: Blueprint, model: nn.Module, gone: set[int]) -> nn.Module:
    blank, lost = copy.deepcopy(model), _lost(bp, gone)
    tensors = dict(
        [*blank.named_parameters(remove_duplicate=False), *blank.named_buffers(remove_duplicate=False)]
    )
    grouped = {s.weight for s in bp.sites if s.kind == "conv" and s.groups > 1}
    with torch.no_grad():
        for name, axes in bp.axes.items():
            for dim, axis in enumerate(axes):
                if axis is None or tensors[name].dim() == 0:
                    continue
                places = np.flatnonzero(lost[axis.units])
                if len(places):
                    tensors[name].index_fill_(dim, torch.from_numpy(places).to(tensors[name].device), 0)
        for site in bp.sites:  # a grouped convolution's inputs are not an axis of its weight
            if site.weight in grouped and site.reads is not None and site.weight and not site.transposed:
                weight = tensors[site.weight]
                if weight.shape[0] % site.groups or weight.shape[0] * weight.shape[1] < len(site.reads):
                    continue  # one kernel expanded over all channels: nothing of it belongs to a channel
                dead = torch.from_numpy(lost[site.reads]).reshape(site.groups, -1)
                rows = dead.repeat_interleave(weight.shape[0] // site.groups, 0).to(weight.device)
                if rows.shape == weight.shape[:2]:
                    weight[rows] = 0
    return blank


def _lost(bp: Blueprint, gone: set[int]) -> np.ndarray:
    """For every unit, whether it goes."""
    table = np.zeros(len(bp.classes), bool)
    table[list(gone)] = True
    return table


def _draft(bp: Blueprint, change: Any) -> Draft:
    axes = {n: [None if a is None else change(a.units) for a in layout] for n, layout in bp.axes.items()}
    reads = {
        s.weight: change(s.reads)
        for s in bp.sites
        if s.kind == "conv" and s.groups > 1 and s.weight and s.reads is not None
    }
    gathers = {name: (change(a), change(b)) for name, (a, b) in bp.gathers.items()}
    return Draft(axes, reads, gathers=gathers)


def finish(bp: Blueprint, model: nn.Module, new: nn.Module, step: dict[str, Any]) -> None:
    """Write the step into the new module's origin, with what a replay needs, and give it the old one's mode."""
    step["example"], step["output"] = example_to_json(bp.example), bp.output
    origin = origin_of(model)
    classes = origin.classes
    if classes and "keep" in step and "classes" in step["keep"] and len(classes) == bp.spaces.get("classes"):
        classes = tuple(classes[i] for i in sorted(step["keep"]["classes"]))
    attach(new, origin.after(step, classes=classes))
    new.train(model.training)
    for mine, theirs in zip(new.modules(), model.modules(), strict=False):
        if type(mine) is type(theirs):
            mine.training = theirs.training


def _reorder(small: nn.Module, bp: Blueprint, kept: dict[str, np.ndarray], step: dict[str, Any]) -> nn.Module:
    """Indices were given in an order of their own: follow it."""
    from brickwork.blueprint.plan import trace

    fresh = trace(small, bp.example, output=bp.output)
    order = {}
    for name, ids in kept.items():
        if (np.diff(ids) < 0).any():
            order[name] = np.argsort(np.argsort(np.sort(ids)))[np.argsort(np.argsort(ids))]
    moved = permute(fresh, small, order)
    origin = origin_of(small)
    classes = origin.classes
    if classes and "classes" in order:
        classes = tuple(classes[i] for i in order["classes"])
    attach(moved, origin.after(origin_of(moved).steps[-1], classes=classes))
    return moved


# -- building ----------------------------------------------------------------------------------------------


def build(bp: Blueprint, model: nn.Module, draft: Draft) -> nn.Module:
    """Assemble the drafted model and prove it; orders that differ from what arrives are followed."""
    for _ in range(12):
        new = _assemble(bp, model, draft)
        try:
            graph = record(new, _fitting(bp.example, new), output=bp.output)
            units = KnownUnits(bp.classes, _group_reads(bp, draft))
            walk = Walk(graph, units)
            walk.run(given_labels(bp, graph, draft, units))
            _same_constants(bp.graph, graph)
        except (Mismatch, BadModel, IndexError, RuntimeError) as error:
            if not isinstance(error, Mismatch) or not _follow_gathers(draft, walk, units):
                raise _refused(error) from error
            continue
        if not (_follow(draft, units) | _follow_gathers(draft, walk, units)):
            return new
    raise Unsupported(
        "the order of channels did not settle after twelve tries; this model cannot be cut exactly"
    )


def _fitting(example: Any, model: nn.Module) -> Any:
    """The example in the precision of the model, which may have changed since the trace."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)

    def cast(x: Any) -> Any:
        return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() and dtype is not None else x

    return tree_map(cast, example)


def _refused(error: Exception) -> Exception:
    if isinstance(error, Unsupported):
        return error
    return Unsupported(
        f"this cut cannot be kept exact: {error}; keep whole groups (equal numbers where the forward splits, "
        "shuffles or reshapes channels), or choose other spaces"
    )


def given_labels(
    bp: Blueprint, graph: Graph, draft: Draft, units: KnownUnits
) -> dict[str, list[Tensor | None]]:
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
                given[name].append(ids[torch.from_numpy(locate(layout.units, axis))])
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
    return {
        name: reads for name, reads in draft.reads.items() if shapes[name][1] > 1 or _transposed(bp, name)
    }


def _transposed(bp: Blueprint, name: str) -> bool:
    return any(s.weight == name and s.transposed for s in bp.sites)


def _follow(draft: Draft, units: KnownUnits) -> bool:
    """Rebuild axes in the order in which channels really arrive. Says whether anything changed."""
    changed = False
    for (name, built), arrived in units.arrived.items():
        for dim, axis in enumerate(draft.axes.get(name, ())):
            if axis is not None and axis.tobytes() == built and not np.array_equal(axis, arrived.numpy()):
                draft.axes[name][dim] = arrived.numpy()
                if name in draft.reads and dim == 1:
                    draft.reads[name] = arrived.numpy()
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
        found: dict[str, list[float]] = {}
        for op in graph.live():
            kinds = (float, int) if torch.Tag.pointwise in getattr(op.func, "tags", ()) else float
            scalars = [a for a in (*op.args, *op.kwargs.values()) if isinstance(a, kinds)]
            found.setdefault(op.module, []).extend(scalars)
        return found

    old = numbers(before)
    for module, floats in numbers(after).items():
        if module in old and len(old[module]) == len(floats) and old[module] != floats:
            pair = next((a, b) for a, b in zip(old[module], floats, strict=True) if a != b)
            raise Mismatch(
                module or "the top module", f"a constant depends on the width ({pair[0]:g} → {pair[1]:g})"
            )


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


def _assemble(bp: Blueprint, model: nn.Module, draft: Draft) -> nn.Module:
    tensors = dict(
        [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    )
    memo: dict[int, Any] = {}
    grouped = {s.weight: s for s in bp.sites if s.kind == "conv" and s.groups > 1 and s.weight in draft.reads}
    for name, (source, result) in draft.gathers.items():
        memo[id(tensors[name])] = torch.from_numpy(locate(source, result)).to(tensors[name].device)
    for name, tensor in tensors.items():
        if id(tensor) in memo:
            continue
        site = grouped.get(name)
        if site is not None and not site.transposed and tensor.shape[1] > 1:
            data = _grouped_weight(tensor, site, draft, name)
        else:
            data = tensor.detach()
            for dim, axis in enumerate(draft.axes[name]):
                layout = bp.axes[name][dim]
                if axis is not None and layout is not None and not np.array_equal(axis, layout.units):
                    places = torch.from_numpy(locate(layout.units, axis)).to(tensor.device)
                    data = data.index_select(dim, places)
            if data.data_ptr() == tensor.data_ptr():
                data = data.clone()
        memo[id(tensor)] = (
            nn.Parameter(data, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else data
        )
    new = copy.deepcopy(model, memo)
    _replace_norms(bp, new, draft)
    patch_attributes(bp, model, new, draft, own=draft.guess)
    return new


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
        if axis is None or len(axis) == len(site.reads):
            continue
        module = _sparse_norm(bp, site, old, axis)
        module.weight, module.bias = old.weight, old.bias
        weight = old.weight
        module.to(device=weight.device)
        for name, buffer in module.named_buffers():
            setattr(module, name, buffer.to(weight.dtype))
        parent, _, leaf = site.module.rpartition(".")
        setattr(new.get_submodule(parent), leaf, module)


def _sparse_norm(
    bp: Blueprint, site: LayerSite, old: nn.Module, axis: np.ndarray
) -> SparseLayerNorm | SparseGroupNorm:
    assert site.reads is not None
    inner = {o.name for o in bp.graph.live() if o.module == site.module}
    plain = {"aten.native_layer_norm.default", "aten.native_group_norm.default", "aten.permute.default",
             "aten.transpose.int", "aten.clone.default", "aten.view.default", "aten._to_copy.default"}  # fmt: skip
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
