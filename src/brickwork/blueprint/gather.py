"""Rewrite channel moves (split, shuffle, slice, flip) of a model's forward as explicit gathers.

A forward such as `x.view(b, groups, -1, h, w).transpose(1, 2)` is right for the full width only. Where a cut
breaks it, the forward is traced symbolically and each such chain becomes one index_select with a stored
index, which surgery can cut like any other tensor. The modules, their names and weights stay the same.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from brickwork.blueprint.in_place import writes
from brickwork.blueprint.labels import Units, align, varies
from brickwork.blueprint.prove import Drawn, Sides, on_meta, precision, proof_input, prove, run, scrambled
from brickwork.blueprint.record import Value, current_value, record
from brickwork.blueprint.walk import Walk
from brickwork.copying import copy_module
from brickwork.errors import BrickworkError

if TYPE_CHECKING:
    from brickwork.blueprint.plan import Blueprint

_MOVES = {
    "view",
    "reshape",
    "transpose",
    "permute",
    "contiguous",
    "chunk",
    "split",
    "flatten",
    "unflatten",
    "unbind",
    "narrow",
    "unsqueeze",
    "squeeze",
    "getitem",
    "flip",
    "roll",
    "swapaxes",
    "channel_shuffle",
    "movedim",
    "tensor_split",
    "split_with_sizes",
    "select",
    "index_select",
    "clone",
    "detach",
}


_DROPOUTS: dict[Any, Any] = {  # whose calls say "training" as a constant once they are written down
    F.dropout: nn.Dropout,
    F.dropout1d: nn.Dropout1d,
    F.dropout2d: nn.Dropout2d,
    F.dropout3d: nn.Dropout3d,
    F.alpha_dropout: nn.AlphaDropout,
    F.feature_alpha_dropout: nn.FeatureAlphaDropout,
}


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, qualified_name: str) -> bool:
        return m.__module__.startswith("brickwork.blueprint") or super().is_leaf_module(m, qualified_name)


class _Noting(nn.Module):
    """Runs a graph node by node and notes which recorded value each node has."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__()
        self.module = module
        self.values: dict[str, Value] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Noting:
        twin = _Noting(copy_module(self.module, memo))
        twin.values = self.values  # shared on purpose: the recording runs on the copy
        return twin

    def forward(self, *args: Any) -> Any:
        noting = self

        class Interpreter(fx.Interpreter):
            def run_node(self, n: fx.Node) -> Any:
                result = super().run_node(n)
                if isinstance(result, Tensor):
                    value = current_value(result)
                    if value is not None:
                        noting.values[n.name] = value
                return result

        return Interpreter(self.module).run(*args)


def with_gathers(model: nn.Module, bp: Blueprint) -> tuple[nn.Module, Blueprint] | None:
    """The model with its channel moves made explicit, and its blueprint; None where that cannot be done."""
    from brickwork.blueprint.plan import trace

    if not isinstance(bp.example, Tensor):
        return None
    # a forward may put what passes through it into its module: into a copy then, with the same tensors
    model = copy_module(model, {id(t): t for t in [*model.parameters(), *model.buffers()]})
    try:
        module = _traced(model)
    except Exception:  # symbolic tracing gives up in many ways; then the plain refusal stands
        return None
    noting = _Noting(module)
    try:
        recorded = record(noting, bp.example, output=bp.output)
        walk = Walk(recorded, Units()).run()
        if not _rewrite(module, noting.values, walk):
            return None
        if not on_meta(model):
            _prove_same(model, module, bp)
        return module, trace(module, bp.example, output=bp.output)
    except BrickworkError:
        return None


def _traced(model: nn.Module) -> fx.GraphModule:
    """The forward written down, for training and evaluation alike; ValueError where more than dropouts tells them apart.

    In place: the model is left in training mode.
    """
    plain, training = (_Tracer().trace(model.train(mode)) for mode in (False, True))
    module = fx.GraphModule(model, plain, class_name=type(model).__name__)
    pairs = list(zip(module.graph.nodes, training.nodes, strict=True))
    for node, other in [
        pair for pair in pairs if len({(n.op, n.target, str(n.args), str(n.kwargs)) for n in pair}) > 1
    ]:
        x, rate = _dropped(node)
        if node.target is not other.target or str((x, rate)) != str(_dropped(other)):
            raise ValueError(f"{node} is another operation in training")
        name = f"{node.name}_of_training"
        module.add_submodule(name, _DROPOUTS[node.target](rate))
        with module.graph.inserting_after(node):
            node.replace_all_uses_with(module.graph.call_module(name, (x,)))
        module.graph.erase_node(node)
    module.recompile()
    return module


