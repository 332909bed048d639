"""Split a network at a named layer into a module below and a module above, by its graph."""

from __future__ import annotations

import inspect
import operator
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from brickwork.blueprint.in_place import without_writes
from brickwork.copying import copy_module
from brickwork.errors import BadModel, RequestError, UnknownName
from brickwork.origin import attach, origin_of
from brickwork.prediction import evaluating


class Below(nn.Module):
    """From the input up to the cut: the features, and whatever is carried past it, as a tuple."""

    def __init__(self, graph: fx.GraphModule, carried: Sequence[str]) -> None:
        super().__init__()
        self.net, self.carried = graph, tuple(carried)

    def forward(self, x: Tensor) -> Any:
        return self.net(x)


class Above(nn.Module):
    """From the cut up to the output; `sizes` are the axes of the image whose length it has to be told."""

    def __init__(self, graph: fx.GraphModule, carried: Sequence[str], sizes: Sequence[int]) -> None:
        super().__init__()
        self.net, self.carried, self.sizes = graph, tuple(carried), tuple(sizes)

    def forward(self, features: Tensor, *carried: Tensor, image: Tensor | Sequence[int] | None = None) -> Any:
        """image: the image (or its shape), where the network crops its output to it."""
        if not self.sizes:
            return self.net(features, *carried)
        if image is None:
            raise RequestError("this module crops its output to the image; give image=, the image or its shape.")
        shape = image.shape if isinstance(image, Tensor) else image
        return self.net(features, *carried, *(int(shape[axis]) for axis in self.sizes))


@dataclass(frozen=True)
class Split:
    """The two halves of a network, and where it was cut."""

    below: Below
    above: Above
    at: str

    def __call__(self, x: Tensor) -> Any:
        result = self.below(x)
        values = result if isinstance(result, tuple) else (result,)
        return self.above(*values, image=x)


def split(model: nn.Module, at: str, *, carry: Sequence[str] = (), image: Sequence[int] | None = None) -> Split:
    """Cut `model` behind the layer `at`: two new modules with copies of its tensors, under their old names.

    carry: layers whose outputs go past the cut as well, as skip connections need; a connection that crosses the cut and is
    not named here is refused. image: the shape of one input, on which both halves are compared with the network; None: the
    one that the network knows, if any.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> halves = split(net, "1")
    >>> x = torch.randn(5, 3)
    >>> torch.equal(halves.above(halves.below(x)), net(x)), list(halves.above.state_dict())
    (True, ['net.2.weight', 'net.2.bias'])
    """
    halves = halves_of(model, at, carry)
    shape = image or origin_of(model).input_shape
    if shape is not None:
        check_halves(model, halves, shape)
    return halves


def halves_of(model: nn.Module, at: str, carry: Sequence[str] = ()) -> Split:
    """The halves as they are traced, for a network that was cut there before; `split` compares them with the network."""
    halves = _halves(model, at, carry)
    modes = {name: module.training for name, module in model.named_modules()}
    for side, half in (("below", halves.below), ("above", halves.above)):
        step = {"op": "split", "at": at, "side": side, "carry": list(carry)}
        attach(half, origin_of(model).after(step))
        half.train(model.training)
        for name, module in half.net.named_modules():
            module.training = modes.get(name, model.training)
    return halves


def half_of(model: nn.Module, at: str, carry: Sequence[str], side: str) -> nn.Module:
    """One of the halves: "below" or "above" the cut."""
    halves = halves_of(model, at, carry)
    return halves.below if side == "below" else halves.above


