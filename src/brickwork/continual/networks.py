"""The parts of a network that methods treat differently: kernels, the head, and the small rest."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from brickwork.copying import copy_module
from brickwork.errors import BadModel
from brickwork.origin import attach, origin_of
from brickwork.pools.layers import head_of as last_layer
from brickwork.pools.layers import replace_head

State = dict[str, Tensor]
HEAD = "brickwork_head"  # the attribute of a network with a new head that names it


def head_of(model: nn.Module) -> str:
    """The name of the last layer, which gives the logits; it has to be linear.

    A network that `with_head` made knows its head by name: looked for by the classes of a task, it could be another layer
    that happens to have as many outputs.

    >>> from brickwork import zoo
    >>> head_of(zoo.build("lenet"))
    'fc3'
    """
    name = getattr(model, HEAD, None) or last_layer(model)
    if not isinstance(model.get_submodule(name), nn.Linear):
        raise BadModel(
            f"the last layer, {name}, is a {type(model.get_submodule(name)).__name__}; tasks need a linear head."
        )
    return name


def with_head(model: nn.Module, classes: Sequence[str], *, seed: int) -> nn.Module:
    """A copy with a new head for these classes; everything else as it was."""
    new, head = copy_module(model), head_of(model)
    replace_head(new, head, len(classes), seed=seed)
    setattr(new, HEAD, head)
    origin = origin_of(model)
    args = {**origin.args, "num_classes": len(classes)} if origin.arch is not None else origin.args
    attach(new, replace(origin, args=args, classes=tuple(classes)))
    return new


def kernels_of(model: nn.Module) -> dict[str, Any]:
    """The convolutions and linear layers below the head, by name: their weights are nearly all of the network."""
    head = head_of(model)
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _ConvNd | nn.Linear) and name != head
    }


def small_of(model: nn.Module) -> State:
    """The floating tensors that are neither a kernel nor the head: batch norms with their statistics, biases, …

    Of a network as it is; one whose kernels are computed from other parameters has to be settled first.
    """
    big = {f"{name}.weight" for name in kernels_of(model)}
    head = head_of(model) + "."
    return {
        name: value.detach()
        for name, value in model.state_dict().items()
        if name not in big and not name.startswith(head) and value.is_floating_point()
    }


def head_tensors(model: nn.Module) -> State:
    """Weight and bias of the head, under those names."""
    module = model.get_submodule(head_of(model))
    return {name: value.detach() for name, value in module.state_dict().items()}


def stored_head(model: nn.Module) -> State:
    """The head as a task's file holds it, in float16 where all values fit."""
    return {f"head.{name}": halved(value) for name, value in head_tensors(model).items()}


def load_head(model: nn.Module, stored: State) -> None:
    """Put a head back that a task's file holds, in place."""
    for name, value in head_tensors(model).items():
        value.copy_(stored[f"head.{name}"])


def flat(tensors: State) -> Tensor:
    """Tensors one behind the other in the order of their names; float16 where all values fit.

    One long tensor instead of a hundred short ones: the header of a file would be longer than they are.
    """
    joined = torch.cat([tensors[name].reshape(-1).float() for name in sorted(tensors)] or [torch.zeros(0)])
    return halved(joined)


def halved(tensor: Tensor) -> Tensor:
    """As float16; as float32 where a value would become infinite."""
    half = tensor.half()
    return half if bool(torch.isfinite(half).all()) else tensor.float()


def load_flat(tensors: State, values: Tensor) -> None:
    """Put the values of `flat` back into tensors of the same names and shapes, in place."""
    start = 0
    for name in sorted(tensors):
        size = tensors[name].numel()
        part = values[start : start + size]
        if len(part) != size:
            break
        tensors[name].copy_(part.reshape(tensors[name].shape))
        start += size
    if start != len(values) or start != sum(t.numel() for t in tensors.values()):
        total = sum(t.numel() for t in tensors.values())
        raise BadModel(f"{len(values)} stored values for {total} of the network; the file is of another network.")
