"""`merge`: networks or dictionaries of tensors, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.algebra.options import MergeOptions, MergeSearchOptions
from brickwork.algebra.plan import MergeRule, Request, kinds_of, run, steps
from brickwork.algebra.states import State, like, state_of
from brickwork.errors import RequestError
from brickwork.options import takes
from brickwork.store.weights import tied_names

States = TypeVar("States", nn.Module, dict[str, Tensor])


@takes(options=MergeOptions, searching=MergeSearchOptions)
def merge(
    states: Sequence[States],
    method: str = "linear",
    *,
    base: nn.Module | State | None = None,
    data: Sequence[Any] | None = None,
    layers: Sequence[tuple[str, str, Mapping[str, Any]]] = (),
    options: MergeOptions,
    searching: MergeSearchOptions,
    **method_options: Any,
) -> States:
    """One network (or dictionary of tensors, as given) of several; what is given is left unchanged.

    method and its own options (weights=…, density=…): see `brickwork.algebra.methods`; layers: (pattern of names,
    method, options) for some tensors, the first that fits decides. Everything is calculated in float32 (float64 for
    float64) and stored as in the first model. heads="keep" keeps tensors of other shapes.
    data: sets of images, for the methods that look at some (method="match", …, see `brickwork.algebra.merge_on`), and for
    the batch-norm statistics of the others. bn: statistics are measured on them ("recalibrate", or as one "batch"), are
    averaged ("linear", the default without images), or are kept from the base or first ("keep"). repair: responses get the
    mean and spread between the models', for networks without batch norm (`brickwork.algebra.repair`).
    search: {"density": (0.1, 1)}: numbers of the method and their ranges; those that do best on `data`, sets of (images,
    labels), are taken; `brickwork.algebra.search_merge` tells what was tried, as does the network's provenance.

    >>> a, b = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 2.0])}
    >>> merge([a, b])["w"], merge([a, b], "task_arithmetic", base=a, weights=[0.0, 0.5])["w"]
    (tensor([2., 2.]), tensor([2., 2.]))
    """
    if searching.search is not None:
        from brickwork.algebra.searching import search_merge

        if layers:
            raise RequestError("`layers` are not used by a search, which knows one method; leave them out.")
        said: Any = {"base": base, "options": options, "searching": searching}
        return search_merge(states, data or (), method, **said, **method_options).model  # type: ignore[return-value]
    if data is not None:
        from brickwork.algebra.data_methods import find
        from brickwork.algebra.with_data import merge_on

        asked = {**options.changed(), **({"layers": layers} if layers else {})}
        for name in [name for name in asked if name not in find(method).every_option]:
            raise RequestError(f"`{name}` is not used by {method}, which looks at images; leave it out.")
        return merge_on(states, data, method, base=base, **asked, **method_options)  # type: ignore[arg-type, return-value]
    options = replace(options, bn=options.statistics(images=False))
    given = list(states)
    if not given:
        raise RequestError("there is nothing to merge; give one model or more.")
    rules = (*(MergeRule(*layer) for layer in layers), MergeRule("*", method, method_options))
    request = Request(rules, options)
    request.check(len(given), base is not None)
    tensors: list[State] = [state_of(s, f"model {k}") for k, s in enumerate(given)]
    origin = None if base is None else state_of(base, "the base")
    every = [*tensors, origin] if origin is not None else tensors
    kinds = kinds_of(
        [{n: (tuple(t.shape), t.is_floating_point()) for n, t in s.items()} for s in every], len(given), request
    )
    tied = tied_names(dict(tensors[0]))
    plan = steps(request, {n: k for n, k in kinds.items() if n not in tied})
    arrays = [_Arrays(s) for s in tensors]
    merged: dict[str, Tensor] = {}
    kept_from = origin if origin is not None else tensors[0]
    for name, pieces in run(request, arrays, _Arrays(origin) if origin is not None else None, plan):
        model = tensors[0][name]
        merged[name] = (
            kept_from[name].detach().clone()
            if pieces is None
            else torch.from_numpy(np.ascontiguousarray(next(pieces)))
            .to(model.dtype)
            .reshape(model.shape)
            .to(model.device)
        )
    for name, first in tied.items():
        merged[name] = merged[first]
    ordered = {name: merged[name] for name in tensors[0]}
    facts = {
        "method": method,
        "options": {k: v for k, v in method_options.items() if v is not None},
        **options.to_dict(),
    }
    if layers:
        facts["layers"] = [[match, name, dict(own)] for match, name, own in layers]
    return like(given[0], ordered, {"merge": facts})


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
