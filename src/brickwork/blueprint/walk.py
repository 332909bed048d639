"""Walk a recorded graph and label every tensor with the units its elements belong to.

One rule an operation, found by name in RULES; element-wise operations are known by PyTorch's own tag.
An operation with labelled inputs and no rule is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from brickwork.blueprint.labels import Tags, Units, align, touches, varies
from brickwork.blueprint.record import Graph, Op, Value, computed_weight
from brickwork.errors import Unsupported

Rule = Callable[["Walk", Op], None]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for ATen operations, by names with spaces between, without overload; in-place twins share it."""

    def register(function: Rule) -> Rule:
        for name in " ".join(names).split():
            RULES[name] = function
        return function

    return register


@dataclass
class Site:
    """One use of parameters: which layer, what it reads, what it makes."""

    kind: str  # conv, linear, batch_norm, layer_norm, group_norm
    module: str
    weight: str | None
    bias: str | None
    reads: Tensor | None  # labels of the input channels, in order; None: no channel labels
    makes: Tensor | None  # labels of the output channels, in order
    groups: int = 1
    transposed: bool = False
    positions: int = 1  # output places per example and channel: macs = positions · kernel · in/groups · out
    kernel: int = 1
    input: Value | None = None
    output: Value | None = None
    op: Op | None = None


