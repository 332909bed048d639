"""A recorded forward, run value by value on real tensors: any value can be asked for, in any order.

Values are computed on demand, batch by batch, and those that later operations need are stored while there is room for
them, so that layers can be solved one after the other: with room enough every image passes through every network once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from brickwork.blueprint.record import Graph, Op, Value
from brickwork.errors import Unsupported
from brickwork.moments.batches import ImageBatches


class Program:
    """One network's recorded operations over batches of one shape."""

    def __init__(
        self, model: nn.Module, graph: Graph, batches: Sequence[Tensor] | ImageBatches, *, room: int | None = None
    ) -> None:
        """room: bytes that stored values of all batches may take; None: no bound."""
        self.graph, self.batches, self.room = graph, batches, room
        self.device = next(iter(batches)).device
        self.tensors = dict(
            [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        )
        self.ops = graph.live()
        self.made_by = {v.index: k for k, op in enumerate(self.ops) for v in op.outputs if v is not None}
        self.named = {v.index: name for name, v in graph.tensors.items()}
        self.uses: dict[int, int] = {graph.output.index: 1}
        for op in self.ops:
            for value in op.inputs():
                self.uses[value.index] = self.uses.get(value.index, 0) + 1
        self.store: dict[int, list[Tensor]] = {}
        self.done: set[int] = set()  # operations whose results were stored, or are not wanted any more

    def get(self, value: Value) -> list[Tensor]:
        """The value for every batch, computing what it needs and does not have yet."""
        return [found for (found,) in self.each([value])]

    def each(self, values: Sequence[Value]) -> Iterator[list[Tensor]]:
        """Batch by batch, these values.

        What later operations need is stored where there is room for it; else they start again from what is stored.
        """
        plan = self._plan(values)
        uses = dict(self.uses)
        for k in plan:
            if k not in self.done:
                for value in self.ops[k].inputs():
                    uses[value.index] -= 1
        made = {v.index: v for k in plan for v in self.ops[k].outputs if v is not None}
        keep = [v for index, v in made.items() if uses.get(index, 0) > 0]
        still = [index for index in self.store if uses.get(index, 0) > 0]
        if self.room is not None:
            size = sum(_bytes(v) for v in keep) * len(self.batches)
            size += sum(t.numel() * t.element_size() for index in still for t in self.store[index])
            advance = size <= self.room
        else:
            advance = True
        wanted = {v.index for v in values} | {v.index for v in keep if advance}
        last = {v.index: k for k in plan for v in self.ops[k].inputs()}
        new: dict[int, list[Tensor]] = {v.index: [] for v in keep}
        gone, nothing = [index for index in self.store if index not in still], torch.empty(0)
        for number in range(len(self.batches)):
            here: dict[int, Tensor] = {}
            for k in plan:
                self._run(self.ops[k], number, here)
                for used in (*self.ops[k].inputs(), *self.ops[k].outputs):
                    if used is not None and used.index not in wanted and last.get(used.index, k) == k:
                        here.pop(used.index, None)
            if advance:
                for index, slot in new.items():
                    slot.append(here[index])
            yield [self._read(value, number, here) for value in values]
            if advance:  # what is not needed any more goes at once: the old and the new never lie side by side
                for index in gone:
                    self.store[index][number] = nothing
        if advance:
            self.store = {index: self.store[index] for index in still} | new
            self.uses = uses
            self.done.update(plan)

    def forget(self, value: Value) -> None:
        """A weight in front of this value was changed: whatever was computed behind it is stale."""
        stale = {value.index}
        for op in self.ops:
            if any(v.index in stale for v in op.inputs()):
                stale.update(v.index for v in op.outputs if v is not None)
        for index in stale & set(self.store):
            del self.store[index]

    def _plan(self, values: Sequence[Value]) -> list[int]:
        """The operations that have to run for these values, by their numbers."""
        result: set[int] = set()
        pending = [v for v in values if not self._have(v)]
        while pending:
            value = pending.pop()
            if value.index not in self.made_by:
                raise _unknown()
            k = self.made_by[value.index]
            if k not in result:
                result.add(k)
                pending.extend(v for v in self.ops[k].inputs() if not self._have(v))
        return sorted(result)

    def _have(self, value: Value) -> bool:
        known = value.index in self.store or value.index in self.named or value.constant is not None
        return known or value is self.graph.inputs[0]

    def _read(self, value: Value, number: int, here: Mapping[int, Tensor]) -> Tensor:
        if value.index in here:
            return here[value.index]
        if value is self.graph.inputs[0]:
            return self.batches[number]
        if value.index in self.store:
            return self.store[value.index][number]
        tensor = self.tensors[self.named[value.index]] if value.index in self.named else value.constant
        if tensor is None:
            raise _unknown()
        return tensor.to(self.device)

    def _run(self, op: Op, number: int, here: dict[int, Tensor]) -> None:
        function, kwargs = _functional(op), dict(op.kwargs)
        if "device" in kwargs and kwargs["device"] is not None:
            kwargs["device"] = self.device

        def fill(x: Any) -> Any:
            return self._read(x, number, here).detach() if isinstance(x, Value) else x

        with torch.no_grad():
            made = function(*tree_map(fill, op.args), **tree_map(fill, kwargs))
        for value, part in zip(op.outputs, made if isinstance(made, (tuple, list)) else [made], strict=False):
            if value is not None:
                here[value.index] = part


def _bytes(value: Value) -> int:
    return math.prod(value.shape) * value.dtype.itemsize


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
                return values[x.index] if x.index in values else program._read(x, 0, {}).detach()

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
