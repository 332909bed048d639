"""Check what a caller asks of a blueprint, before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from brickwork.errors import BadModel, RequestError

if TYPE_CHECKING:
    from brickwork.blueprint.plan import Blueprint


def check_model(bp: Blueprint, model: nn.Module) -> None:
    """The model must be the traced one, or one with the same tensors."""
    mine = {n: tuple(v.shape) for n, v in bp.graph.tensors.items()}
    theirs = {
        n: tuple(t.shape)
        for n, t in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    }
    if mine == theirs:
        return
    differ = [n for n in {**mine, **theirs} if mine.get(n) != theirs.get(n)][:3]
    shown = "; ".join(f"{n}: {mine.get(n, 'absent')} in the blueprint, {theirs.get(n, 'absent')} here" for n in differ)
    raise BadModel(f"this blueprint is of another model ({shown}); trace this model first")


def as_indices(what: Any, size: int, space: str) -> np.ndarray:
    """A list, range, tensor, array or boolean mask as unique indices within a space, in the order given."""
    if isinstance(what, torch.Tensor):
        what = what.detach().cpu().numpy()
    array = np.asarray(list(what) if isinstance(what, (range, set, frozenset)) else what)
    if array.dtype == bool:
        if array.shape != (size,):
            raise RequestError(f"a mask for space {space!r} must have {size} entries, not {array.shape}")
        array = np.flatnonzero(array)
    if array.size == 0:
        raise RequestError(f"nothing is kept of space {space!r}; keep at least one of its {size} channels")
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise RequestError(f"indices of space {space!r} must be a list of whole numbers, not {what!r}"[:300])
    array = array.astype(np.int64)
    bad = array[(array < 0) | (array >= size)]
    if bad.size:
        raise RequestError(f"index {int(bad[0])} is out of range for space {space!r}; it has channels 0 to {size - 1}.")
    values, counts = np.unique(array, return_counts=True)
    if (counts > 1).any():
        raise RequestError(f"index {int(values[counts > 1][0])} of space {space!r} is given twice; give it once")
    return array


def kept_indices(bp: Blueprint, keep: Mapping[str, Any], round_to: int | None = None) -> dict[str, np.ndarray]:
    """What is kept of each named space, checked: known space, valid indices, nothing fixed removed."""
    if not isinstance(keep, Mapping):
        raise RequestError(f"keep must be a mapping from space to indices, not {type(keep).__name__}")
    if round_to is not None and (isinstance(round_to, bool) or not isinstance(round_to, int) or round_to < 1):
        raise RequestError(f"round_to must be a whole number of 1 or more, not {round_to!r}")
    result = {}
    for name, what in keep.items():
        space = bp.space(name)
        indices = as_indices(what, space.size, name)
        if round_to and round_to > 1:
            indices = _rounded(indices, space.size, round_to)
        gone = sorted(set(range(space.size)) - set(indices.tolist()))
        stuck = [k for k in gone if k in space.fixed]
        if stuck:
            raise BadModel(
                f"channel {stuck[0]} of space {name!r} must stay: {space.fixed[stuck[0]]}"
                f"{f' ({len(stuck)} such channels)' if len(stuck) > 1 else ''}; keep it, or choose another space"
            )
        result[name] = indices
    return result


def _rounded(indices: np.ndarray, size: int, multiple: int) -> np.ndarray:
    """Widen a kept set to a multiple by taking back the first channels that were to go."""
    want = min(size, -(-len(indices) // multiple) * multiple)
    spare = np.setdiff1d(np.arange(size), indices)[: want - len(indices)]
    return np.sort(np.concatenate([indices, spare])) if len(spare) else indices


def example_to_json(example: Any) -> Any:
    """The shapes and types of an example, as JSON; None if it holds anything but tensors."""
    if isinstance(example, torch.Tensor):
        return {"shape": list(example.shape), "dtype": str(example.dtype).removeprefix("torch.")}
    if isinstance(example, Mapping):
        return {"keywords": {str(k): example_to_json(v) for k, v in example.items()}}
    if isinstance(example, (list, tuple)):
        return {"arguments": [example_to_json(v) for v in example]}
    if example is None or isinstance(example, (bool, int, float, str)):
        return {"value": example}
    raise RequestError(f"an example may hold tensors and plain values, not {type(example).__name__}")


def example_from_json(data: Any) -> Any:
    if "shape" in data:
        return torch.empty(data["shape"], dtype=getattr(torch, data["dtype"]), device="meta")
    if "keywords" in data:
        return {k: example_from_json(v) for k, v in data["keywords"].items()}
    if "arguments" in data:
        return tuple(example_from_json(v) for v in data["arguments"])
    return data["value"]