@dataclass
class Walk:
    """The state of one walk; rules read and write it."""

    graph: Graph
    units: Units
    tags: dict[int, Tags] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    segments: list[Tensor] = field(default_factory=list)  # label sets that a split takes out of a layer's output
    mixes: list[tuple[str, str]] = field(default_factory=list)  # (module, how) channels meet without parameters
    gathers: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)  # (index buffer, source, result labels)
    axes: dict[str, list[Tensor | None]] = field(default_factory=dict)  # parameter -> labels of each axis
    zeros: dict[Any, bool] = field(default_factory=dict)  # element-wise functions that were tried: do they keep zeros

    def run(self, given: dict[str, list[Tensor | None]] | None = None) -> Walk:
        """Label parameters (afresh, or as given), then every live operation in order."""
        for name, value in self.graph.tensors.items():
            if value.index not in self.tags:
                labels = given[name] if given is not None else None
                self._tag_tensor(name, value, labels)
            self.axes[name] = self.axes[value.name or name]
        for op in self.graph.live():
            self.step(op)
        return self

    def _tag_tensor(self, name: str, value: Value, given: list[Tensor | None] | None) -> None:
        axes: list[Tensor | None] = []
        planes = []
        for dim, size in enumerate(value.shape):
            if given is not None:
                ids = given[dim]
            elif not value.dtype.is_floating_point:  # counters and index tables have no channels
                ids = None
            else:
                ids = self.units.fresh(size) if size > 1 else None
            axes.append(ids)
            if ids is not None:
                planes.append(ids.reshape([-1 if d == dim else 1 for d in range(len(value.shape))]))
        self.axes[name] = axes
        if value.name:
            self.axes[value.name] = axes
        self.tags[value.index] = Tags(planes, zero=True, weight=True, source=value.name or name)

    # -- what rules use ------------------------------------------------------------------------------------

    def of(self, value: Any) -> Tags:
        """The tags of a value; model inputs and constants have none."""
        if not isinstance(value, Value):
            return Tags(weight=True)
        return self.tags.setdefault(value.index, Tags(weight=value.constant is not None))

    def put(self, value: Value | None, tags: Tags) -> None:
        if value is not None:
            tags.planes = [p for p in tags.planes if varies(p) and bool(p.any())]
            self.tags[value.index] = tags

    def collapse(self, plane: Tensor, dims: set[int], op: Op) -> Tensor:
        """Unite the units along some axes, so that the plane no longer changes there."""
        for dim in sorted(dims & varies(plane)):
            first = plane.narrow(dim, 0, 1)
            self.units.unite(plane, first, op.place)
            plane = first
        return plane

    def meet(self, own: Tensor, labels: Tensor, tags: Tags, op: Op) -> None:
        """A parameter's axis (`own`) runs over the channels `labels`, place by place."""
        self.units.meet(own.reshape(-1), labels.reshape(-1), tags.source, op.place)

    def unite_groups(self, makes: Tensor, reads: Tensor, groups: int, tags: Tags, op: Op) -> None:
        """Depthwise: every group's outputs belong to the one channel the group reads."""
        repeated = reads.reshape(groups, 1).expand(groups, len(makes) // groups).reshape(-1)
        self.meet(makes, repeated, tags, op)

    def freeze(self, op: Op, why: str) -> None:
        """Units that enter this operation must all stay; what comes out belongs to no channel."""
        for value in op.inputs():
            for plane in self.of(value).planes:
                self.units.fix(plane, f"{why} ({op.place}{', ' + op.line if op.line else ''})")
        self.mix(op, why)
        for made in op.outputs:
            self.put(made, Tags(weight=all(self.of(v).weight for v in op.inputs())))

    def mix(self, op: Op, why: str) -> None:
        """Note that channels influence each other here, so that two networks cannot share the operation."""
        self.mixes.append((op.module, f"{why} ({op.place})"))

    def step(self, op: Op) -> None:
        labelled = [v for v in op.inputs() if self.of(v).planes]
        if not labelled:
            weight = all(self.of(v).weight for v in op.inputs())
            for made in op.outputs:
                self.put(made, Tags(weight=weight))
            return
        name = rule_name(op)
        result = RULES.get(name)
        if result is None and torch.Tag.pointwise in getattr(op.func, "tags", ()):
            result = RULES["pointwise"]
        layer, computed, tensor = op.module.partition(".parametrizations.")
        if result is None and computed:
            raise Unsupported(computed_weight(layer, op.name, tensor.partition(".")[0]))
        if result is None:
            raise Unsupported(
                f"no rule for the operation {op.name} in {op.module or 'the top module'}"
                f"{f' ({op.line})' if op.line else ''}: what it does to channels is unknown; replace it by "
                "operations of torch.nn, or keep it out of the traced part"
            )
        result(self, op)


def rule_name(op: Op) -> str:
    if isinstance(op.func, str):
        return op.func
    name = str(op.func._overloadpacket).removeprefix("aten.")
    return name.removesuffix("_") if not name.startswith("_") and name not in ("copy_", "fill_", "zero_") else name


def merge_planes(walk: Walk, op: Op, operands: list[tuple[Value, Tags]], shape: tuple[int, ...]) -> list[Tensor]:
    """Planes of an element-wise result: planes that change along common axes are united."""
    ndim = len(shape)
    merged: list[Tensor] = []
    owners: list[set[int]] = []
    for who, (_, tags) in enumerate(operands):
        for plane in tags.planes:
            plane = align(plane, ndim)
            dims = varies(plane)
            for k, other in enumerate(merged):
                if who in owners[k]:
                    continue
                if dims & varies(other):
                    walk.units.unite(plane, other, op.place)
                    if varies(other) < dims:
                        merged[k] = plane
                    elif varies(other) == dims:
                        merged[k] = torch.where(other == 0, plane, other)
                    owners[k].add(who)
                    break
            else:
                merged.append(plane)
                owners.append({who})
    kept = []
    for plane, owner in zip(merged, owners, strict=True):
        dims = varies(plane)
        bare = False
        for who, (value, _) in enumerate(operands):
            full = (1,) * (ndim - len(value.shape)) + tuple(value.shape)
            if who not in owner and any(full[d] > 1 for d in dims):
                bare = True
        if bare:
            walk.units.fix(
                plane, f"it meets values that belong to no channel at {op.place}", channel=_has_act(operands)
            )
        else:
            kept.append(plane)
    return kept


def _has_act(operands: list[tuple[Value, Tags]]) -> bool:
    """A parameter axis that meets nothing labelled (positions, say) is no channel axis; an activation's is."""
    return any(t.planes and not t.weight for _, t in operands) and not any(t.weight and t.planes for _, t in operands)


@rule(
    "pointwise",
    "_prelu_kernel",
    "where",
    "native_dropout",
    "dropout",
    "hardswish",
    "hardsigmoid",
    "hardtanh",
    "leaky_relu",
    "elu",
    "celu",
    "selu",
    "mish",
    "softplus",
    "softshrink",
    "hardshrink",
    "threshold",
    "relu6",
    "log_sigmoid_forward",
    "masked_fill",
    "clamp",
    "lerp",
    "nan_to_num",
    "rrelu_with_noise",
)
def pointwise(walk: Walk, op: Op) -> None:
    operands = [(v, walk.of(v)) for v in op.inputs()]
    shape = op.outputs[0].shape  # type: ignore[union-attr]
    planes = merge_planes(walk, op, operands, shape)
    tags = Tags(planes, zero=_stays_zero(op, walk, planes), weight=all(t.weight for _, t in operands))
    for value in op.outputs:
        walk.put(value, Tags(list(tags.planes), tags.zero, tags.weight))


def _stays_zero(op: Op, walk: Walk, planes: list[Tensor]) -> bool:
    """Is the result 0 wherever the operands known to be 0 are 0?"""
    ndim = max(len(v.shape) for v in op.inputs())

    def known(x: Any, units: Tensor) -> Any:
        """A value by its type, and whether it is 0; containers as tuples, so that the question can be looked up."""
        if isinstance(x, Value):
            tags = walk.of(x)
            # what has no channels, or others (a bias of places), is not 0 because these are
            return _Operand(x.dtype, tags.zero and touches((align(p, ndim) for p in tags.planes), units))
        return tuple(known(y, units) for y in x) if isinstance(x, (list, tuple)) else x

    for units in planes:
        args, kwargs = known(op.args, units), tuple((k, known(v, units)) for k, v in op.kwargs.items())
        key = (op.func, repr(args), repr(kwargs))
        if key not in walk.zeros:
            walk.zeros[key] = _gives_zero(op.func, args, dict(kwargs))
        if not walk.zeros[key]:
            return False
    return True


@dataclass(frozen=True)
class _Operand:
    """A tensor as an element-wise function sees it."""

    dtype: torch.dtype
    zero: bool


def _gives_zero(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Try the real function on three numbers."""

    def probe(x: Any) -> Any:
        if isinstance(x, _Operand):
            sample = torch.tensor([0.7, -1.3, 2.9]).to(x.dtype)
            return torch.zeros_like(sample) if x.zero else sample
        return [probe(y) for y in x] if isinstance(x, tuple) else x

    try:
        return bool((func(*probe(args), **{k: probe(v) for k, v in kwargs.items()}) == 0).all())
    except Exception:  # a function that cannot be tried on three numbers is simply not known to keep zeros
        return False


@rule("alias_update")
def alias_update(walk: Walk, op: Op) -> None:
    """A tensor shares memory with one that was written in place; only label-preserving writes are allowed."""
    old, new, name = op.args
    overload = name.removeprefix("aten.").split(".")[0]
    if overload in ("copy_", "fill_", "zero_", "index_put_", "masked_fill_"):
        raise Unsupported(
            f"{name} in {op.module or 'the top module'} ({op.line}) writes into a slice of a tensor; "
            "build the result with torch.cat or torch.where instead"
        )
    before, after = walk.of(old), walk.of(new)
    walk.put(op.outputs[0], Tags(list(before.planes), before.zero and after.zero, before.weight))


@rule("copy_")
def copy_(walk: Walk, op: Op) -> None:
    target, source = op.args[0], op.args[1]
    planes = merge_planes(walk, op, [(target, Tags()), (source, walk.of(source))], target.shape)
    tags = walk.of(source)
    walk.put(op.outputs[0], Tags(planes, tags.zero, tags.weight))


@rule("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like")
def like(walk: Walk, op: Op) -> None:
    """A fresh tensor that takes its shape from another follows that one's channels."""
    tags = walk.of(op.args[0])
    walk.put(op.outputs[0], Tags(list(tags.planes), zero=rule_name(op) == "zeros_like", weight=tags.weight))


@rule("zero_")
def zeroed(walk: Walk, op: Op) -> None:
    """Nothing but zeros, whatever they stood for."""
    tags = walk.of(op.args[0])
    walk.put(op.outputs[0], Tags(list(tags.planes), True, tags.weight))


@rule("new_zeros", "new_ones", "new_full", "new_empty", "fill_", "sym_size", "sym_stride")
def unlabelled(walk: Walk, op: Op) -> None:
    for value in op.outputs:
        walk.put(value, Tags())