def check_halves(model: nn.Module, halves: Split, shape: Sequence[int]) -> None:
    """Refuse halves that do not answer as the network; on random inputs of a shape, without their batch.

    What a forward does behind a trace's back (`x += y` where x has another name that is read later) shows here alone.
    """
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
    if like.is_meta:
        return
    whole = copy_module(model)  # a forward may keep what it saw
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)).to(like)
    with evaluating(whole), evaluating(halves.below), evaluating(halves.above):
        try:
            wanted = whole(x.clone())
        except Exception:  # it does not take such inputs, in whatever words; others say that better
            return
        try:
            result = halves(x)
        except Exception as error:
            raise BadModel(
                f"cut behind {halves.at!r}, the network's halves cannot run ({str(error).splitlines()[0]}); what answers with "
                "several tensors that are all read cannot be cut behind: cut at the layer before, or at one that reads them."
            ) from error
        if not isinstance(wanted, Tensor) or not isinstance(result, Tensor):
            return
        apart, size = (result - wanted).abs().max(), wanted.abs().max()
    if bool(size.isfinite()) and not apart <= 1e-3 * size + 1e-6:
        raise BadModel(
            f"cut behind {halves.at!r}, the network's halves answer {float(apart):.3g} apart from it (answers are up to "
            f"{float(size):.3g}): its forward does what a trace cannot follow, such as x += y where x is read under another "
            "name; write x = x + y."
        )


@dataclass(frozen=True)
class Place:
    """A layer as a place to cut behind."""

    name: str
    position: int  # of its answer, among all values of the network
    clean: bool  # nothing else goes past a cut behind it
    behind: frozenset[str]  # modules and parameters that are used behind it


def places(model: nn.Module) -> dict[str, Place]:
    """All layers and modules of layers that answer, by name, in the order in which they do.

    >>> class Skip(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.one, self.two, self.three = (nn.Linear(3, 3) for _ in range(3))
    ...     def forward(self, x):
    ...         x = self.one(x)
    ...         return self.three(self.two(x) + x)
    >>> {name: place.clean for name, place in places(Skip()).items()}
    {'one': True, 'two': False, 'three': True}
    """
    nodes = list(_traced(model).graph.nodes)
    clean = _on_every_way(nodes)
    used = [str(n.target) if n.op in ("call_module", "get_attr") else "" for n in nodes]
    last: dict[str, int] = {}  # of a module, its last value
    for k, node in enumerate(nodes):
        path = str(node.target) if node.op == "call_module" else ""
        inside = [str(result) for result, _ in (node.meta.get("nn_module_stack") or {}).values()]
        for name in {path, *inside, *around(path)} - {""}:
            last[name] = k
    known = [name for name, _ in model.named_modules() if name in last]
    return {
        name: Place(name, last[name], clean[nodes[last[name]]], frozenset(filter(None, used[last[name] + 1 :])))
        for name in sorted(known, key=last.__getitem__)
    }


def around(name: str) -> list[str]:
    """What holds a module or a parameter, the innermost first.

    >>> around("a.b.c")
    ['a.b', 'a']
    """
    return [name[:dot] for dot in range(len(name) - 1, 0, -1) if name[dot] == "."]


def _on_every_way(nodes: list[fx.Node]) -> dict[fx.Node, bool]:
    """Whether all that the output is told of the image comes through a value; lengths of the image's axes aside.

    Ways from the image to the output are counted, each step by a random weight: all of them pass through a value if and
    only if its ways there times its ways on are all ways (modulo a large prime, so but for a chance of about 1e-16).
    """
    prime, draw = 2**61 - 1, random.Random(0)
    weight: dict[tuple[fx.Node, fx.Node], int] = {}
    there = {node: int(node.op == "placeholder") for node in nodes}
    for node in nodes:
        for source in node.all_input_nodes:
            if not (_input(source) and (node.target is getattr or node.target == "size")):
                weight[source, node] = draw.randrange(1, prime)
                there[node] = (there[node] + weight[source, node] * there[source]) % prime
    on = {node: int(node.op == "output") for node in nodes}
    for node in reversed(nodes):
        for source in node.all_input_nodes:
            on[source] = (on[source] + weight.get((source, node), 0) * on[node]) % prime
    every = there[nodes[-1]]
    return {node: there[node] * on[node] % prime == every for node in nodes}


