"""Networks and dictionaries of tensors, taken and given back alike."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from brickwork.copying import copy_module
from brickwork.errors import BadModel, RequestError
from brickwork.origin import attach, origin_of
from brickwork.store.weights import put_state

State = Mapping[str, Tensor]


def state_of(given: nn.Module | State, who: str) -> State:
    """The tensors of a network, or of a dictionary of them."""
    state = given.state_dict() if isinstance(given, nn.Module) else given
    if not isinstance(state, Mapping):
        raise RequestError(f"{who} is a {type(given).__name__}; it must be a network or a dictionary of tensors.")
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise BadModel(f"{name} of {who} is a {type(value).__name__}, not a tensor.")
        if nn.parameter.is_lazy(value):
            raise BadModel(f"{name} of {who} has no values yet (a lazy layer); run the network once before.")
    return state


def shapes_of(networks: Mapping[str, nn.Module]) -> dict[str, dict[str, tuple[int, ...]]]:
    """Of each network the shapes of its tensors, by name."""
    return {who: {name: tuple(t.shape) for name, t in state_of(m, who).items()} for who, m in networks.items()}


def like(first: Any, state: dict[str, Tensor], facts: dict[str, Any]) -> Any:
    """A network as the first with these tensors, and a record of how they came about; a dictionary for a dictionary."""
    if not isinstance(first, nn.Module):
        return state
    model = copy_module(first)
    put_state(model, state)
    attach(model, replace(origin_of(first), provenance=facts))
    return model
