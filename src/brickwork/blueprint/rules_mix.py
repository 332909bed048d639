"""Operations that mix channels through parameters: convolution, matrix products, normalisation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from brickwork.blueprint.labels import Tags, align, touches, varies
from brickwork.blueprint.record import Op, Value
from brickwork.blueprint.walk import Site, Walk, merge_planes, rule


def along(tags: Tags, dim: int) -> Tensor | None:
    """The plane that changes along one axis only."""
    return next((p.reshape(-1) for p in tags.planes if varies(p) == {dim}), None)


def _read(walk: Walk, labels: Tensor | None, reads: Tensor | None, weight: Tags, op: Op) -> None:
    """A weight's input axis runs over what it reads; what belongs to no channel makes a plain axis."""
    if labels is None:
        return
    if reads is None:
        walk.units.fix(labels, "it reads what belongs to no channel (the model's input, say)", channel=False)
        return
    walk.meet(labels, reads, weight, op)


def _channel_labels(walk: Walk, value: Value, dim: int, op: Op) -> Tensor | None:
    """The labels of a tensor along its channel axis, units that differ along other axes being united."""
    plane = walk.of(value).plane
    if plane is None:
        return None
    plane = align(plane, len(value.shape))
    if dim not in varies(plane):
        labels = walk.collapse(plane, varies(plane), op).reshape(-1)
        return labels.expand(value.shape[dim])
    return walk.collapse(plane, varies(plane) - {dim}, op).reshape(-1)


@rule("convolution", "_convolution", "convolution_overrideable")
def convolution(walk: Walk, op: Op) -> None:
    x, w, b = op.args[:3]
    transposed, groups = bool(op.args[6]), int(op.args[8])
    weight, out = walk.of(w), op.outputs[0]
    assert out is not None
    if not weight.weight or (walk.of(b).planes and not walk.of(b).weight):
        walk.freeze(op, "a convolution whose kernel is computed from its input")
        return
    reads = _channel_labels(walk, x, 1, op)
    for plane in weight.planes:
        if varies(plane) - {0, 1} or len(varies(plane)) > 1:
            walk.units.fix(plane, "a kernel axis", channel=False)
    axes = [along(weight, 0), along(weight, 1)]
    rows, columns = (axes[1], axes[0]) if transposed else (axes[0], axes[1])
    channels = out.shape[1]
    if not weight.zero:  # a kernel that is not 0 where its parameters are: zeroing cannot stand for cutting
        for plane in weight.planes:
            walk.units.fix(plane, f"its kernel is computed in a way that does not keep zeros ({op.place})")
    bare = axes[0 if transposed else 1] is None and w.shape[0 if transposed else 1] > 1
    if groups == 1 and bare and reads is not None:
        walk.units.fix(reads, f"it is read by a kernel that is not a parameter ({op.place})")
    if groups == 1:
        _read(walk, columns, reads, weight, op)
        makes = rows
        if makes is None:  # a layer with one output channel has no axis to cut
            makes = torch.zeros(channels, dtype=torch.int64)
    else:
        makes = _grouped(walk, op, w, reads, groups, transposed)
    bias = along(walk.of(b), 0) if isinstance(b, Value) else None
    if bias is not None and len(bias) == len(makes):
        walk.meet(bias, makes, walk.of(b), op)
    walk.put(out, Tags([makes.reshape(1, -1, *([1] * (len(out.shape) - 2)))], zero=True))
    spatial = math.prod(x.shape[2:]) if transposed else math.prod(out.shape[2:])
    walk.sites.append(
        Site(
            "conv",
            op.module,
            weight.source,
            walk.of(b).source if isinstance(b, Value) else None,
            reads,
            makes,
            groups,
            transposed,
            spatial,
            math.prod(w.shape[2:]),
            x,
            out,
            op,
        )
    )


