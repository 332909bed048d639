"""Select and permute: new modules from old ones, channel by channel, proved before they are returned.

The new module is the old one's structure with re-indexed tensors. Before it is handed out it is recorded
again on shapes alone, and every meeting of two tensors is checked: the channels that arrive at a layer must
be exactly the ones its weights were built for. What does not hold is mended where only an order differs,
and refused by name otherwise; nothing wrong leaves this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.building import Draft, build, drafted_numbers, locate
from brickwork.blueprint.gather import with_gathers
from brickwork.blueprint.prove import (
    Drawn,
    Sides,
    on_meta,
    output_places,
    precision,
    proof_input,
    prove,
    run,
    scrambled,
)
from brickwork.blueprint.request import as_indices, check_model, example_to_json, kept_indices
from brickwork.copying import collector_paused, copy_module, keep_modes
from brickwork.errors import BadModel, RequestError, Unsupported
from brickwork.origin import attach, origin_of

if TYPE_CHECKING:
    from brickwork.blueprint.plan import Blueprint, Layout


def select(bp: Blueprint, model: nn.Module, keep: Mapping[str, Any], *, round_to: int | None = None) -> nn.Module:
    check_model(bp, model)
    kept = kept_indices(bp, keep, round_to)
    gone = _gone(bp, kept)
    _refuse_empty(bp, gone)
    with collector_paused():
        small = _cut(bp, model, gone)
    unsorted = {n: np.argsort(np.argsort(ids)) for n, ids in kept.items() if (np.diff(ids) < 0).any()}
    step = {"op": "select", "keep": {n: ids.tolist() for n, ids in kept.items()}}
    finish(bp, model, small, step)
    if not unsorted:
        return small
    return _reorder(small, bp, kept)


def _gone(bp: Blueprint, kept: Mapping[str, np.ndarray]) -> np.ndarray:
    """The units that are not kept."""
    return np.concatenate([np.zeros(0, np.int64), *(np.delete(bp.space(name).units, i) for name, i in kept.items())])


def _refuse_empty(bp: Blueprint, gone: np.ndarray) -> None:
    lost = _lost(bp, gone)
    for name, axes in bp.axes.items():
        for axis in axes:
            if axis is not None and lost[axis.units].all() and not _whole_part(bp, name, lost):
                made = np.flatnonzero(np.isin(bp.output_units, axis.units))
                if len(made) == len(axis.units):
                    some = ", ".join(map(str, made[:10])) + (", …" if len(made) > 10 else "")
                    raise RequestError(
                        f"a part needs one or more of the classes that {name} makes, which are the model's outputs "
                        f"{some}; keep one of them too"
                    )
                raise RequestError(f"nothing would be left of {name} (an axis over {axis}); keep a channel of it")


def _whole_part(bp: Blueprint, name: str, lost: np.ndarray) -> bool:
    """In a joined network a part may go as a whole: all that its layer makes."""
    owner, result, rest = name.rpartition(".parts.")
    weight = f"{owner}.parts.{rest.split('.')[0]}.weight" if result else ""
    layout = bp.axes.get(weight, (None,))[0]
    return layout is not None and bool(lost[layout.units].all())


def _cut(bp: Blueprint, model: nn.Module, gone: np.ndarray) -> nn.Module:
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
        units = [blueprint.space(name).units[index] for name, _, index in bp.places(gone)]
        try:
            return _proved_cut(blueprint, module, np.concatenate(units))
        except Unsupported:
            raise refusal from None


def _proved_cut(bp: Blueprint, model: nn.Module, gone: np.ndarray) -> nn.Module:
    """Built and proved; a second time without guesses, should a number only have looked like a width."""
    try:
        return _try_cut(bp, model, gone, guess=True)
    except Unsupported as refusal:
        try:
            return _try_cut(bp, model, gone, guess=False)
        except Unsupported:
            raise refusal from None


def _try_cut(bp: Blueprint, model: nn.Module, gone: np.ndarray, *, guess: bool) -> nn.Module:
    lost = _lost(bp, gone)
    draft = _draft(bp, lambda units: units[~lost[units]])
    draft.guess = guess
    small = build(bp, model, draft)
    if not on_meta(model):
        dtype = precision(bp, model)
        places = output_places(bp, lost)

        def sides(how: Drawn) -> Sides:
            twin = scrambled(model, 0, dtype, how=how)
            part = scrambled(small, 0, dtype, drafted_numbers(bp, twin, small, draft), how)
            _blank(bp, twin, gone, finite=not how.startswith("own"), layers=how.endswith("layers"))
            # a number that only looked like a width may show at full size alone
            ask = partial(run, twin, output=bp.output)
            example, answer = proof_input(bp.example, dtype, ask, asked=[twin], pixels=not draft.guessed, how=how)

            def reference() -> Tensor:
                full = ask(example) if answer is None else answer
                return full if places is None else full.index_select(*places)

            return lambda: run(part, example, bp.output), reference

        prove(sides, "this cut")
    return small


def permute(bp: Blueprint, model: nn.Module, order: Mapping[str, Any]) -> nn.Module:
    check_model(bp, model)
    to: dict[int, int] = {}
    for name, what in order.items():
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
            raise BadModel(f"channels {a} and {b} of space {name!r} live in different layers and cannot change places")
        to.update({int(u): int(v) for u, v in zip(space.units, space.units[indices], strict=True)})
    draft = _draft(bp, lambda units: np.array([to.get(int(u), int(u)) for u in units], np.int64))
    moved = build(bp, model, draft)
    if not on_meta(model):
        dtype = precision(bp, model)
        back = torch.from_numpy(locate(bp.output_units, draft_output(bp, to)))

        def sides(how: Drawn) -> Sides:
            twin = scrambled(model, 0, dtype, how=how)
            turned = scrambled(moved, 0, dtype, drafted_numbers(bp, twin, moved, draft), how)
            ask = partial(run, twin, output=bp.output)
            example, answer = proof_input(bp.example, dtype, ask, asked=[twin], how=how)

            def reference() -> Tensor:
                full = ask(example) if answer is None else answer
                return full if bp.output_dim is None else full.index_select(bp.output_dim, back)

            return lambda: run(turned, example, bp.output), reference

        prove(sides, "this order")
    finish(bp, model, moved, {"op": "permute", "order": {n: [int(i) for i in o] for n, o in order.items()}})
    return moved


def draft_output(bp: Blueprint, to: dict[int, int]) -> np.ndarray:
    return np.array([to.get(int(u), int(u)) for u in bp.output_units], np.int64)


def zero(bp: Blueprint, model: nn.Module, keep: Mapping[str, Any]) -> nn.Module:
    check_model(bp, model)
    return _blank(bp, copy_module(model), _gone(bp, kept_indices(bp, keep)))


def _blank(
    bp: Blueprint, blank: nn.Module, gone: np.ndarray, *, finite: bool = False, layers: bool = False
) -> nn.Module:
    """In place: zeros wherever a weight makes or reads what goes.

    finite: no parameter is NaN or infinite. layers: only in weights and biases of layers.
    """
    lost = _lost(bp, gone)
    own = {name for s in bp.sites for name in (s.weight, s.bias)} if layers else bp.axes
    tensors = dict([*blank.named_parameters(remove_duplicate=False), *blank.named_buffers(remove_duplicate=False)])
    grouped = {s.weight for s in bp.sites if s.kind == "conv" and s.groups > 1}
    places: dict[int, Tensor] = {}  # of axes that run over the same, found once
    with torch.no_grad():
        for name, axes in bp.axes.items():
            tensor = tensors[name]
            for dim, axis in enumerate(axes):
                if axis is None or tensor.dim() == 0 or name not in own:
                    continue
                if id(axis) not in places:
                    places[id(axis)] = torch.from_numpy(np.flatnonzero(lost[axis.units]))
                there = places[id(axis)]
                if (
                    len(there)
                    and finite
                    and isinstance(tensor, nn.Parameter)
                    and tensor.dim() > 1
                    and tensor.is_contiguous()
                ):
                    _multiply_out(tensor, dim, there)
                elif len(there):
                    tensor.index_fill_(dim, there.to(tensor.device), 0)
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


def _multiply_out(tensor: Tensor, dim: int, places: Tensor) -> None:
    """Times 0 at some places of an axis: of numbers that are finite, in a third of the time that filling takes."""
    inner = tensor.shape[dim + 1 :].numel()
    factor = tensor.new_ones(tensor.shape[dim]).index_fill_(0, places, 0)
    if dim == 0:
        tensor.view(-1, inner).mul_(factor.unsqueeze(1))
    else:  # as long as a row of memory, which is multiplied at once
        tensor.view(-1, len(factor) * inner).mul_(factor.repeat_interleave(inner))


def _lost(bp: Blueprint, gone: np.ndarray) -> np.ndarray:
    """For every unit, whether it goes."""
    table = np.zeros(len(bp.classes), bool)
    table[gone] = True
    return table


def _draft(bp: Blueprint, change: Any) -> Draft:
    changed: dict[int, np.ndarray] = {}  # axes that run over the same share a layout, and then what becomes of it

    def axis(layout: Layout | None) -> np.ndarray | None:
        if layout is None:
            return None
        if id(layout) not in changed:
            changed[id(layout)] = change(layout.units)
        return changed[id(layout)]

    axes = {n: [axis(a) for a in layouts] for n, layouts in bp.axes.items()}
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
    keep_modes(new, model)


def _reorder(small: nn.Module, bp: Blueprint, kept: dict[str, np.ndarray]) -> nn.Module:
    """Indices were given in an order of their own: follow it."""
    from brickwork.blueprint.plan import trace

    fresh = trace(small, bp.example, output=bp.output)
    order = {}
    for name, ids in kept.items():
        if (np.diff(ids) < 0).any():
            if name not in fresh.spaces:  # of a layer with one row left nothing says which class it makes
                raise Unsupported(
                    f"the channels of {name!r} cannot be put in an order of their own here; give them rising"
                )
            order[name] = np.argsort(np.argsort(np.sort(ids)))[np.argsort(np.argsort(ids))]
    moved = permute(fresh, small, order)
    origin = origin_of(small)
    classes = origin.classes
    if classes and "classes" in order:
        classes = tuple(classes[i] for i in order["classes"])
    attach(moved, origin.after(origin_of(moved).steps[-1], classes=classes))
    return moved
