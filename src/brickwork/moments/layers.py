"""Which layers of a recorded network can be solved for, and where their responses are compared.

A layer's response is taken behind its batch norm. Where that goes straight into a sum (a residual connection),
the response is the sum itself, so that what the other summand got wrong is made good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from brickwork.blueprint.record import Graph, Op, Value
from brickwork.blueprint.walk import rule_name
from brickwork.moments.batch_norm import is_plain, norm_behind


@dataclass(frozen=True)
class Layer:
    """One solvable layer of one recorded network."""

    path: str
    op: Op | None  # the convolution; None for a linear layer
    input: Value
    output: Value  # what the layer makes
    norm: str | None  # the batch norm right behind it
    own: Value  # what it makes, normalised by that; an activation within the norm's module comes after
    response: Value  # where it is compared: behind the norm, or the sum it goes into
    other: Value | None  # the sum's other summand
    passes: tuple[float, float] | None  # the response is read by rectifiers alone, and this much of it passes them


def find_layers(graph: Graph, model: nn.Module) -> list[Layer]:
    """Convolutions (plain, grouped, depthwise) and linear layers that run once, in the order of the forward."""
    ops = graph.live()
    readers: dict[int, list[Op]] = {}
    for op in ops:
        for value in op.inputs():
            readers.setdefault(value.index, []).append(op)
    norms = norm_behind(graph, model)
    result, seen = [], set()
    for op in ops:
        path = op.module
        module = model.get_submodule(path) if path else None
        if module is None or path in seen or graph.calls.get(path) != 1 or path not in graph.module_outputs:
            continue
        if not is_plain(graph, op, module) or _shared(graph, path, "weight", "bias"):
            continue
        if isinstance(module, _ConvNd) and not module.transposed:
            source, output, conv = op.args[0], op.outputs[0], op
        elif isinstance(module, nn.Linear) and path in graph.module_inputs:
            source, output, conv = graph.module_inputs[path], op.outputs[0], None
        else:
            continue
        seen.add(path)
        norm = norms.get(path)
        own = norm.outputs[0] if norm else output
        assert own is not None and output is not None
        total, other = _sum_behind(own, readers)
        behind = norm.module if norm else None
        passes = _passing((total or own).index, readers, graph)
        result.append(Layer(path, conv, source, output, behind, own, total or own, other, passes))
    return result


def _passing(index: int, readers: dict[int, list[Op]], graph: Graph) -> tuple[float, float] | None:
    """Between which bounds a value reaches whatever reads it; None where some of it does in another form."""
    if index == graph.output.index:
        return None
    found = {_bounds(op) for op in readers.get(index, [])}
    return found.pop() if len(found) == 1 else None


def _bounds(op: Op) -> tuple[float, float] | None:
    name = "" if isinstance(op.func, str) else op.func._schema.name.removeprefix("aten::").removesuffix("_")
    if name == "relu":
        return 0.0, math.inf
    if name == "hardtanh":  # ReLU6, by its bounds
        given = [float(bound) for bound in op.args[1:3]]
        low, high = given + [-1.0, 1.0][len(given) :]
        return low, high
    return None


def _shared(graph: Graph, path: str, *names: str) -> bool:
    """Whether a parameter has a second owner, which a new weight would change as well."""
    mine = [graph.tensors.get(f"{path}.{name}") for name in names]
    return any(value is not None and sum(v is value for v in graph.tensors.values()) > 1 for value in mine)


def _sum_behind(point: Value, readers: dict[int, list[Op]]) -> tuple[Value | None, Value | None]:
    after = readers.get(point.index, [])
    if len(after) != 1 or rule_name(after[0]) != "add" or after[0].kwargs.get("alpha", 1) != 1:
        return None, None
    op = after[0]
    sides = [a for a in op.args[:2] if isinstance(a, Value)]
    if len(sides) != 2 or sides[0] is sides[1] or sides[0].shape != sides[1].shape:
        return None, None
    other = sides[1] if sides[0] is point else sides[0]
    return (op.outputs[0], other) if other.name is None else (None, None)


def ancestors(graph: Graph, value: Value) -> set[int]:
    """Indices of every value that this one is computed from, itself among them."""
    made_by = {v.index: op for op in graph.live() for v in op.outputs if v is not None}
    result, pending = set(), [value]
    while pending:
        current = pending.pop()
        if current.index not in result:
            result.add(current.index)
            if current.index in made_by:
                pending.extend(made_by[current.index].inputs())
    return result


def positions(layer: Layer, limit: int | None, seed: int, before: int) -> Tensor | None:
    """Which output places of a batch to use: all (None), or a sorted random sample of at most `limit`.

    before: how many images come before the batch, so that the sample is the same whichever process draws it.
    """
    places = math.prod(layer.output.shape[2:]) if layer.op is not None else 1
    if limit is None or places <= limit or layer.op is None:
        return None
    drawn = np.random.default_rng([seed, before]).permutation(places)[:limit]
    return torch.from_numpy(np.sort(drawn))


def patches(layer: Layer, x: Tensor, chosen: Tensor | None) -> Tensor:
    """What a convolution reads at each place: (groups, rows, channels of a group × kernel places)."""
    assert layer.op is not None
    stride, padding, dilation = layer.op.args[3:6]
    groups, kernel = int(layer.op.args[8]), layer.op.args[1].shape[2:]
    out = layer.output.shape[2:]
    pad = [p for amount in reversed(full_size(padding, len(kernel))) for p in (amount, amount)]
    x = nn.functional.pad(x, pad) if any(pad) else x
    sizes = x.shape[2:]
    places = torch.arange(math.prod(out), device=x.device) if chosen is None else chosen.to(x.device)
    index = torch.zeros(len(places), math.prod(kernel), dtype=torch.int64, device=x.device)
    taps = torch.arange(math.prod(kernel), device=x.device)
    step = 1
    for d in reversed(range(len(kernel))):
        inner_out, inner_kernel = math.prod(out[d + 1 :]), math.prod(kernel[d + 1 :])
        where = (places // inner_out % out[d]) * full_size(stride, len(kernel))[d]
        tap = (taps // inner_kernel % kernel[d]) * full_size(dilation, len(kernel))[d]
        index += (where[:, None] + tap[None, :]) * step
        step *= sizes[d]
    batch, channels = x.shape[:2]
    picked = x.flatten(2).index_select(2, index.reshape(-1))
    picked = picked.reshape(batch, groups, channels // groups, len(places), -1)
    return picked.permute(1, 0, 3, 2, 4).reshape(groups, batch * len(places), -1)


def responses(y: Tensor, groups: int, chosen: Tensor | None) -> Tensor:
    """A layer's outputs at the same places: (groups, rows, outputs of a group)."""
    flat = y.flatten(2)
    if chosen is not None:
        flat = flat.index_select(2, chosen.to(y.device))
    batch, channels, places = flat.shape
    return (
        flat.reshape(batch, groups, channels // groups, places).permute(1, 0, 3, 2).reshape(groups, batch * places, -1)
    )


def rows_of(layer: Layer, x: Tensor, y: Tensor, chosen: Tensor | None) -> tuple[Tensor, Tensor]:
    """What a layer reads and makes at the chosen places: (groups, rows, inputs) and (groups, rows, outputs)."""
    if layer.op is None:
        return x.reshape(1, -1, x.shape[-1]), y.reshape(1, -1, y.shape[-1])
    return patches(layer, x, chosen), responses(y, groups_of(layer), chosen)


def groups_of(layer: Layer) -> int:
    return int(layer.op.args[8]) if layer.op is not None else 1


def full_size(numbers: list[int], rank: int) -> list[int]:
    """A stride, padding or dilation for every axis; one number stands for all."""
    return list(numbers) * rank if len(numbers) == 1 else list(numbers)