def _grouped(walk: Walk, op: Op, w: Value, reads: Tensor | None, groups: int, transposed: bool) -> Tensor:
    """Labels of a grouped convolution's output; its second weight axis is local to a group, so no channel axis."""
    weight = walk.of(w)
    first, local = along(weight, 0), along(weight, 1)
    if local is not None:
        walk.units.fix(local, "places within a group", channel=False)
    if first is None and w.shape[0] > 1 and reads is not None:
        if weight.source is not None and w.shape[1] == 1 and w.shape[0] == groups and not transposed:
            return reads  # one kernel for all channels (blur pooling): each channel for itself
        walk.units.fix(reads, f"it is read by a kernel that is not a parameter ({op.place})")
    first = first if first is not None else torch.zeros(w.shape[0], dtype=torch.int64)
    source = reads if reads is not None else torch.zeros(groups, dtype=torch.int64)
    if (
        not transposed and w.shape[1] == 1 and not walk.units.grouped(weight.source)
    ):  # depthwise: an input channel and what is made of it live together
        walk.unite_groups(first, source, groups, weight, op)
        return first
    walk.units.meet_groups(reads, weight.source, op.place)
    if not transposed:
        return first
    if w.shape[0] == groups and w.shape[1] == 1:
        walk.meet(first, source, weight, op)
        return first
    walk.units.fix(first, "a grouped transposed convolution", channel=False)
    if reads is not None:
        walk.units.fix(reads, f"it is read by a grouped transposed convolution ({op.place})")
    return torch.zeros(groups * w.shape[1], dtype=torch.int64)


@rule("mm", "bmm", "matmul", "mv", "dot")
def product(walk: Walk, op: Op) -> None:
    contract(walk, op, op.args[0], op.args[1], None)


@rule("addmm", "baddbmm", "addbmm")
def add_product(walk: Walk, op: Op) -> None:
    contract(walk, op, op.args[1], op.args[2], op.args[0])


@rule("linear")
def linear(walk: Walk, op: Op) -> None:
    x, w = op.args[0], op.args[1]
    b = op.args[2] if len(op.args) > 2 else None
    turned = Value(-2 - w.index, (w.shape[1], w.shape[0]), w.dtype)
    tags = walk.of(w)
    walk.tags[turned.index] = Tags([p.t() for p in tags.planes], tags.zero, tags.weight, tags.source)
    contract(walk, op, x, turned, b)


def contract(walk: Walk, op: Op, a: Value, b: Value, bias: Value | None) -> None:
    """A product over the last axis of `a` and the one-before-last of `b`.

    With a weight, the weight's input axis runs over the channels of the other operand. Between two
    activations (attention) the contracted channels of one batch entry (a head) become one unit, but for heads that are
    open: their channels go by themselves.
    """
    ta, tb, out = walk.of(a), walk.of(b), op.outputs[0]
    assert out is not None
    for tags in (ta, tb):
        if tags.weight and not tags.zero:
            for plane in tags.planes:
                walk.units.fix(plane, f"its weights are computed in a way that does not keep zeros ({op.place})")
    if len(a.shape) < 2 or len(b.shape) < 2:
        walk.freeze(op, "a product with a vector")
        return
    ndim = max(len(a.shape), len(b.shape))
    if op.module in walk.graph.open_heads and not ta.weight and not tb.weight and len(tb.planes) == 1:
        _within_heads(walk, op, a, b, ndim)
        return
    pa, pb = [align(p, ndim) for p in ta.planes], [align(p, ndim) for p in tb.planes]
    ka, kb = ndim - 1, ndim - 2  # the contracted axis in each operand
    over_a, over_b = [p for p in pa if ka in varies(p)], [p for p in pb if kb in varies(p)]
    rest_a, rest_b = [p for p in pa if ka not in varies(p)], [p for p in pb if kb not in varies(p)]
    label: list[Tensor] = []
    if len(over_a) > 1 or len(over_b) > 1:
        walk.freeze(op, "a product over two channel axes at once")
        return
    if over_a and over_b:
        left = walk.collapse(over_a[0], {ndim - 2}, op)
        right = walk.collapse(over_b[0], {ndim - 1}, op).transpose(-1, -2)
        if tb.weight and not ta.weight and len(varies(right)) == 1 and len(varies(left)) == 1:
            _read(walk, right.reshape(-1), left.reshape(-1), tb, op)
        else:
            walk.units.unite(left, right, op.place)
        if not ta.weight and not tb.weight:
            label = [walk.collapse(left, {ka}, op)]
    else:
        for result, other in ((over_a, tb), (over_b, ta)):
            if result:
                plain = (ta if result is over_a else tb).weight
                why = "it is contracted with what belongs to no channel"
                walk.units.fix(result[0], f"{why} ({op.place})", channel=not plain)
                if not plain and not other.weight:
                    walk.mix(op, f"{why}")
    if not ta.weight and not tb.weight:
        _note_attention(walk, op, a, out, [*label, *rest_a, *rest_b])
    shape = tuple(out.shape)
    batch = [(_ghost(a, ndim), Tags(rest_a)), (_ghost(b, ndim), Tags(rest_b))]
    planes = _product_planes(walk, op, batch, label, ta, tb, shape)
    if bias is not None:
        planes = merge_planes(walk, op, [(Value(-1, shape, out.dtype), Tags(planes)), (bias, walk.of(bias))], shape)
    # zero where a factor is zero in the very units of the result, and the bias too
    factors = [*(label if ta.zero or tb.zero else ()), *(rest_a if ta.zero else ()), *(rest_b if tb.zero else ())]
    zero = all(touches(factors, units) for units in planes)
    if bias is not None:
        known = walk.of(bias)
        own = [align(p, len(shape)) for p in known.planes] if known.zero else []
        zero = zero and all(touches(own, units) for units in planes)
    walk.put(out, Tags(planes, zero=zero, weight=ta.weight and tb.weight))
    _note_linear(walk, op, a, b, bias, planes, out)


