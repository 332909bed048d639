"""Which weights of a network a pool serves: every convolution and linear layer but the head, found by walking it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from brickwork.copying import copy_module
from brickwork.errors import BadModel, UnknownName
from brickwork.origin import origin_of
from brickwork.pools.codebook_weight import CodebookWeight
from brickwork.words import sides


@dataclass(frozen=True)
class PoolLayer:
    """One layer: its weight is `count` vectors of `length` numbers, one after the other as they lie in memory."""

    name: str
    shape: tuple[int, ...]
    length: int

    @property
    def parameter(self) -> str:
        return f"{self.name}.weight" if self.name else "weight"

    @property
    def count(self) -> int:
        return math.prod(self.shape) // self.length


def head_of(model: nn.Module, name: str | None = None) -> str:
    """The classification head: the layer of that name, or the last convolution or linear layer of the network.

    Where the network has class names, the last one with as many outputs: a head beside it may come later.

    >>> head_of(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 2)))
    '2'
    """
    known = [path for path, module in model.named_modules() if isinstance(module, (_ConvNd, nn.Linear))]
    if not known:
        raise BadModel("the network has no convolution and no linear layer: there is nothing to pool.")
    if name is not None and name not in known:
        raise UnknownName("layer", name, known)
    classes = len(origin_of(model).classes or ())
    fitting = [path for path in known if not classes or outputs_of(model, path) == classes]
    head = name or (fitting or known)[-1]
    if head not in fitting:
        raise BadModel(
            f"{head!r} has {outputs_of(model, head)} outputs, and the network {classes} class names; name the layer that "
            "makes the logits in `head`."
        )
    return head


def find_layers(model: nn.Module, head: str, group: int = 1) -> dict[str, PoolLayer]:
    """Every layer to pool by its name, a shared weight once, in the order of the modules.

    A k×k convolution has vectors of k·k numbers, whatever its groups. The scalars of 1×1 and linear layers are taken
    `group` at a time along the inputs (or as many as divide both), one by one by default.

    >>> layers = find_layers(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 8, 1), nn.Linear(8, 2)), head="2")
    >>> [(layer.name, layer.count, layer.length) for layer in layers.values()]
    [('0', 12, 9), ('1', 32, 1)]
    """
    layers: dict[str, PoolLayer] = {}
    seen = {id(model.get_submodule(head).weight)}
    for name, module in model.named_modules():
        if not isinstance(module, (_ConvNd, nn.Linear)) or id(_stored(name, module)) in seen:
            continue
        seen.add(id(_stored(name, module)))
        shape = tuple(_stored(name, module).shape)
        length = math.prod(shape[2:])
        layers[name] = PoolLayer(name, shape, math.gcd(shape[1], group) if length == 1 else length)
    if not layers:
        raise BadModel(f"{head!r} is the only layer with weights of its own; there is nothing left to pool.")
    return layers


def _stored(name: str, module: nn.Module) -> Tensor:
    """The tensor that a layer keeps as its weight, also while a search uses another in its place."""
    if "weight" in module._parameters:
        return module.weight  # type: ignore[return-value]
    rules = getattr(getattr(module, "parametrizations", None), "weight", None)
    if rules is None or not all(isinstance(rule, CodebookWeight) for rule in rules):
        raise BadModel(
            f"the weight of layer {name!r} is computed from others (weight norm?); make it a plain one first."
        )
    return rules.original


def weight_of(model: nn.Module, name: str) -> Tensor:
    """The weight of a layer, detached."""
    weight = model.get_submodule(name).weight
    assert isinstance(weight, Tensor)
    return weight.detach()


def outputs_of(model: nn.Module, head: str) -> int:
    """How many classes the head tells apart."""
    module = model.get_submodule(head)
    assert isinstance(module, (_ConvNd, nn.Linear))
    return module.out_features if isinstance(module, nn.Linear) else module.out_channels


def replace_head(model: nn.Module, head: str, classes: int, *, seed: int | None = None) -> None:
    """Put a new head for so many classes in place (on a module of our own); with a seed, its first values are drawn.

    A head of a class of its own stays of that class: a cosine classifier is no linear layer, though it is made from one.
    """
    old = model.get_submodule(head)
    assert isinstance(old, (_ConvNd, nn.Linear))
    kind = type_before_parametrizations(old)
    with torch.random.fork_rng([]):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        plain = _plain_head(old, classes, head)
    new = plain if kind is type(plain) else _of_its_kind(old, plain, head)
    model.set_submodule(head, new.to(old.weight.device).train(old.training))


def _plain_head(old: nn.Module, classes: int, head: str) -> nn.Linear | nn.Conv1d | nn.Conv2d:
    """A layer of torch's own like the old head, for so many classes."""
    if isinstance(old, nn.Linear):
        return nn.Linear(old.in_features, classes, old.bias is not None, dtype=old.weight.dtype)
    for kind in (nn.Conv1d, nn.Conv2d):
        if isinstance(old, kind) and old.groups == 1:
            alike: Any = {name: getattr(old, name) for name in ("stride", "padding", "dilation", "padding_mode")}
            kernel: Any = old.kernel_size
            bias = old.bias is not None
            return kind(old.in_channels, classes, kernel, bias=bias, dtype=old.weight.dtype, **alike)
    raise BadModel(f"the head {head!r} is a {type(old).__name__}; a new one for {classes} classes cannot be made.")


def _of_its_kind(old: nn.Module, plain: nn.Linear | nn.Conv1d | nn.Conv2d, head: str) -> nn.Module:
    """A copy of the old head with the weight and bias of a plain one; refused where more of it is of its classes."""
    size = "out_features" if isinstance(plain, nn.Linear) else "out_channels"
    before, after = getattr(old, size), getattr(plain, size)
    more = [n for n, value in old.state_dict().items() if n not in ("weight", "bias") and before in value.shape]
    if is_parametrized(old) or (more and before != after):
        reason = (
            "its weight is computed from others" if is_parametrized(old) else f"{more[0]} is of its {before} classes"
        )
        raise BadModel(
            f"the head {head!r} is a {type_before_parametrizations(old).__name__}, and {reason}: a new one for {after} "
            "classes cannot be made. Use a network with a plain linear head."
        )
    new = copy_module(old)
    new.weight = plain.weight
    if plain.bias is not None:
        new.bias = plain.bias
    setattr(new, size, after)
    return new


def same_layers(mine: Mapping[str, PoolLayer], theirs: Mapping[str, PoolLayer]) -> None:
    """Refuse layers that are not those of a pool, by name."""
    for name, layer in theirs.items():
        if name not in mine:
            raise BadModel(f"layer {name!r} ({sides(layer.shape)}) has no pool; the pool serves {', '.join(mine)}.")
        if layer.length != mine[name].length or layer.shape != mine[name].shape:
            raise BadModel(
                f"layer {name!r} is {sides(layer.shape)} and the pool's is {sides(mine[name].shape)}: another network."
            )
    for name in mine:
        if name not in theirs:
            raise BadModel(f"the network has no layer {name!r}, which the pool serves: another network.")