def _halves(model: nn.Module, at: str, carry: Sequence[str]) -> Split:
    graph = _traced(model)
    nodes = list(graph.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        raise BadModel(f"only networks with one input can be split; this one has {len(inputs)}.")
    cuts = {name: _output_of(nodes, name) for name in (at, *carry)}
    lower = _needed(list(cuts.values()))
    sizes = _sizes_above(nodes, set(cuts.values()))
    crossing = _crossing(nodes, {*cuts.values(), *sizes})
    if crossing:
        names = ", ".join(_layer(node) for node in crossing[:3])
        raise BadModel(
            f"a cut behind {at!r} is crossed by the output of {names}; cut elsewhere, or carry it past the cut "
            f"with carry=[{', '.join(repr(_layer(n)) for n in crossing[:3])}]."
        )
    below = _graph_below(graph, nodes, lower, list(cuts.values()))
    axes = sorted(set(sizes.values()))
    above = _graph_above(graph, nodes, list(cuts.values()), sizes, axes)
    return Split(Below(below, carry), Above(above, carry, axes), at)


def _traced(model: nn.Module) -> fx.GraphModule:
    """The network as a graph; arguments that may be left out are left out."""
    copied = copy_module(model).eval()
    given = list(inspect.signature(copied.forward).parameters.values())[1:]
    usual = {p.name: p.default for p in given if p.default is None or isinstance(p.default, bool | int | float | str)}
    try:
        graph = fx.symbolic_trace(copied, concrete_args=usual)
    except Exception as error:  # whatever a forward does that cannot be followed
        text = str(error).split("\n")[0]
        raise BadModel(f"the network's forward pass cannot be followed, so it cannot be split: {text}") from error
    for node in [n for n in graph.graph.nodes if n.op == "placeholder" and n.name.rsplit("_", 1)[0] in usual]:
        _drop(graph.graph, node)
    without_writes(graph)
    return graph


def _drop(graph: fx.Graph, node: fx.Node) -> None:
    """Take out an argument with what watches over its value; what else reads it stays, and so does it."""
    for user in list(node.users):
        _drop(graph, user)
    if not node.users and (node.op == "placeholder" or "assert" in node.name or node.target is operator.eq):
        graph.erase_node(node)


def _layer(node: fx.Node) -> str:
    """The layer a value comes from, as a user would name it."""
    if node.op == "call_module":
        return str(node.target)
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack and stack[-1][0] else node.name


def _output_of(nodes: list[fx.Node], name: str) -> fx.Node:
    """The value that comes out of a layer or of a module made of layers; or a value by its name in the graph."""
    result = [n for n in nodes if n.op == "call_module" and (n.target == name or str(n.target).startswith(name + "."))]
    inside = [n for n in nodes if any(str(path) == name for path, _ in (n.meta.get("nn_module_stack") or {}).values())]
    by_name = [n for n in nodes if n.name == name]
    last = [*result, *inside] or by_name
    if not last:
        known = [str(n.target) for n in nodes if n.op == "call_module"]
        raise UnknownName("layer", name, known)
    return _one_of_several(max(last, key=nodes.index))


def _one_of_several(node: fx.Node) -> fx.Node:
    """Of a layer that answers with several tensors, as nn.GRU does, the one that is read, where it is one."""
    items = list(node.users)
    read = [item for item in items if item.users]
    several = node.op == "call_module" and all(u.target is operator.getitem and type(u.args[1]) is int for u in items)
    return read[0] if several and len(read) == 1 else node


def _needed(cuts: list[fx.Node]) -> set[fx.Node]:
    """Everything the values at the cut are made from, themselves included."""
    result: set[fx.Node] = set()
    waiting = list(cuts)
    while waiting:
        node = waiting.pop()
        if node not in result:
            result.add(node)
            waiting.extend(node.all_input_nodes)
    return result


def _upper(nodes: list[fx.Node], cuts: set[fx.Node]) -> list[fx.Node]:
    """What the output needs beyond the cut, in order."""
    output = next(n for n in nodes if n.op == "output")
    result: set[fx.Node] = set()
    waiting = [output]
    while waiting:
        node = waiting.pop()
        if node in result or node in cuts:
            continue
        result.add(node)
        waiting.extend(node.all_input_nodes)
    return [n for n in nodes if n in result]


def _is_constant(node: fx.Node) -> bool:
    """Made of parameters and buffers alone."""
    return all(n.op == "get_attr" for n in _needed([node]) if not n.all_input_nodes)


def _crossing(nodes: list[fx.Node], cuts: set[fx.Node]) -> list[fx.Node]:
    """Values from below that something above reads without coming through the cut."""
    upper = set(_upper(nodes, cuts))
    inside = {n for n in upper if not _is_constant(n) and not (_needed([n]) & cuts)}
    output = next(n for n in nodes if n.op == "output")
    if output in inside:
        raise BadModel("the output does not depend on the layer of the cut.")
    reads = {n for user in upper - inside for n in user.all_input_nodes if n in inside}
    first = {n for n in reads if not (_needed([n]) - {n}) & reads}  # what is made of another is not named
    return sorted(first, key=nodes.index)


def _sizes_above(nodes: list[fx.Node], cuts: set[fx.Node]) -> dict[fx.Node, int]:
    """Lengths of the input's axes that are asked for above the cut: value -> axis."""
    sizes = {}
    for node in _upper(nodes, cuts):
        args = node.args
        if node.op == "call_method" and node.target == "size" and len(args) == 2 and _input(args[0]):
            sizes[node] = int(args[1])  # type: ignore[arg-type]
        if node.target is operator.getitem and isinstance(args[1], int) and _is_shape(args[0]):
            sizes[node] = int(args[1])
    return sizes


def _is_shape(value: Any) -> bool:
    """Whether a value is the shape of the input: x.shape or x.size()."""
    if not isinstance(value, fx.Node) or not _input(value.args[0] if value.args else None):
        return False
    asked = value.target is getattr and value.args[1] == "shape"
    return asked or (value.op == "call_method" and value.target == "size" and len(value.args) == 1)


def _input(value: Any) -> bool:
    return isinstance(value, fx.Node) and value.op == "placeholder"


def _graph_below(
    whole: fx.GraphModule, nodes: list[fx.Node], lower: set[fx.Node], cuts: list[fx.Node]
) -> fx.GraphModule:
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        if node in lower:
            made[node] = graph.node_copy(node, lambda n: made[n])
    values = tuple(made[cut] for cut in cuts)
    graph.output(values[0] if len(values) == 1 else values)
    return _module(whole, graph, "Below")


def _graph_above(
    whole: fx.GraphModule, nodes: list[fx.Node], cuts: list[fx.Node], sizes: dict[fx.Node, int], axes: list[int]
) -> fx.GraphModule:
    graph = fx.Graph()
    made = {cut: graph.placeholder("features" if k == 0 else f"carried{k}") for k, cut in enumerate(cuts)}
    lengths = {axis: graph.placeholder(f"size{k}") for k, axis in enumerate(axes)}
    made.update({node: lengths[axis] for node, axis in sizes.items()})
    for node in _upper(nodes, {*cuts, *sizes}):
        made[node] = graph.node_copy(node, lambda n: made[n])
    return _module(whole, graph, "Above")


def _module(whole: fx.GraphModule, graph: fx.Graph, name: str) -> fx.GraphModule:
    """The graph with the submodules it uses and nothing else."""
    graph.lint()
    module = fx.GraphModule(whole, graph, name)
    module.delete_all_unused_submodules()
    for layer in module.modules():  # features may have other readers
        if getattr(layer, "inplace", False) is True:
            layer.inplace = False  # type: ignore[assignment]
    used = {str(n.target) for n in graph.nodes if n.op == "get_attr"}
    for held in (module._parameters, module._buffers):
        for key in [k for k in held if k not in used]:
            del held[key]
    return module
