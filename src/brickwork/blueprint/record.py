"""Run a model once on shapes alone and write down every tensor operation it performs.

The model's structure is copied onto the meta device (no data, no arithmetic), its forward runs there, and a
dispatch mode notes each ATen call with its module path. Shape-dependent Python control flow just runs;
control flow that depends on values cannot, and is refused by name. The user's model is never touched.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from brickwork.blueprint.shapes import quick
from brickwork.copying import copy_module
from brickwork.errors import BadModel, RequestError, Unsupported
from brickwork.origin import check_module
from brickwork.outputs import logits_of


@dataclass
class Value:
    """One tensor in the recorded graph: its shape, and where it came from."""

    index: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    name: str | None = None  # the parameter's or buffer's (first) name
    constant: Tensor | None = None  # a real tensor that the forward brought along


@dataclass
class Op:
    """One ATen call. Tensors in `args` are replaced by their Value."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Value | None, ...]
    module: str  # path of the innermost module whose forward made the call
    line: str  # the user's source line, for messages
    _inputs: list[Value] | None = None

    @property
    def name(self) -> str:
        return str(self.func)

    @cached_property
    def place(self) -> str:
        return f"{self.name.removeprefix('aten.')} in {self.module or 'the top module'!s}"

    def inputs(self) -> list[Value]:
        if self._inputs is None:
            self._inputs = [x for x in _leaves((self.args, self.kwargs)) if isinstance(x, Value)]
        return self._inputs


@dataclass
class Graph:
    """What a model does, in order, from its inputs to the output that matters."""

    ops: list[Op]
    inputs: list[Value]
    output: Value
    tensors: dict[str, Value]  # every parameter and buffer, all names (tied names share a Value)
    module_inputs: dict[str, Value] = field(default_factory=dict)  # first tensor each module was called with
    module_outputs: dict[str, Value] = field(default_factory=dict)  # last tensor each module returned
    calls: dict[str, int] = field(default_factory=dict)  # how often each module ran
    open_heads: frozenset[str] = frozenset()  # attentions the dimensions of whose heads are channels
    _live: tuple[Value, list[Op]] | None = None

    def live(self) -> list[Op]:
        """The operations the output depends on, in order."""
        if self._live is not None and self._live[0] is self.output:
            return self._live[1]
        needed, kept = {self.output.index}, []
        for op in reversed(self.ops):
            if any(o is not None and o.index in needed for o in op.outputs):
                needed.update(v.index for v in op.inputs())
                kept.append(op)
        self._live = (self.output, kept[::-1])
        return self._live[1]


def _leaves(x: Any) -> Iterator[Any]:
    """What an operation's arguments hold: torch's own way for all containers takes several times as long."""
    if type(x) is tuple or type(x) is list:
        for each in x:
            yield from _leaves(each)
    elif type(x) is dict:
        yield from _leaves(list(x.values()))
    else:
        yield x


def _changed(change: Callable[[Any], Any], x: Any) -> Any:
    """The same containers with every leaf changed."""
    if type(x) is tuple or type(x) is list:
        return type(x)([_changed(change, each) for each in x])
    if type(x) is dict:
        return {key: _changed(change, each) for key, each in x.items()}
    return change(x)


