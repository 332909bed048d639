"""A traced graph without writes in place: all that reads a value later is given what was written to it.

The halves of a network are used on features that others read too, so nothing in them may write into its input. Where a
forward relies on such a write (`x + block(x)` with a ReLU in place at the head of the block), its later readers are given
what was written; where a part of a tensor is written, or a tensor a part of which is read later, it is refused.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from brickwork.errors import BadModel

_OPERATORS: dict[Any, Any] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}
#: what shares memory with its source, or may
_VIEWS = {
    "chunk",
    "contiguous",
    "diagonal",
    "double",
    "expand",
    "expand_as",
    "flatten",
    "float",
    "getitem",
    "half",
    "movedim",
    "narrow",
    "permute",
    "ravel",
    "reshape",
    "select",
    "split",
    "squeeze",
    "swapaxes",
    "t",
    "tensor_split",
    "to",
    "transpose",
    "type_as",
    "unbind",
    "unflatten",
    "unfold",
    "unsqueeze",
    "view",
    "view_as",
}


def without_writes(graph: fx.GraphModule) -> None:
    """Change the graph so that no value of it is written to after it was made; its answers stay."""
    modules = dict(graph.named_modules())
    order = {node: k for k, node in enumerate(graph.graph.nodes)}
    for node in list(graph.graph.nodes):
        if not writes(node, modules):
            continue
        source = node.args[0] if node.args else node.kwargs.get("input")
        if not isinstance(source, fx.Node):
            raise BadModel(f"{_name(node)} writes in place into something that cannot be followed.")
        same, parts = _family(source, modules)
        late = {p for p in parts if any(order[u] > order[node] for u in p.users) and p is not node}
        if late:
            first = _name(min(late, key=order.__getitem__))
            raise BadModel(
                f"{_name(node)} writes in place into a tensor that {first} is a part of or holds; write x = f(x) instead."
            )
        for one in same:
            for user in [u for u in one.users if order[u] > order[node]]:
                user.replace_input_with(one, node)
        _to_new(node)
    graph.recompile()


def writes(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        layer = modules[str(node.target)]
        idle = isinstance(layer, nn.modules.dropout._DropoutNd)  # nothing is dropped in evaluation
        return getattr(layer, "inplace", False) is True and not idle
    if node.op not in ("call_method", "call_function"):
        return False
    return node.target in _OPERATORS or bool(node.kwargs.get("inplace")) or _into_another(node) or _by_name(node)


def _into_another(node: fx.Node) -> bool:
    return node.kwargs.get("out") is not None  # F.normalize is recorded with out=None


def _by_name(node: fx.Node) -> bool:
    """torch's own mark of what writes in place: one underscore at the end."""
    name = _word(node)
    return name.endswith("_") and not name.endswith("__")


def _word(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "")


def _to_new(node: fx.Node) -> None:
    """The same operation with an output of its own."""
    if node.op == "call_module":
        return  # a layer may be called again; it is told when the graph is a module of its own
    if node.target in _OPERATORS:
        node.target = _OPERATORS[node.target]
    elif node.op == "call_method":
        node.target = str(node.target)[:-1]
    elif _by_name(node):
        plain = _word(node)[:-1]
        result = getattr(torch, plain, None) or getattr(F, plain, None)
        if result is None:
            raise BadModel(f"{_word(node)} writes in place, and there is no {plain} that does not.")
        node.target = result
    if _into_another(node):
        raise BadModel(f"{_name(node)} writes into out=; let it return its result instead.")
    if node.kwargs.get("inplace"):
        node.kwargs = {**node.kwargs, "inplace": False}


def _family(source: fx.Node, modules: dict[str, nn.Module]) -> tuple[set[fx.Node], set[fx.Node]]:
    """What is the very same tensor as a value, and what shares memory with it otherwise."""
    same: set[fx.Node] = {source}
    parts: set[fx.Node] = set()
    waiting = [source]
    seen = {source}
    while waiting:
        node = waiting.pop()
        up = [n for n in node.all_input_nodes[:1] if _alias(node, modules)]
        down = [u for u in node.users if _alias(u, modules) and u.all_input_nodes[:1] == [node]]
        for other in (*up, *down):
            if other in seen:
                continue
            seen.add(other)
            waiting.append(other)
            step = node if other in up else other
            (same if node in same and _alias(step, modules) == "same" else parts).add(other)
    return same, parts


def _alias(node: fx.Node, modules: dict[str, nn.Module]) -> str:
    """Whether a value shares memory with what it was made from: it is the same, or a part or a view; or neither."""
    if node.op == "call_module":
        layer = modules[str(node.target)]
        if isinstance(layer, nn.Identity | nn.modules.dropout._DropoutNd):
            return "same"
        return "part" if isinstance(layer, nn.Flatten | nn.Unflatten) else ""
    if node.op not in ("call_method", "call_function"):
        return ""
    if _word(node) == "detach":
        return "same"
    return "part" if _word(node) in _VIEWS else ""


def _name(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_module" else node.name
