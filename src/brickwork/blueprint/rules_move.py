"""Operations that only move values: run the real operation on the labels and read the result."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from brickwork.blueprint.labels import Tags, align, compress, varies
from brickwork.blueprint.record import Op, Value
from brickwork.blueprint.walk import Walk, merge_planes, rule, rule_name
from brickwork.errors import Unsupported

#: moves that take part of a tensor: what they take is a segment of the layer that made it
_SPLITS = {
    "split",
    "split_with_sizes",
    "chunk",
    "unsafe_split",
    "unsafe_split_with_sizes",
    "unsafe_chunk",
    "unbind",
    "select",
    "slice",
    "narrow",
}


@rule("clone", "detach", "alias", "_to_copy", "contiguous", "lift_fresh", "lift_fresh_copy", "view_as_real_")
def identity(walk: Walk, op: Op) -> None:
    tags = walk.of(op.args[0])
    walk.put(op.outputs[0], Tags(list(tags.planes), tags.zero, tags.weight, tags.source))


@rule("permute", "transpose", "t", "unsqueeze", "movedim", "numpy_T")
def axis_move(walk: Walk, op: Op) -> None:
    """Axes change places: a compressed plane can be moved as it is."""
    tags = walk.of(op.args[0])
    planes = [op.func(align(p, len(op.args[0].shape)), *op.args[1:], **op.kwargs) for p in tags.planes]
    walk.put(op.outputs[0], Tags(planes, tags.zero, tags.weight, tags.source))


@rule("view", "_unsafe_view", "reshape", "_reshape_alias", "view_copy")
def reshape(walk: Walk, op: Op) -> None:
    source, out = op.args[0], op.outputs[0]
    assert out is not None
    tags = walk.of(source)
    planes = [_reshaped(align(p, len(source.shape)), source.shape, out.shape) for p in tags.planes]
    walk.put(out, Tags(planes, tags.zero, tags.weight, tags.source))


def _reshaped(plane: Tensor, before: tuple[int, ...], after: tuple[int, ...]) -> Tensor:
    """Reshape a plane, spelling out only the axes that it changes along and those merged with or split from them."""
    if 0 in before:
        return plane.expand(before).reshape(after)
    small_in, small_out = [], []
    for left, right in _matching(before, after):
        plain = all(plane.shape[d] == 1 for d in left)
        small_in += [1 if plain else before[d] for d in left]
        small_out += [1 if plain else after[d] for d in right]
    return compress(plane.expand(small_in).reshape(small_out))


def _matching(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Group the axes of two shapes of one tensor so that each group holds equally many elements."""
    groups = []
    i = j = 0
    while i < len(before) or j < len(after):
        left, right = [i] if i < len(before) else [], [j] if j < len(after) else []
        m, n = before[i] if left else 1, after[j] if right else 1
        i, j = i + len(left), j + len(right)
        while m != n:
            if m < n:
                m, left, i = m * before[i], [*left, i], i + 1
            else:
                n, right, j = n * after[j], [*right, j], j + 1
        groups.append((left, right))
    return groups


@rule("slice_scatter")
def into_slice(walk: Walk, op: Op) -> None:
    """A tensor in which a slice was written to."""
    base, part, *which = op.args
    whole, own = walk.of(base), walk.of(part)

    def spread(tags: Tags, value: Value) -> Tensor:
        planes = [align(p, len(value.shape)) for p in tags.planes]
        if len(planes) > 1:
            raise Unsupported(
                f"{op.place} writes into a slice of a tensor with several channel axes; use torch.cat instead"
            )
        return (planes[0] if planes else torch.zeros([1] * len(value.shape), dtype=torch.int64)).expand(value.shape)

    plane = torch.slice_scatter(spread(whole, base), spread(own, part), *which)
    walk.put(op.outputs[0], Tags([compress(plane)], whole.zero and own.zero, whole.weight and own.weight))