def as_call(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An example is a tensor, a tuple of positional arguments, or a dict of keyword arguments."""
    if isinstance(example, Tensor):
        return (example,), {}
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, (tuple, list)) and example:
        return tuple(example), {}
    raise RequestError(
        f"example must be a tensor, a tuple of arguments or a dict of keyword arguments, not {type(example).__name__}"
    )


def meta_copy(model: nn.Module) -> nn.Module:
    """A structural copy on the meta device, in eval mode; tied tensors stay tied."""
    memo: dict[int, Any] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        empty = torch.empty_like(tensor, device="meta", requires_grad=False)
        memo[id(tensor)] = nn.Parameter(empty, requires_grad=False) if isinstance(tensor, nn.Parameter) else empty
    return copy_module(model, memo).eval()


def _to_meta(kwargs: Mapping[str, Any]) -> bool:
    return torch.device(kwargs.get("device") or "cpu").type == "meta"


#: what makes a tensor out of numbers
_MAKERS = {
    torch.tensor,
    torch.as_tensor,
    torch.scalar_tensor,
    torch.arange,
    torch.linspace,
    torch.logspace,
    torch.eye,
    torch.full,
    torch.zeros,
    torch.ones,
    torch.empty,
    torch.tril_indices,
    torch.triu_indices,
    torch.fft.fftfreq,
    torch.fft.rfftfreq,
}


class _RealConstants(TorchFunctionMode):
    """A table that a forward makes "where its input is" keeps its numbers: made for real, then sent there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            return func(args[0], _listed(args[1]), *args[2:])
        if func is Tensor.new_tensor:
            own = {"dtype": args[0].dtype, "device": args[0].device}
            kwargs = {**own, **{name: value for name, value in kwargs.items() if value is not None}}
            func, args = torch.tensor, args[1:]
        if func not in _MAKERS or not _to_meta(kwargs) or any(isinstance(x, Tensor) for x in _leaves((args, kwargs))):
            return func(*args, **kwargs)
        real = func(*args, **{**kwargs, "device": "cpu"})
        return (real.zero_() if func is torch.empty else real).to("meta")


def _listed(index: Any) -> Any:
    """An index with its lists of numbers as tensors: of a list in brackets, torch would show none.

    A list of lists that is not within a tuple is left to torch, whose versions differ in what it means.
    """
    if type(index) is tuple:
        return tuple(_numbers(each) for each in index)
    flat = isinstance(index, list) and not any(isinstance(each, list | Tensor) for each in index)
    return _numbers(index) if flat else index


def _numbers(index: Any) -> Any:
    """A list as a tensor, if all that it holds is known whole numbers."""
    if not isinstance(index, list):
        return index
    inside = list(index)
    while any(isinstance(x, list) for x in inside):
        inside = [y for x in inside for y in (x if isinstance(x, list) else [x])]
    if not all(isinstance(x, Integral) or (isinstance(x, Tensor) and not x.is_meta) for x in inside):
        return index
    return torch.tensor(index, dtype=None if inside else torch.int64)


#: parts of a tensor nobody is to look at again; cells of nn.GRU and nn.LSTM compute in them
_UNSAFE = ("aten::unsafe_split", "aten::unsafe_split_with_sizes", "aten::unsafe_chunk")


class _Recorder(TorchDispatchMode):
    active: _Recorder | None = None  # the recording under way, for code that runs inside it

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self.count = 0
        self.values: dict[int, Value] = {}  # id of a live tensor object -> its current value
        self.storages: dict[int, list[Tensor]] = {}  # tensors that share memory, by storage
        self.slices: dict[int, tuple[Any, ...]] = {}  # of a value that is a slice: of which value, and which one
        self.alive: list[Tensor] = []  # keeps ids unique while recording
        self.stack: list[str] = []

    def value(self, tensor: Tensor, **facts: Any) -> Value:
        result = self.values.get(id(tensor))
        if result is None:
            result = Value(self.count, tuple(tensor.shape), tensor.dtype, **facts)
            self.count += 1
            self.values[id(tensor)] = result
            self.alive.append(tensor)
            if tensor.is_meta:
                self.storages.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
        return result

    def renew(self, tensor: Tensor) -> Value:
        self.values.pop(id(tensor), None)
        return self.value(tensor)

    def to_meta(self, x: Any) -> Any:
        if isinstance(x, Tensor) and not x.is_meta:
            known = self.values.get(id(x))
            twin = x.to("meta")
            if known is None or known.constant is None or not torch.equal(known.constant, x):
                self.values.pop(id(x), None)  # it was written into since: another table
                known = self.value(x, constant=x.clone())
            self.values[id(twin)] = known
            self.alive.append(twin)
            return twin
        return x

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(isinstance(x, Tensor) and x.is_meta for x in _leaves((args, kwargs))):
            return self._record(func, args, kwargs)
        if func is torch.ops.aten._to_copy.default and _to_meta(kwargs):
            made = self._record(func, args, kwargs)
            self.values[id(made)].constant = func(*args, **{**kwargs, "device": "cpu"})
            return made
        made = func(*args, **kwargs)  # constants among themselves: compute for real
        if _to_meta(kwargs) and torch.Tag.nondeterministic_seeded not in func.tags and isinstance(made, Tensor):
            # made by an operation for its own use; what is empty will be written into
            empty = func._schema.name.startswith("aten::empty")
            real = torch.zeros((), dtype=made.dtype).expand(made.shape) if empty else None
            self.value(made, constant=func(*args, **{**kwargs, "device": "cpu"}) if real is None else real)
        return made

    def _record(self, func: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = tuple(args), dict(kwargs)
        if any(isinstance(x, Tensor) and not x.is_meta for x in _leaves((args, kwargs))):
            args, kwargs = _changed(self.to_meta, (args, kwargs))
        noted = _changed(lambda x: self.value(x) if isinstance(x, Tensor) else x, (args, kwargs))
        result = quick(func, args)
        if result is None:
            result = func(*args, **kwargs)
        if func._schema.name in _UNSAFE:  # parts that are written into as if each were alone: then each is
            result = [part.clone() for part in result]
        leaves = [x if isinstance(x, Tensor) else None for x in _leaves(result)]
        places = [k for k in _written(func) if k < len(args) and isinstance(args[k], Tensor)]
        written = {id(args[k]): (args[k], noted[0][k]) for k in places}
        outputs: list[Value | None] = []
        for leaf in leaves:
            if leaf is None:
                outputs.append(None)
            elif id(leaf) in written or id(leaf) in self.values:
                outputs.append(self.renew(leaf))
            else:
                outputs.append(self.value(leaf))
        where = self.stack[-1] if self.stack else ""
        op = Op(func, noted[0], noted[1], tuple(outputs), where, _user_line())
        self.ops.append(op)
        if func is torch.ops.aten.slice.Tensor and outputs[0] is not None:
            self.slices[outputs[0].index] = noted[0]
        for tensor, before in written.values():
            self._spread_write(tensor, before, op)
        return result

    def _spread_write(self, tensor: Tensor, before: Value, op: Op) -> None:
        """An in-place write is seen by every tensor that shares the memory: give each a new version. before: its last one."""
        new = self.values[id(tensor)]
        if new not in op.outputs:
            new = self.renew(tensor)
            op.outputs = (*op.outputs, new)
        others = [other for other in self.storages.get(tensor.untyped_storage()._cdata, []) if other is not tensor]
        part, made = before, new
        while part.index in self.slices:  # what it is a slice of holds what was written
            base, *which = self.slices[part.index]
            other = next((other for other in others if self.values[id(other)] is base), None)
            if other is None:
                break
            others = [one for one in others if one is not other]
            fresh = self._version(other)
            scatter = torch.ops.aten.slice_scatter.default
            self.ops.append(Op(scatter, (base, made, *which), {}, (fresh,), op.module, op.line))
            self.slices[made.index] = (fresh, *which)
            part, made = base, fresh
        for other in others:
            old = self.values[id(other)]
            self.ops.append(Op("alias_update", (old, new, op.name), {}, (self._version(other),), op.module, op.line))

    def _version(self, tensor: Tensor) -> Value:
        """A new version of a tensor that is known already."""
        fresh = self.renew(tensor)
        self.storages[tensor.untyped_storage()._cdata].pop()
        return fresh


@lru_cache(maxsize=4096)
def _written(func: Any) -> tuple[int, ...]:
    """The arguments that an operation writes into, by their places: reading a schema takes as long as the rest of a note."""
    if (
        torch.Tag.inplace_view in func.tags
    ):  # `x.transpose_(0, 1)` turns x itself; nothing that shares its memory changes
        return ()
    kinds = [argument.alias_info for argument in func._schema.arguments]
    return tuple(k for k, kind in enumerate(kinds) if kind is not None and kind.is_write)


@lru_cache(maxsize=4096)
def is_view(func: Any) -> bool:
    """Whether an operation returns memory that was there before."""
    return any(result.alias_info is not None for result in func._schema.returns)


@lru_cache(maxsize=4096)
def _foreign(filename: str) -> bool:
    return "/torch/" not in filename and "/brickwork/blueprint/" not in filename


def _user_line() -> str:
    """File and line of the model's own code that made the current call (frames only: no source is read)."""
    frame = sys._getframe(1)
    while frame is not None and not _foreign(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    return f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}" if frame else ""


def current_value(tensor: Tensor) -> Value | None:
    """Inside a recording: the value a tensor has now."""
    return _Recorder.active.values.get(id(tensor)) if _Recorder.active is not None else None


def refuse_scripted(model: nn.Module) -> None:
    """A scripted module has no forward in Python that could be recorded, or written again; what is no module has none at all."""
    check_module(model)
    scripted = next((name for name, m in model.named_modules() if isinstance(m, torch.jit.ScriptModule)), None)
    if scripted is not None:
        which = f"its module {scripted!r}" if scripted else "this model"
        raise BadModel(f"{which} is scripted or traced (torch.jit); give the nn.Module that it was made from")


def record(model: nn.Module, example: Any, *, output: str | int | None = None) -> Graph:
    """Record one forward of `model` on tensors shaped like `example`."""
    refuse_scripted(model)
    _refuse_hooks(model)
    if torch.is_inference_mode_enabled():  # torch shows other operations then
        raise RequestError("a network cannot be recorded under torch.inference_mode(); torch.no_grad() will do")
    args, kwargs = as_call(example)
    twin = meta_copy(model)
    mode = _Recorder()
    names: dict[str, Value] = {}
    for name, tensor in [*twin.named_parameters(remove_duplicate=False), *twin.named_buffers(remove_duplicate=False)]:
        value = mode.value(tensor)
        value.name = value.name or name
        names[name] = value
    for name, buffer in model.named_buffers():  # index tables are small and decide where values go: keep them
        if not buffer.is_floating_point() and not buffer.is_complex() and not buffer.is_meta:
            names[name].constant = buffer
    flat, spec = tree_flatten((args, kwargs))
    flat = [_meta_input(x) for x in flat]
    inputs = [mode.value(x) for x in flat if isinstance(x, Tensor)]
    args, kwargs = tree_unflatten(flat, spec)
    graph = Graph(mode.ops, inputs, inputs[0], names)
    graph.open_heads = frozenset(path for path, m in twin.named_modules() if getattr(m, "heads_open", False))
    handles = _watch(twin, mode, graph)
    try:
        _Recorder.active = mode
        with torch.no_grad(), mode, _RealConstants():
            result = twin(*args, **kwargs)
    except RequestError:
        raise
    except Exception as error:
        raise _refusal(error, mode, [tuple(x.shape) for x in flat if isinstance(x, Tensor)]) from error
    finally:
        _Recorder.active = None
        for handle in handles:
            handle.remove()
    chosen = logits_of(result, output, guess=False)
    if id(chosen) not in mode.values:
        raise BadModel("the model's output does not depend on its input or its parameters")
    graph.output = mode.values[id(chosen)]
    return graph


def _meta_input(x: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
    return torch.empty_like(x, device="meta", requires_grad=False)


#: transformers' own, put where a forward asks for hidden states, for good: they keep what they see and change nothing
_ONLY_KEEP = "transformers.utils.output_capturing"


def _refuse_hooks(model: nn.Module) -> None:
    for path, module in model.named_modules():
        for kind in ("_forward_hooks", "_forward_pre_hooks"):
            hooks = getattr(module, kind, {}).values()
            hook = next((hook for hook in hooks if getattr(hook, "__module__", None) != _ONLY_KEEP), None)
            if hook is not None:
                shown = getattr(hook, "__qualname__", type(hook).__name__)
                if type(hook).__module__.startswith("torch.nn.utils."):  # weight norm and its kind, the older way
                    raise Unsupported(computed_weight(path, shown))
                raise Unsupported(
                    f"{path or 'the model'} has a forward hook ({shown}), which could change values unseen; "
                    "remove it first (handle.remove()) and register it again afterwards"
                )


def computed_weight(path: str, how: str, parametrized: str = "") -> str:
    """What is said of a layer whose weight is computed in a way that cannot be cut. parametrized: the tensor, the newer way."""
    way_on = (
        f"torch.nn.utils.parametrize.remove_parametrizations(model.get_submodule({path!r}), {parametrized!r})"
        if parametrized
        else "remove_weight_norm, remove_spectral_norm or prune.remove of torch.nn.utils"
    )
    return (
        f"the {parametrized or 'weight'} of {path or 'the model'} is computed from others ({how}), in a way that cannot be "
        f"cut; make it a plain parameter first, by {way_on}"
    )


def _watch(twin: nn.Module, mode: _Recorder, graph: Graph) -> list[Any]:
    """Keep the path of the running module, and what each module was first called with."""
    handles = []
    for path, module in twin.named_modules():

        def enter(_: nn.Module, args: Any, kwargs: Any, path: str = path) -> None:
            mode.stack.append(path)
            graph.calls[path] = graph.calls.get(path, 0) + 1
            first: Any = args[0] if args else None
            if not isinstance(first, Tensor):
                first = next((x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)), None)
            if first is not None and id(first) in mode.values:
                graph.module_inputs.setdefault(path, mode.values[id(first)])

        def leave(_: nn.Module, args: Any, result: Any, path: str = path) -> None:
            mode.stack.pop()
            if isinstance(result, Tensor) and id(result) in mode.values:
                graph.module_outputs[path] = mode.values[id(result)]

        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(module.register_forward_hook(leave))
    return handles


def _refusal(error: Exception, mode: _Recorder, shapes: list[tuple[int, ...]]) -> RequestError:
    where = mode.stack[-1] if mode.stack else ""
    line = next(
        (
            f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}"
            for f in reversed(traceback.extract_tb(error.__traceback__))
            if _foreign(f.filename)
        ),
        "",
    )
    text = str(error).strip().split("\n")[0]
    at = f"{where or 'the top module'}{f' ({line})' if line else ''}"
    data_dependent = ("meta tensors", "data-dependent", "Tensor.item()", "aten::_local_scalar_dense", "aten::nonzero")
    if any(mark in str(error) for mark in data_dependent):
        return Unsupported(
            f"the forward of {at} depends on the values of its tensors, not only on their shapes "
            f"({text}); such control flow cannot be cut exactly: move it out of forward"
        )
    return BadModel(
        f"the model's forward fails at {at} on an example of shape "
        f"{', '.join(map(str, shapes))}: {type(error).__name__}: {text}"
    )
