"""Copies of modules, and whether two modules compute alike: what is known of torch's own layers saves time on both."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from brickwork.origin import ATTRIBUTE

M = TypeVar("M", bound=nn.Module)
_PLAIN = {int, float, bool, str, type(None), torch.dtype, torch.device}
_TENSORS = ("_parameters", "_buffers")
_CONTAINERS = (dict, set, list, OrderedDict)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """What is recorded of a large network are many objects that stay; looking through them again and again takes a fifth."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def copy_module(model: M, memo: dict[int, Any] | None = None) -> M:
    """`copy.deepcopy` of a module in a fraction of the time: entry by entry, and what is neither number nor tensor deeply.

    What its last forward left in it, as many keep a map of features, deepcopy refuses; the copy has it without its gradient.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> twin = copy_module(net)
    >>> twin[0].weight is net[0].weight, bool((twin[0].weight == net[0].weight).all())
    (False, True)
    """
    memo = {} if memo is None else memo
    for module in model.modules():
        for tensor in _computed([value for name, value in vars(module).items() if name != "_modules"]):
            memo.setdefault(id(tensor), tensor.detach().clone())
    return _copied(model, memo)


def _computed(held: Any) -> Iterator[Tensor]:
    """Tensors that a gradient would flow through, also in lists and dictionaries."""
    pending, seen = [held], set()
    while pending:
        value = pending.pop()
        if isinstance(value, Tensor):
            if not value.is_leaf:
                yield value
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            pending.extend(value.values() if isinstance(value, dict) else value)


def keep_modes(new: nn.Module, old: nn.Module) -> None:
    """Every module of `new` in the mode of the one of its name in `old`, else of the one that it is in.

    By name: a forward that is written down has its modules in another order. Norms that are held still stay so.
    """
    modes = {path: module.training for path, module in old.named_modules(remove_duplicate=False)}
    for path, module in new.named_modules(remove_duplicate=False):  # the outer before the inner
        module.training = modes.setdefault(path, modes[path.rpartition(".")[0]])


def _copied(module: M, memo: dict[int, Any]) -> M:
    known: M | None = memo.get(id(module))
    if known is not None:
        return known
    kind: type = type(module)
    if not _is_ordinary(kind):
        return copy.deepcopy(module, memo)
    new: Any = object.__new__(kind)
    memo[id(module)] = new  # first of all: what it holds may hold it
    entries = new.__dict__
    for name, value in vars(module).items():
        held = type(value)
        if held in _PLAIN or (held is tuple and _is_plain(value)):
            entries[name] = value
        elif name in _TENSORS:
            entries[name] = {k: _copied_tensor(tensor, memo) for k, tensor in value.items()}
        elif name == "_modules":
            entries[name] = {k: None if child is None else _copied(child, memo) for k, child in value.items()}
        elif name == "_compiled_call_impl":
            continue  # torch.compile's, of the module that was given
        elif held in _CONTAINERS and not value:
            entries[name] = memo.setdefault(id(value), held())  # modules may share it, and fill it in forward
        else:
            entries[name] = copy.deepcopy(value, memo)
    return new


def _copied_tensor(tensor: Tensor | None, memo: dict[int, Any]) -> Any:
    return memo[id(tensor)] if id(tensor) in memo else copy.deepcopy(tensor, memo)


@functools.lru_cache(maxsize=1024)
def _is_ordinary(kind: type) -> bool:
    """Whether a class of modules leaves it to Python how it is copied; torch's own only fill in what old files lack."""
    own = {"__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__slots__", "__new__"}
    for each in kind.__mro__[: kind.__mro__.index(nn.Module)]:
        filled_in = {"__setstate__"} if each.__module__.startswith("torch.nn.modules.") else set()
        if (own - filled_in) & vars(each).keys():
            return False
    return True


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and all(_is_plain(x) for x in value))


def computes_alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether two modules differ in the values of their weights alone, so that what is traced of one holds for the other.

    Same classes under the same names, equal attributes, tensors of the same shapes and types, index tables of the same
    values; False where an attribute is anything that cannot be compared.
    """
    mine, theirs = (list(m.named_modules(remove_duplicate=False)) for m in (one, other))
    if [name for name, _ in mine] != [name for name, _ in theirs] or _ties(one) != _ties(other):
        return False
    return all(_alike(left, right) for (_, left), (_, right) in zip(mine, theirs, strict=True))


def _alike(one: nn.Module, other: nn.Module) -> bool:
    mine, theirs = vars(one), vars(other)
    if type(one) is not type(other) or mine.keys() != theirs.keys():
        return False
    for name, value in mine.items():
        if name in _TENSORS:
            right = theirs[name]
            if value.keys() != right.keys() or not all(_same_kind(k, t, right[k]) for k, t in value.items()):
                return False
        elif name not in ("_modules", ATTRIBUTE) and not _same_value(value, theirs[name]):
            return False
    return True


def _same_value(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same_value(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_same_value(a, b) for a, b in zip(one, other, strict=True))
    return one is other or ((_is_plain(one) or isinstance(one, set)) and bool(one == other))


def _same_kind(name: str, one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    return one.is_floating_point() or one.is_meta or name == "num_batches_tracked" or bool(torch.equal(one, other))


def _ties(model: nn.Module) -> list[int]:
    """For every name of a tensor the first name of the same one."""
    first: dict[int, int] = {}
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return [first.setdefault(id(tensor), number) for number, (_, tensor) in enumerate(tensors)]