@rule("""
    expand squeeze slice select narrow split split_with_sizes chunk unsafe_split unsafe_split_with_sizes
    unsafe_chunk unbind flip roll repeat repeat_interleave pixel_shuffle pixel_unshuffle channel_shuffle unfold
    diagonal flatten unflatten tile swapaxes
""")
def move(walk: Walk, op: Op) -> None:
    source = op.args[0]
    tags = walk.of(source)
    results: list[list[Tensor]] = [[] for _ in op.outputs]
    for plane in tags.planes:
        full = align(plane, len(source.shape)).expand(source.shape)
        moved = op.func(full, *op.args[1:], **op.kwargs)
        moved = moved if isinstance(moved, (list, tuple)) else [moved]
        for k, part in enumerate(moved):
            results[k].append(compress(part))
    for value, planes in zip(op.outputs, results, strict=True):
        walk.put(value, Tags(planes, tags.zero, tags.weight, tags.source if len(op.outputs) == 1 else None))
    if rule_name(op) in _SPLITS and not tags.weight:
        _note_segments(walk, tags.planes, results)


def _note_segments(walk: Walk, planes: list[Tensor], results: list[list[Tensor]]) -> None:
    for k, plane in enumerate(planes):
        everything = plane.reshape(-1).unique()
        for part in results:
            ids = part[k].reshape(-1).unique()
            if len(ids) < len(everything):
                walk.segments.append(ids)


