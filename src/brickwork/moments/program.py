"""A recorded forward, run value by value on real tensors: any value can be asked for, in any order.

Values are computed on demand and kept until dropped, for all batches side by side, so that layers can be
solved one after the other while every image passes through every network once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from brickwork.blueprint.record import Graph, Op, Value
from brickwork.errors import Unsupported


class Program:
    """One network's recorded operations over a list of batches of one shape."""

    def __init__(self, model: nn.Module, graph: Graph, batches: list[Tensor]) -> None:
        self.graph, self.batches = graph, batches
        self.device = batches[0].device
        self.tensors = dict(
            [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        )
        self.ops = graph.live()
        self.made_by = {v.index: op for op in self.ops for v in op.outputs if v is not None}
        self.named = {v.index: name for name, v in graph.tensors.items()}
        self.uses: dict[int, int] = {graph.output.index: 1}
        for op in self.ops:
            for value in op.inputs():
                self.uses[value.index] = self.uses.get(value.index, 0) + 1
        self.store: dict[int, list[Any]] = {graph.inputs[0].index: list(batches)}
        self.done: set[int] = set()

    def refresh(self, model: nn.Module) -> None:
        """Weights were changed: later values see the new ones."""
        self.tensors = dict(
            [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        )

    def get(self, value: Value) -> list[Tensor]:
        """The value for every batch, computing what it needs and does not have yet."""
        pending = [value]
        while pending:
            current = pending[-1]
            if self._have(current):
                pending.pop()
                continue
            op = self.made_by.get(current.index)
            if op is None:
                raise _unknown()
            missing = [v for v in op.inputs() if not self._have(v)]
            if missing:
                pending.extend(missing)
                continue
            self._run(op)
            pending.pop()
        return self._read(value)

    def drop(self, value: Value) -> None:
        """Forget a stored value; asking for it again computes it again (with the weights of then)."""
        if value is not self.graph.inputs[0]:
            self.store.pop(value.index, None)

    def _have(self, value: Value) -> bool:
        return value.index in self.store or value.index in self.named or value.constant is not None

    def _read(self, value: Value) -> list[Tensor]:
        if value.index in self.store:
            return self.store[value.index]
        tensor = self.tensors[self.named[value.index]] if value.index in self.named else value.constant
        if tensor is None:
            raise _unknown()
        return [tensor.to(self.device)] * len(self.batches)

    def _run(self, op: Op) -> None:
        function, kwargs = _functional(op), dict(op.kwargs)
        if "device" in kwargs and kwargs["device"] is not None:
            kwargs["device"] = self.device
        inputs = {v.index: self._read(v) for v in op.inputs()}
        results: list[list[Any]] = [[] for _ in op.outputs]
        with torch.no_grad():
            for k in range(len(self.batches)):

                def fill(x: Any, k: int = k) -> Any:
                    return inputs[x.index][k].detach() if isinstance(x, Value) else x

                made = function(*tree_map(fill, op.args), **tree_map(fill, kwargs))
                for part, slot in zip(made if isinstance(made, (tuple, list)) else [made], results, strict=False):
                    slot.append(part)
        for value, slot in zip(op.outputs, results, strict=True):
            if value is not None and slot:
                self.store[value.index] = slot
        self._release(op)

    def _release(self, op: Op) -> None:
        """Free what no later operation needs."""
        if id(op) in self.done:
            return
        self.done.add(id(op))
        for value in op.inputs():
            self.uses[value.index] -= 1
            if self.uses[value.index] == 0 and value is not self.graph.inputs[0]:
                self.store.pop(value.index, None)


def run_with_grad(
    model: nn.Module, graph: Graph, images: Tensor, wanted: Collection[int], tell: Callable[[int, Tensor, Tensor], None]
) -> Tensor:
    """One batch through a recorded network; its output, ready for backward().

    While that runs, tell(index, value, gradient) hears of every wanted value, and nothing is kept after it.
    """
    program = Program(model, graph, [images])
    values: dict[int, Any] = {graph.inputs[0].index: images}
    last = {value.index: op for op in program.ops for value in op.inputs()}
    with torch.enable_grad():
        for op in program.ops:
            kwargs = dict(op.kwargs)
            if kwargs.get("device") is not None:
                kwargs["device"] = images.device

            def fill(x: Any) -> Any:
                if not isinstance(x, Value):
                    return x
                return values[x.index] if x.index in values else program._read(x)[0].detach()

            made = _functional(op)(*tree_map(fill, op.args), **tree_map(fill, kwargs))
            for value, part in zip(op.outputs, made if isinstance(made, (tuple, list)) else [made], strict=False):
                if value is None:
                    continue
                if value.index in wanted:
                    part = part if part.requires_grad else part.detach().requires_grad_()
                    part.register_hook(partial(tell, value.index, part.detach()))
                values[value.index] = part
            for value in op.inputs():
                if last[value.index] is op and value is not graph.output:
                    values.pop(value.index, None)
    return values[graph.output.index]


def _unknown() -> Unsupported:
    return Unsupported(
        "the forward makes a tensor on the device of its input whose values cannot be recorded (random numbers, "
        "or a function that is not torch's own); make it a buffer"
    )


def _functional(op: Op) -> Any:
    """In-place operations run as their pure twins: stored values must not change under our hands."""
    if isinstance(op.func, str):
        raise Unsupported(
            f"{op.args[2]} in {op.module or 'the top module'} writes into shared memory; make it out-of-place"
        )
    name = op.func._schema.name.removeprefix("aten::")
    if name in ("view", "_unsafe_view"):  # real tensors may lie in memory otherwise than the recorded ones
        return lambda x, size: x.reshape(size)
    if name == "copy_":  # its pure twin has no gradient
        return lambda x, source, *_: source.to(x.dtype).expand(x.shape)
    if name.endswith("_") and not name.endswith("__"):
        packet = getattr(torch.ops.aten, name[:-1], None)
        if packet is None:
            raise Unsupported(f"{op.name} in {op.module} has no out-of-place form")
        return getattr(packet, op.func._overloadname)
    return op.func
