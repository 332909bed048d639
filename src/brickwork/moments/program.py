"""A recorded forward, run value by value on real tensors: any value can be asked for, in any order.

Values are computed on demand, batch by batch, and those that later operations need are stored while there is room for
them, so that layers can be solved one after the other: with room enough every image passes through every network once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from brickwork.blueprint.record import Graph, Op, Value
from brickwork.errors import Unsupported
from brickwork.moments.batches import ImageBatches


@dataclass(frozen=True)
class _State:
    """What is stored of one batch."""

    store: dict[int, Tensor]
    uses: dict[int, int]  # how often each value will still be read
    done: frozenset[int]  # operations whose results were stored, or are not wanted any more

    @property
    def size(self) -> int:
        return sum(map(_size, self.store.values()))


@dataclass(frozen=True)
class _Plan:
    """What to run of a batch, and its state afterwards."""

    ops: list[int]
    last: dict[int, int]  # the last operation that reads each value
    keep: set[int]  # new values to be stored
    still: list[int]  # stored ones that stay
    uses: dict[int, int]
    done: frozenset[int]
    size: int  # bytes stored then


class Program:
    """One network's recorded operations over batches of one shape."""

    def __init__(
        self, model: nn.Module, graph: Graph, batches: Sequence[Tensor] | ImageBatches, *, room: int | None = None
    ) -> None:
        """room: bytes that stored values of all batches may take; None: no bound."""
        self.graph, self.batches, self.room = graph, batches, room
        self.device = batches.like.device if isinstance(batches, ImageBatches) else next(iter(batches)).device
        self.tensors = dict(
            [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        )
        self.ops = graph.live()
        self.made_by = {v.index: k for k, op in enumerate(self.ops) for v in op.outputs if v is not None}
        self.named = {v.index: name for name, v in graph.tensors.items()}
        uses: dict[int, int] = {graph.output.index: 1}
        for op in self.ops:
            for value in op.inputs():
                uses[value.index] = uses.get(value.index, 0) + 1
        self.constants = {
            v.index: v.constant.to(self.device) for op in self.ops for v in op.inputs() if v.constant is not None
        }
        self.states = [_State({}, uses, frozenset()) for _ in range(len(batches))]

    def get(self, value: Value) -> list[Tensor]:
        """The value for every batch, computing what it needs and does not have yet."""
        return [found for (found,) in self.each([value])]

    def each(self, values: Sequence[Value]) -> Iterator[list[Tensor]]:
        """Batch by batch, these values.

        What later operations need is stored, of as many batches as there is room for; the others start again from what is
        stored of them.
        """
        held = sum(state.size for state in self.states)
        plans: dict[tuple[frozenset[int], frozenset[int]], _Plan] = {}
        for number, state in enumerate(self.states):
            key = frozenset(state.store), state.done
            plan = plans.get(key) or plans.setdefault(key, self._plan(values, state))
            advance = self.room is None or held - state.size + plan.size <= self.room
            wanted = {v.index for v in values} | (plan.keep if advance else set())
            here: dict[int, Tensor] = {}
            for k in plan.ops:
                op = self.ops[k]
                self._run(op, number, here)
                for used in (*op.inputs(), *op.outputs):
                    if used is not None and used.index not in wanted and plan.last.get(used.index, k) == k:
                        here.pop(used.index, None)
            yield [self._read(value, number, here) for value in values]
            if advance:
                still = {index: state.store[index] for index in plan.still}
                after = _State({**still, **{index: here[index] for index in plan.keep}}, plan.uses, plan.done)
                held += after.size - state.size
                self.states[number] = after

    def forget(self, value: Value) -> None:
        """A weight in front of this value was changed: whatever was computed behind it is stale."""
        stale = {value.index}
        for op in self.ops:
            if any(v.index in stale for v in op.inputs()):
                stale.update(v.index for v in op.outputs if v is not None)
        for state in self.states:
            for index in stale & set(state.store):
                del state.store[index]

    def _plan(self, values: Sequence[Value], state: _State) -> _Plan:
        """Which operations have to run for these values, and what is to be stored afterwards."""
        chosen: set[int] = set()
        pending = [v for v in values if not self._have(v, state)]
        while pending:
            value = pending.pop()
            if value.index not in self.made_by:
                raise _unknown()
            k = self.made_by[value.index]
            if k not in chosen:
                chosen.add(k)
                pending.extend(v for v in self.ops[k].inputs() if not self._have(v, state))
        ops = sorted(chosen)
        uses = dict(state.uses)
        for k in ops:
            if k not in state.done:
                for value in self.ops[k].inputs():
                    uses[value.index] -= 1
        made = {v.index: v for k in ops for v in self.ops[k].outputs if v is not None}
        keep = {index for index in made if uses.get(index, 0) > 0}
        still = [index for index in state.store if uses.get(index, 0) > 0]
        size = sum(_bytes(made[index]) for index in keep) + sum(_size(state.store[index]) for index in still)
        last = {v.index: k for k in ops for v in self.ops[k].inputs()}
        return _Plan(ops, last, keep, still, uses, state.done | chosen, size)

    def _have(self, value: Value, state: _State) -> bool:
        known = value.index in state.store or value.index in self.named or value.constant is not None
        return known or value is self.graph.inputs[0]

    def _read(self, value: Value, number: int, here: Mapping[int, Tensor]) -> Tensor:
        if value.index in here:
            return here[value.index]
        if value is self.graph.inputs[0]:
            return self.batches[number]
        if value.index in self.states[number].store:
            return self.states[number].store[value.index]
        if value.index in self.named:
            return self.tensors[self.named[value.index]].to(self.device)
        if value.index not in self.constants:
            raise _unknown()
        return self.constants[value.index]

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


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _bytes(value: Value) -> int:
    return math.prod(value.shape) * value.dtype.itemsize


def run_with_grad(
    model: nn.Module, graph: Graph, images: Tensor, wanted: Collection[int], tell: Callable[[int, Tensor, Tensor], None]
) -> Tensor:
    """One batch through a recorded network; its output, ready for backward().

    While that runs, tell(index, value, gradient) hears of every wanted value, and nothing is kept after it.
    """

    def listen(value: Value, part: Tensor) -> Tensor:
        if value.index in wanted:
            part = part if part.requires_grad else part.detach().requires_grad_()
            part.register_hook(partial(tell, value.index, part.detach()))
        return part

    with torch.enable_grad():
        return run_values(Program(model, graph, [images]), images, each=listen)[graph.output.index]


def run_values(
    program: Program,
    images: Tensor,
    *,
    wanted: Collection[int] = (),
    each: Callable[[Value, Tensor], Tensor] | None = None,
    learn: bool = False,
) -> dict[int, Tensor]:
    """One batch through a recorded network, with gradients where they are on: {index: value} of the output and the wanted.

    each(value, made) gives what the rest of the forward sees. learn: gradients of the parameters, too.
    """
    graph = program.graph
    values: dict[int, Any] = {graph.inputs[0].index: images}
    stay = {graph.output.index, *wanted}
    last = {value.index: op for op in program.ops for value in op.inputs()}

    def fill(x: Any) -> Any:
        if not isinstance(x, Value):
            return x
        if x.index in values:
            return values[x.index]
        found = program._read(x, 0, {})
        return found if learn else found.detach()

    for op in program.ops:
        kwargs = dict(op.kwargs)
        if kwargs.get("device") is not None:
            kwargs["device"] = images.device
        made = _functional(op)(*tree_map(fill, op.args), **tree_map(fill, kwargs))
        for value, part in zip(op.outputs, made if isinstance(made, (tuple, list)) else [made], strict=False):
            if value is not None:
                values[value.index] = part if each is None else each(value, part)
        for value in op.inputs():
            if last[value.index] is op and value.index not in stay:
                values.pop(value.index, None)
    return {index: values[index] for index in stay}


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
        pure = _pure(op.func)
        if pure is None:
            raise Unsupported(f"{op.name} in {op.module or 'the top module'} has no out-of-place form")
        return pure
    return op.func


@lru_cache(maxsize=1024)
def _pure(func: Any) -> Any:
    """What gives the same from the same arguments and writes nowhere; its overload may have another name (`transpose_`)."""

    def takes(one: Any) -> list[tuple[str, str]]:
        return [(argument.name, str(argument.type)) for argument in one._schema.arguments]

    packet = getattr(torch.ops.aten, func._schema.name.removeprefix("aten::")[:-1], None)
    every = [] if packet is None else [getattr(packet, name) for name in packet.overloads()]
    return next((one for one in every if takes(one) == takes(func)), None)
