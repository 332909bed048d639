"""Operations over space leave channels alone; operations over channels keep them from being cut."""

from __future__ import annotations

from typing import Any

from brickwork.blueprint.labels import Tags, align, varies
from brickwork.blueprint.record import Op, Value
from brickwork.blueprint.walk import Walk, merge_planes, rule, rule_name

#: reductions that do not notice a missing channel whose values are zero
_ZERO_SAFE = {"sum", "linalg_vector_norm", "norm", "count_nonzero"}


@rule("""
    max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d max_pool1d
    max_pool2d adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d
    adaptive_max_pool3d adaptive_avg_pool2d adaptive_avg_pool3d fractional_max_pool2d upsample_nearest1d
    upsample_nearest2d upsample_nearest3d _upsample_nearest_exact2d _upsample_nearest_exact1d
    upsample_bilinear2d _upsample_bilinear2d_aa upsample_bicubic2d _upsample_bicubic2d_aa
    upsample_linear1d upsample_trilinear3d reflection_pad1d reflection_pad2d replication_pad1d
    replication_pad2d replication_pad3d grid_sampler_2d grid_sampler_3d max_pool1d_with_indices
    mkldnn_max_pool2d adaptive_max_pool1d
""")
def spatial(walk: Walk, op: Op) -> None:
    """Pooling, resizing and padding over space: every channel for itself."""
    x, out = op.args[0], op.outputs[0]
    assert out is not None
    tags = walk.of(x)
    places = _spatial_rank(rule_name(op))
    moved = set(range(len(x.shape) - places, len(x.shape)))
    planes = [walk.collapse(align(p, len(x.shape)), moved, op) for p in tags.planes]
    if any(walk.of(v).planes for v in op.inputs() if v is not x):
        walk.freeze(op, "a sampling grid computed from channels")
        return
    walk.put(out, Tags(planes, tags.zero, tags.weight))
    for places_of_largest in op.outputs[1:]:
        walk.put(places_of_largest, Tags(list(planes)))


@rule("max_unpool2d max_unpool3d")
def unpooled(walk: Walk, op: Op) -> None:
    """Every channel goes back to the places where its pooling found it."""
    x, out = op.args[0], op.outputs[0]
    assert out is not None
    merged = merge_planes(walk, op, [(v, walk.of(v)) for v in op.inputs()], x.shape)
    moved = set(range(len(x.shape) - _spatial_rank(rule_name(op)), len(x.shape)))
    walk.put(out, Tags([walk.collapse(p, moved, op) for p in merged], walk.of(x).zero))


def _spatial_rank(name: str) -> int:
    return next((n for n in (1, 2, 3) if f"{n}d" in name), 2)


@rule("""
    mean sum amax amin max min var var_mean std std_mean linalg_vector_norm norm prod logsumexp argmax
    argmin any all median count_nonzero nanmean aminmax
""")
def reduction(walk: Walk, op: Op) -> None:
    x = op.args[0]
    name, tags = rule_name(op), walk.of(x)
    if len(list(op.inputs())) > 1:  # max(a, b) is element-wise
        from brickwork.blueprint.walk import RULES

        RULES["pointwise"](walk, op)
        return
    out = op.outputs[0]
    assert out is not None
    dims = _reduced(op, name, len(x.shape))
    keep = len(out.shape) == len(x.shape)
    planes = []
    for plane in tags.planes:
        plane = align(plane, len(x.shape))
        if varies(plane) & dims:
            if name in _ZERO_SAFE and tags.zero:
                if not tags.weight:
                    walk.mix(op, f"a {name} over channels")
                if not varies(plane) - dims:
                    continue
                plane = walk.collapse(plane, varies(plane) & dims, op)
            else:
                walk.units.fix(plane, f"a {name} is taken over its channels ({op.place})", channel=not tags.weight)
                if not tags.weight:
                    walk.mix(op, f"a {name} over channels")
                continue
        kept = plane if keep else plane.squeeze(tuple(sorted(dims)))
        planes.append(kept)
    for value in op.outputs:
        walk.put(
            value, Tags(list(planes), tags.zero and name in {"mean", "sum", "amax", "amin", *_ZERO_SAFE}, tags.weight)
        )


def _reduced(op: Op, name: str, ndim: int) -> set[int]:
    place = 2 if name in ("linalg_vector_norm", "norm") else 1
    dim: Any = op.args[place] if len(op.args) > place else op.kwargs.get("dim")
    if dim is None or dim == []:
        return set(range(ndim))
    dims = [dim] if isinstance(dim, int) else dim
    return {d % ndim for d in dims} if not isinstance(dim, bool) else set(range(ndim))


@rule("""
    _softmax _log_softmax _safe_softmax softmax log_softmax cumsum cumprod sort topk argsort
    _softmax_backward_data kthvalue logcumsumexp
""")
def along_axis(walk: Walk, op: Op) -> None:
    """Softmax and its kind: harmless along tokens or space, never across channels."""
    x = op.args[0]
    tags = walk.of(x)
    position = 2 if rule_name(op) == "topk" else 1
    dim = op.args[position] if len(op.args) > position else op.kwargs.get("dim", -1)
    dim = dim % len(x.shape) if isinstance(dim, int) else len(x.shape) - 1
    if any(dim in varies(align(p, len(x.shape))) for p in tags.planes):
        walk.freeze(op, f"a {rule_name(op).strip('_')} is taken over its channels")
        return
    for value in op.outputs:
        walk.put(value, Tags(list(tags.planes), False, tags.weight))


@rule("im2col", "col2im")
def unfolded(walk: Walk, op: Op) -> None:
    """F.unfold lays (channel, kernel place) out on one axis: each channel's labels are repeated."""
    x, out = op.args[0], op.outputs[0]
    assert isinstance(x, Value) and out is not None
    tags = walk.of(x)
    if rule_name(op) == "col2im":
        walk.freeze(op, "F.fold")
        return
    taps = op.args[1][0] * op.args[1][1]
    planes = []
    for plane in tags.planes:
        labels = walk.collapse(align(plane, 4), {0, 2, 3}, op).reshape(-1)
        if len(labels) == 1:
            labels = labels.expand(x.shape[1])
        planes.append(labels.repeat_interleave(taps).reshape(1, -1, 1))
    walk.put(out, Tags(planes, tags.zero, tags.weight))
