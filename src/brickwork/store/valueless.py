"""Modules built for their shapes alone: nothing is drawn for tensors that have no place to keep it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from brickwork import zoo

_DRAWS = {
    *(Tensor.normal_, Tensor.uniform_, Tensor.log_normal_, Tensor.exponential_, Tensor.random_),
    *(Tensor.erfinv_, Tensor.mul_, Tensor.add_, Tensor.clamp_),  # by which timm makes truncated normals of them
}


class _NothingDrawn(TorchFunctionMode):
    """Random values of meta tensors are left out: torch works them out by code that takes far longer than the shapes."""

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _DRAWS and args[0].is_meta:
            return args[0]
        return function(*args, **(kwargs or {}))


def shapes_of(arch: str, args: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of every tensor of an architecture; with values only where it cannot be built without.

    >>> shapes_of("lenet", {"num_classes": 3})["fc3.bias"]
    (3,)
    """
    try:
        with valueless():
            built = zoo.build(arch, **args)
    except RuntimeError:  # it looks at its values while it is built, as torchvision's RegNets do
        built = zoo.build(arch, **args)
    return {name: tuple(value.shape) for name, value in built.state_dict().items()}


@contextlib.contextmanager
def valueless() -> Iterator[None]:
    """Modules built in this block have shapes and types, and no values.

    >>> with valueless():
    ...     layer = torch.nn.Linear(3, 2)
    >>> layer.weight.is_meta, layer.weight.shape
    (True, torch.Size([2, 3]))
    """
    with torch.device("meta"), _NothingDrawn():
        yield
