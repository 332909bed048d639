"""`merge`: networks or dictionaries of tensors, in memory."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.algebra.plan import Request, Rule, kinds_of, run, steps
from brickwork.errors import BadModel, RequestError
from brickwork.origin import attach, origin_of
from brickwork.store.weights import tied_names

States = TypeVar("States", nn.Module, dict[str, Tensor])
State = Mapping[str, Tensor]


def merge(
    states: Sequence[States],
    method: str = "linear",
    *,
    base: nn.Module | State | None = None,
    layers: Sequence[tuple[str, str, Mapping[str, Any]]] = (),
    bn: str = "linear",
    heads: str = "refuse",
    seed: int = 0,
    **options: Any,
) -> States:
    """One network (or dictionary of tensors, as given) of several; what is given is left unchanged.

    method and options: see `brickwork.algebra.methods`; layers: (pattern of names, method, options) for some tensors,
    the first that fits decides. Everything is calculated in float32 (float64 for float64) and stored as in the first
    model. bn: batch-norm statistics are averaged ("linear") or kept from the base or first ("keep"); re-estimate them
    on images afterwards with `brickwork.moments.reestimate_batch_norm`. heads="keep" keeps tensors of other shapes.

    >>> a, b = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 2.0])}
    >>> merge([a, b])["w"], merge([a, b], "task_arithmetic", base=a, weights=[0.0, 0.5])["w"]
    (tensor([2., 2.]), tensor([2., 2.]))
    """
    given = list(states)
    if not given:
        raise RequestError("there is nothing to merge; give one model or more.")
    rules = (*(Rule(*layer) for layer in layers), Rule("*", method, options))
    request = Request(rules, bn, heads, seed)
    request.check(len(given), base is not None)
    tensors: list[State] = [_state(s, f"model {k}") for k, s in enumerate(given)]
    origin = None if base is None else _state(base, "the base")
    every = [*tensors, origin] if origin is not None else tensors
    kinds = kinds_of(
        [{n: (tuple(t.shape), t.is_floating_point()) for n, t in s.items()} for s in every], request
    )
    tied = tied_names(dict(tensors[0]))
    plan = steps(request, {n: k for n, k in kinds.items() if n not in tied})
    arrays = [_Arrays(s) for s in tensors]
    merged: dict[str, Tensor] = {}
    kept_from = origin if origin is not None else tensors[0]
    for name, pieces in run(request, arrays, _Arrays(origin) if origin is not None else None, plan):
        like = tensors[0][name]
        merged[name] = (
            kept_from[name].detach().clone()
            if pieces is None
            else torch.from_numpy(np.ascontiguousarray(next(pieces)))
            .to(like.dtype)
            .reshape(like.shape)
            .to(like.device)
        )
    for name, first in tied.items():
        merged[name] = merged[first]
    ordered = {name: merged[name] for name in tensors[0]}
    return _like(given[0], ordered, method, options)


class _Arrays(Mapping[str, np.ndarray]):
    """A dictionary of tensors, as arrays to calculate with, converted when asked for."""

    def __init__(self, state: State) -> None:
        self.state = state

    def __getitem__(self, name: str) -> np.ndarray:
        tensor = self.state[name].detach().cpu()
        return (tensor if tensor.dtype == torch.float64 else tensor.float()).numpy()

    def __iter__(self) -> Any:
        return iter(self.state)

    def __len__(self) -> int:
        return len(self.state)


def _state(given: nn.Module | State, who: str) -> State:
    state = given.state_dict() if isinstance(given, nn.Module) else given
    if not isinstance(state, Mapping):
        raise RequestError(
            f"{who} is a {type(given).__name__}; it must be a network or a dictionary of tensors."
        )
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise BadModel(f"{name} of {who} is a {type(value).__name__}, not a tensor.")
    return state


def _like(first: nn.Module | dict[str, Tensor], state: dict[str, Tensor], method: str, options: Any) -> Any:
    if not isinstance(first, nn.Module):
        return state
    model = copy.deepcopy(first)
    model.load_state_dict(state)
    facts = {"merge": {"method": method, "options": {k: v for k, v in options.items() if v is not None}}}
    attach(model, replace(origin_of(first), provenance=facts))
    return model