def _within_heads(walk: Walk, op: Op, a: Value, b: Value, ndim: int) -> None:
    """A product in an open attention: queries with keys, whose dimensions meet, or values with weights of no channel."""
    ta, tb, out = walk.of(a), walk.of(b), op.outputs[0]
    assert out is not None
    inner, result = align(tb.planes[0], ndim), [align(tb.planes[0], ndim)]
    if ta.planes:
        keys = walk.collapse(inner, {ndim - 1}, op).transpose(-1, -2)
        inner, result = walk.collapse(align(ta.planes[0], ndim), {ndim - 2}, op), []
        walk.units.unite(inner, keys, op.place)
    walk.units.open_heads(inner, op.place)
    _note_attention(walk, op, a, out, [inner])
    walk.put(out, Tags(result, zero=tb.zero))


def _note_attention(walk: Walk, op: Op, a: Value, out: Value, labels: list[Tensor]) -> None:
    macs = math.prod(out.shape) * a.shape[-1]
    heads = next((p.reshape(-1) for p in labels if varies(p)), None)
    walk.sites.append(Site("attention", op.module, None, None, heads, None, positions=macs, input=a, output=out, op=op))


def _ghost(value: Value, ndim: int) -> Value:
    return Value(-1, (1,) * (ndim - len(value.shape)) + tuple(value.shape), value.dtype)


def _product_planes(
    walk: Walk, op: Op, batch: list[tuple[Value, Tags]], label: list[Tensor], ta: Tags, tb: Tags, shape: tuple[int, ...]
) -> list[Tensor]:
    ndim = len(shape)
    result: list[Tensor] = list(label)
    order = [(batch[0][1].planes, ta.weight), (batch[1][1].planes, tb.weight)]
    if ta.weight and not tb.weight:
        order.reverse()
    for planes, is_weight in order:  # the activation first: its channels are the ones to keep
        for plane in planes:
            plane = align(plane, ndim)
            for k, other in enumerate(result):
                if varies(plane) & varies(other):
                    walk.units.unite(plane, other, op.place)
                    result[k] = plane if len(varies(plane)) > len(varies(other)) else other
                    break
            else:
                if result and not (ta.weight and tb.weight):
                    walk.units.fix(plane, f"two channel axes meet at {op.place}", channel=not is_weight)
                    if not is_weight:
                        walk.units.fix(result[0], f"two channel axes meet at {op.place}")
                        walk.mix(op, "two channel axes meet")
                else:
                    result.append(plane)
    return result


def _note_linear(walk: Walk, op: Op, a: Value, b: Value, bias: Value | None, planes: list[Tensor], out: Value) -> None:
    tb = walk.of(b)
    if not tb.weight or tb.source is None or walk.of(a).weight:
        return
    reads = next((p.reshape(-1) for p in walk.of(a).planes if varies(p) == {len(a.shape) - 1}), None)
    makes = next((p.reshape(-1) for p in planes if varies(p) == {len(out.shape) - 1}), None)
    source = walk.of(bias).source if bias is not None else None
    positions = math.prod(a.shape[:-1])
    walk.sites.append(
        Site("linear", op.module, tb.source, source, reads, makes, positions=positions, input=a, output=out, op=op)
    )