def _dropped(node: fx.Node) -> tuple[Any, float]:
    """What a call of a dropout drops of, and how much of it."""
    if node.target not in _DROPOUTS:
        raise ValueError(f"{node} is no dropout")
    given: dict[str, Any] = {"p": 0.5, **dict(zip(("input", "p"), node.args, strict=False)), **node.kwargs}
    return given["input"], given["p"]


def _prove_same(model: nn.Module, module: nn.Module, bp: Blueprint) -> None:
    """Later proofs compare the rewritten network with itself; here it is compared with the model."""
    dtype = precision(bp, model)

    def sides(how: Drawn) -> Sides:
        twin = scrambled(model, 0, dtype, how=how)
        numbers = dict(_tensors(twin))
        drawn = {id(tensor): numbers[name] for name, tensor in _tensors(model) if tensor.is_floating_point()}
        other = scrambled(module, 0, dtype, drawn, how)
        ask = partial(run, twin, output=bp.output)
        example, answer = proof_input(bp.example, dtype, ask, asked=[twin], pixels=False, how=how)
        return lambda: run(other, example, bp.output), lambda: ask(example) if answer is None else answer

    prove(sides, "this network with explicit gathers")


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]


def _labels(walk: Walk, value: Value | None) -> tuple[Tensor, int] | None:
    """The labels of a tensor that has channels along one axis, and that axis."""
    plane = walk.of(value).plane if value is not None else None
    if value is None or plane is None:
        return None
    dims = varies(align(plane, len(value.shape)))
    return (plane.reshape(-1), next(iter(dims))) if len(dims) == 1 else None


def _rewrite(module: fx.GraphModule, values: dict[str, Value], walk: Walk) -> bool:
    graph, count = module.graph, 0
    for node in list(graph.nodes):
        mine = _labels(walk, values.get(node.name))
        if mine is None or not _is_move(node) or all(_is_move(user) and _single(user) for user in node.users):
            continue
        source = _anchor(node, values, walk, mine)
        if source is None:
            continue
        origin = _labels(walk, values[source.name])
        assert origin is not None
        if torch.equal(origin[0], mine[0]):
            continue
        places = {int(u): k for k, u in enumerate(origin[0].tolist())}
        index = torch.tensor([places[int(u)] for u in mine[0]])
        name = f"brickwork_index_{count}"
        module.register_buffer(name, index)
        with graph.inserting_before(node):
            stored = graph.get_attr(name)
            gathered = graph.call_function(torch.index_select, (source, mine[1], stored))
        node.replace_all_uses_with(gathered)
        values[gathered.name] = values[node.name]
        count += 1
    modules = dict(module.named_modules())
    graph.eliminate_dead_code(lambda node: node.is_impure() or writes(node, modules))  # what nobody reads may write
    graph.lint()
    module.recompile()
    return count > 0


def _is_move(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in _MOVES
    return node.op == "call_function" and getattr(node.target, "__name__", "") in _MOVES


def _single(node: fx.Node) -> bool:
    return bool(node.args) and isinstance(node.args[0], fx.Node)


def _anchor(node: fx.Node, values: dict[str, Value], walk: Walk, mine: tuple[Tensor, int]) -> fx.Node | None:
    """The earliest tensor of the same shape beside its channels, from which moves alone take all of these."""
    wanted, dim = set(mine[0].tolist()), mine[1]
    shape = values[node.name].shape
    current, best = node, None
    while _is_move(current) and _single(current):
        current = current.args[0]  # type: ignore[assignment]
        value = values.get(current.name)
        result = _labels(walk, value)
        if value is None or result is None or result[1] != dim or len(value.shape) != len(shape):
            continue
        if any(a != b for d, (a, b) in enumerate(zip(value.shape, shape, strict=True)) if d != dim):
            continue
        if len(set(result[0].tolist())) == len(result[0]) and wanted <= set(result[0].tolist()) and 0 not in wanted:
            best = current
    return best