@rule("glu")
def glu(walk: Walk, op: Op) -> None:
    """One half times the sigmoid of the other: the halves live and die together."""
    source, out = op.args[0], op.outputs[0]
    assert out is not None
    dim = (op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", -1)) % len(source.shape)
    tags, planes = walk.of(source), []
    for plane in tags.planes:
        full = align(plane, len(source.shape))
        if dim in varies(full):
            first, second = full.chunk(2, dim)
            walk.units.unite(first, second, op.place)
            walk.segments += [first.reshape(-1).unique(), second.reshape(-1).unique()]
            full = first
        planes.append(full)
    walk.put(out, Tags(planes, tags.zero, tags.weight))


@rule("as_strided")
def restride(walk: Walk, op: Op) -> None:
    """Memory-format changes of tensors that hold one value a channel; anything else could move values unseen."""
    source, out = op.args[0], op.outputs[0]
    assert out is not None
    if tuple(source.shape) != tuple(out.shape) or sum(n > 1 for n in source.shape) > 2:
        raise Unsupported(f"{op.place} ({op.line}) re-reads memory by strides; use view, permute or reshape instead")
    identity(walk, op)


@rule("constant_pad_nd", "pad")
def pad(walk: Walk, op: Op) -> None:
    """Channels that padding adds belong to no unit: whatever they meet later must stay."""
    source, amounts = op.args[0], op.args[1]
    filler = op.args[2] if len(op.args) > 2 else 0
    tags = walk.of(source)
    planes = []
    for plane in tags.planes:
        plane = align(plane, len(source.shape))
        steps = []
        for k in range(len(amounts) // 2):
            dim = len(source.shape) - 1 - k
            steps += list(amounts[2 * k : 2 * k + 2]) if dim in varies(plane) else [0, 0]
        planes.append(torch.nn.functional.pad(plane, steps) if any(steps) else plane)
    walk.put(op.outputs[0], Tags(planes, tags.zero and filler == 0, tags.weight))


@rule("cat", "concat", "concatenate", "stack")
def cat(walk: Walk, op: Op) -> None:
    """Along the joined axis labels line up one behind the other; along the others the operands must agree."""
    stack = rule_name(op) == "stack"
    out = op.outputs[0]
    assert out is not None
    ndim = len(out.shape)
    dim = (op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", 0)) % ndim
    parts = [p for p in op.args[0] if len(p.shape) + stack == ndim]  # torch lets an empty 1-d tensor in
    tags = [walk.of(p) for p in parts]
    across, pieces = [], []
    placed = [[p.unsqueeze(dim) if stack else align(p, ndim) for p in known.planes] for known in tags]
    beyond = any(dim not in varies(p) for known, own in zip(tags, placed, strict=True) if not known.weight for p in own)
    for value, known, planes in zip(parts, tags, placed, strict=True):
        shape = [*value.shape[:dim], 1, *value.shape[dim:]] if stack else list(value.shape)
        if (
            beyond and known.weight
        ):  # the channels run along another axis: tokens of a network's own, beside those of an image
            for plane in planes:
                if dim in varies(plane):
                    walk.units.fix(plane, f"its places stand beside others ({op.place})", channel=False)
            planes = [p for p in planes if dim not in varies(p)]
        beside = [n if d != dim else 1 for d, n in enumerate(shape)]
        across.append((Value(-1, tuple(beside), torch.int64), Tags([p for p in planes if dim not in varies(p)])))
        mine = next((p for p in planes if dim in varies(p)), None)
        pieces.append(
            mine
            if mine is not None
            else torch.zeros([n if d == dim else 1 for d, n in enumerate(shape)], dtype=torch.int64)
        )
    planes = merge_planes(walk, op, across, tuple(1 if d == dim else n for d, n in enumerate(out.shape)))
    if any(bool(p.any()) for p in pieces):
        common = [max(p.shape[d] for p in pieces) for d in range(ndim)]
        full = [p.expand([p.shape[d] if d == dim else n for d, n in enumerate(common)]) for p in pieces]
        planes.insert(0, compress(torch.cat(full, dim)))
    weight = all(t.weight for t in tags)
    for extra in planes[1:] if not weight else []:
        walk.units.fix(extra, f"two channel axes meet at {op.place}")
    zero = all(t.zero or not t.planes for t in tags) and any(t.zero for t in tags)
    walk.put(out, Tags(planes if weight else planes[:1], zero, weight))


@rule("index", "index_select", "gather", "embedding", "take_along_dim")
def index(walk: Walk, op: Op) -> None:
    """Indexing with known numbers moves labels; along an axis indexed by unknown ones nothing can be cut."""
    name = rule_name(op)
    source = op.args[0]
    tags = walk.of(source)
    dims, indices = _indexed(name, op)
    known = all(i is None or i.constant is not None for i in indices)
    planes = []
    for plane in tags.planes:
        plane = align(plane, len(source.shape))
        if varies(plane) & dims and (not known or name == "embedding"):
            what = "numbers" if known else "an index that is not a constant"
            walk.units.fix(plane, f"it is picked by {what} at {op.place}", channel=False)
            continue
        full = plane.expand(source.shape)
        args = [full, *(_index_value(a, dims, known) for a in op.args[1:])]
        if name == "embedding":  # the rows are alike: what changes from one to the next has been left out
            args = [full, torch.zeros(op.args[1].shape, dtype=torch.int64)]
        planes.append(compress(op.func(*args) if name != "embedding" else full[args[1]]))
        if name == "index_select" and varies(plane) == dims and indices[0] is not None and indices[0].name:
            walk.gathers.append((indices[0].name, plane.reshape(-1), planes[-1].reshape(-1)))
    if name == "gather" and not tags.planes:
        walk.freeze(op, "a gather by labelled indices")
        return
    weight = all(walk.of(v).weight for v in op.inputs())  # picked by the input, a table's rows are activations
    walk.put(op.outputs[0], Tags(planes, tags.zero, weight))


def _indexed(name: str, op: Op) -> tuple[set[int], list[Value | None]]:
    if name == "index":
        return {d for d, i in enumerate(op.args[1]) if i is not None}, list(op.args[1])
    if name in ("index_select", "gather"):
        return {op.args[1] % len(op.args[0].shape)}, [op.args[2]]
    return {0}, [op.args[1]]


def _index_value(arg: Any, dims: set[int], known: bool) -> Any:
    if isinstance(arg, (list, tuple)):
        return [_index_value(a, dims, known) for a in arg]
    if isinstance(arg, Value):
        if arg.constant is not None:
            return arg.constant.cpu()
        return torch.zeros(arg.shape, dtype=torch.bool if arg.dtype == torch.bool else torch.int64)
    return arg