@rule("""
    native_batch_norm _native_batch_norm_legit_no_training _native_batch_norm_legit cudnn_batch_norm
    _native_batch_norm_legit_functional batch_norm _batch_norm_no_update
""")
def batch_norm(walk: Walk, op: Op) -> None:
    x = op.args[0]
    labels = _channel_labels(walk, x, 1, op) if not walk.of(x).weight else along(walk.of(x), 1)
    names = []
    for v in op.args[1:5]:
        tags = walk.of(v)
        if isinstance(v, Value) and tags.planes:
            own = along(tags, 0)
            assert own is not None
            if labels is None:
                walk.units.fix(own, "it reads what belongs to no channel", channel=False)
            else:
                walk.meet(own, labels, tags, op)
        names.append(tags.source)
    out = op.outputs[0]
    assert out is not None
    planes = [] if labels is None else [labels.reshape(1, -1, *([1] * (len(out.shape) - 2)))]
    if walk.of(x).weight:  # weight standardisation: statistics run over the other axes, which therefore must stay
        planes = [align(p, len(x.shape)) for p in walk.of(x).planes]
        for plane in planes:
            if varies(plane) - {1}:
                walk.units.fix(plane, f"its weights are standardised together ({op.place})")
    walk.put(out, Tags(planes, zero=True, weight=walk.of(x).weight, source=walk.of(x).source))
    for extra in op.outputs[1:]:
        walk.put(extra, Tags())
    walk.sites.append(
        Site(
            "batch_norm",
            op.module,
            names[0],
            names[1],
            labels,
            labels,
            input=x,
            output=out,
            op=op,
            positions=math.prod(out.shape[2:]),
        )
    )


def _normalised(tags: Tags, op: Op) -> str:
    filled = "" if tags.zero else ", where those that are cut would not be zero"
    return f"its channels are normalised together ({op.place}){filled}"


@rule("native_layer_norm", "layer_norm")
def layer_norm(walk: Walk, op: Op) -> None:
    x, normal = op.args[0], op.args[1]
    dims = set(range(len(x.shape) - len(normal), len(x.shape)))
    tags, out = walk.of(x), op.outputs[0]
    assert out is not None
    operands = [(x, tags), *((v, walk.of(v)) for v in op.args[2:4] if isinstance(v, Value))]
    planes = merge_planes(walk, op, operands, tuple(out.shape))
    inside = [p for p in planes if varies(p) & dims]
    if inside:
        labels = inside[0]
        if not tags.zero or varies(labels) - dims or len(normal) > 1:
            walk.units.fix(labels, _normalised(tags, op))
        walk.sites.append(
            Site(
                "layer_norm",
                op.module,
                walk.of(op.args[2]).source,
                walk.of(op.args[3]).source,
                labels.reshape(-1),
                labels.reshape(-1),
                input=x,
                output=out,
                op=op,
            )
        )
    affine = isinstance(op.args[2], Value)
    scaled = affine and all(varies(plane) & dims for plane in planes)  # what is cut has no weight and no bias
    walk.put(out, Tags(planes, zero=scaled or (tags.zero and not inside)))
    for extra in op.outputs[1:]:
        walk.put(extra, Tags())


@rule("native_group_norm", "group_norm")
def group_norm(walk: Walk, op: Op) -> None:
    x, groups = op.args[0], int(op.args[6])
    labels, out = _channel_labels(walk, x, 1, op), op.outputs[0]
    assert out is not None
    names = []
    for v in op.args[1:3]:
        if isinstance(v, Value) and labels is not None:
            own = along(walk.of(v), 0)
            if own is not None:
                walk.meet(own, labels, walk.of(v), op)
        names.append(walk.of(v).source)
    if labels is not None:
        if not walk.of(x).zero:
            walk.units.fix(labels, _normalised(walk.of(x), op))
        walk.sites.append(
            Site("group_norm", op.module, names[0], names[1], labels, labels, groups, input=x, output=out, op=op)
        )
    planes = [] if labels is None else [labels.reshape(1, -1, *([1] * (len(out.shape) - 2)))]
    walk.put(out, Tags(planes, zero=isinstance(op.args[1], Value)))
    for extra in op.outputs[1:]:
        walk.put(extra, Tags())
