"""Weights that are computed at run time, as plain ones: of layers of which no input could go, since each weight depends on all.

Parametrizations and the older hooks of torch.nn.utils say themselves what they compute. A convolution whose forward computes
its weight, as those do that standardise it over the inputs (`StdConv2d` of timm), is known by what it gives to torch, and gives
way to a plain one where that answers as it does, on numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize, prune, remove_spectral_norm, remove_weight_norm
from torch.nn.utils.spectral_norm import SpectralNorm, SpectralNormLoadStateDictPreHook
from torch.nn.utils.weight_norm import WeightNorm
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from brickwork.blueprint.prove import alike, on_meta, proof_input, run, scrambled
from brickwork.blueprint.record import as_call
from brickwork.copying import copy_module
from brickwork.errors import BrickworkError, Unsupported
from brickwork.origin import attach, origin_of
from brickwork.prediction import eval_mode

OP = "plain_weights"
KINDS: tuple[type[Any], ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
SAME = "same at run time"  # what is padded depends on the size of the image, as TensorFlow pads
BOUND = 1e-9  # of the largest number, in float64
Facts = dict[str, Any]  # of a layer: which tensors were computed, or how the plain convolution is called


def plain_weights(model: nn.Module, example: Any, output: str | int | None = None) -> nn.Module:
    """The same function in evaluation mode, with plain layers where weights are computed; the model itself where none is.

    A layer that shares weights with another stays as it is, and so does one whose weight depends on its input.

    >>> net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3)), nn.Flatten(), nn.Linear(32, 2))
    >>> x = torch.rand(2, 3, 4, 4)
    >>> plain = plain_weights(net, x)
    >>> type(plain[0]), torch.equal(plain(x), net(x)), plain_layers(plain)
    (<class 'torch.nn.modules.conv.Conv2d'>, True, ['0'])
    """
    if on_meta(model):
        return model
    said = {path: tensors for path, module in model.named_modules() if (tensors := _said(module))}
    new = _without(copy_module(model), said)  # a forward may leave things in its network
    found = _by_forward(new, example, output)
    if not said and not found:
        return model
    made = {path: _plain(seen.facts, seen.weight, seen.bias) for path, seen in found.items()}
    new = _with(new, made)
    modules: dict[str, Any] = {**{path: {"computed": tensors} for path, tensors in said.items()}}
    modules |= {path: seen.facts for path, seen in found.items()}
    attach(new, origin_of(model).after({"op": OP, "modules": modules}))
    return new


def plain_layers(model: nn.Module) -> list[str]:
    """The layers whose weights were computed before `plain_weights`."""
    return [path for step in origin_of(model).steps if step.get("op") == OP for path in step["modules"]]


def plain_again(model: nn.Module, modules: Mapping[str, Facts]) -> nn.Module:
    """What `plain_weights` did to a network, once more, by its record; the weights are those of the file."""
    new = copy_module(model)
    known = dict(new.named_modules())
    made = {}
    for path, facts in modules.items():
        module = known.get(path)
        if module is None:
            raise Unsupported(f"the step {OP} of surgery names {path!r}, which the network has not.")
        if "computed" in facts:
            if facts["computed"] != _said(module):
                raise Unsupported(
                    f"the step {OP} of surgery makes {facts['computed']} of {path!r} plain, and they are."
                )
            _without(new, {path: facts["computed"]})
            continue
        like = dict(module.named_parameters()).get(str(facts.get("like")))
        if like is None or like.dim() - 3 not in range(len(KINDS)):
            raise Unsupported(f"the step {OP} of surgery names {path!r}, which is no convolution of this network.")
        bias = like.new_zeros(len(like)) if facts["bias"] else None
        made[path] = _plain(facts, like.detach().clone(), bias)
    new = _with(new, made)
    attach(new, origin_of(model).after({"op": OP, "modules": dict(modules)}))
    return new


class PaddedConv2d(nn.Conv2d):
    """A convolution that pads an image so that as many places come out as steps fit into it, more behind than before."""

    def forward(self, x: Tensor) -> Tensor:
        needed = [
            max(0, (-(-side // step) - 1) * step + (kernel - 1) * apart + 1 - side)
            for side, kernel, step, apart in zip(
                x.shape[-2:], self.kernel_size, self.stride, self.dilation, strict=True
            )
        ]
        (high, wide) = needed
        x = F.pad(x, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


def _said(module: nn.Module) -> list[str]:
    """The tensors of a module that torch's own tools compute."""
    names = list(module.parametrizations) if parametrize.is_parametrized(module) else []  # type: ignore[arg-type]
    return [*names, *(name for name, _ in _hooks(module))]


def _hooks(module: nn.Module) -> Iterator[tuple[str, Callable[[nn.Module, str], Any]]]:
    """Of the older tools: which tensor is computed, and what makes it plain."""
    for hook in list(module._forward_pre_hooks.values()):
        if isinstance(hook, WeightNorm):
            yield hook.name, remove_weight_norm
        elif isinstance(hook, SpectralNorm):
            yield hook.name, remove_spectral_norm
        elif isinstance(hook, prune.BasePruningMethod):
            yield hook._tensor_name, prune.remove


def _without(model: nn.Module, said: Mapping[str, list[str]]) -> nn.Module:
    """In place: what torch's tools compute made plain."""
    for path, tensors in said.items():
        module = model.get_submodule(path)
        with eval_mode(module), torch.no_grad():
            for name, remove in _hooks(module):
                if name in tensors:
                    remove(module, name)
            left = module._load_state_dict_pre_hooks
            for key in [
                key for key, hook in left.items() if isinstance(_inner(hook), SpectralNormLoadStateDictPreHook)
            ]:
                del left[key]  # torch looks for it under another type, and the weights could not be loaded
            if parametrize.is_parametrized(module):
                _unparametrized(module)
    return model


def _inner(hook: Any) -> Any:
    return getattr(hook, "hook", hook)


def _unparametrized(module: Any) -> None:
    """In place. torch's own way takes the tensors from the class, which the module given has in common with its copy."""
    made = {}
    for name, rules in module.parametrizations.items():
        given = [
            tensor for key, tensor in rules._parameters.items() if key.startswith("original") and tensor is not None
        ]
        value = getattr(module, name).detach().clone()
        made[name] = nn.Parameter(value, any(p.requires_grad for p in given)) if given else value
    module.__class__ = parametrize.type_before_parametrizations(module)
    del module.parametrizations
    for name, value in made.items():
        if isinstance(value, nn.Parameter):
            module.register_parameter(name, value)
        else:
            module.register_buffer(name, value)


@dataclass(frozen=True)
class _Seen:
    """A convolution that a module gave a weight of its own making."""

    facts: Facts
    weight: Tensor
    bias: Tensor | None


class _Watch(TorchFunctionMode):
    """Which module asked for which convolution, with which weight."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.calls: dict[str, list[tuple[Tensor, Facts, Tensor, Tensor | None]]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.conv1d, torch.conv2d, torch.conv3d):
            self._note(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _note(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> None:
        facts = {"stride": _many(stride, weight), "dilation": _many(dilation, weight), "groups": int(groups)}
        facts |= {"padding": padding if isinstance(padding, str) else _many(padding, weight), "bias": bias is not None}
        kept = None if bias is None else bias.detach()
        self.calls.setdefault(self.stack[-1] if self.stack else "", []).append((input, facts, weight, kept))


def _many(number: Any, weight: Tensor) -> list[int]:
    return [int(n) for n in number] if isinstance(number, tuple | list) else [int(number)] * (weight.dim() - 2)


@contextmanager
def _watched(model: nn.Module) -> Iterator[_Watch]:
    watch = _Watch()

    def enter(path: str, *_: Any) -> None:
        watch.stack.append(path)

    def leave(*_: Any) -> None:
        watch.stack.pop()

    handles: list[Any] = []
    for path, module in model.named_modules():
        handles += [module.register_forward_pre_hook(partial(enter, path)), module.register_forward_hook(leave)]
    try:
        with eval_mode(model), torch.no_grad(), watch:
            yield watch
    finally:
        for handle in handles:
            handle.remove()


def _by_forward(model: nn.Module, example: Any, output: str | int | None) -> dict[str, _Seen]:
    """Of modules whose forward computes the weight of a convolution, that convolution."""
    try:
        with _watched(model) as watch:
            args, kwargs = as_call(example)
            model(*args, **kwargs)
    except Exception:  # what the network's own forward raises is said where it is traced
        return {}
    held = Counter(id(x) for m in model.modules() for x in (*m._parameters.values(), *m._modules.values()))
    own = {id(p) for p in model.parameters()}
    found = {}
    for path, calls in watch.calls.items():
        _, facts, weight, bias = calls[0]
        module = model.get_submodule(path)
        parts = [*module.parameters(), *(m for m in module.modules() if m is not module)]
        like = next((name for name, p in module.named_parameters() if p.shape == weight.shape), None)
        if not path or id(weight) in own or like is None or any(held[id(part)] > 1 for part in parts):
            continue
        if held[id(module)] == 1 and all(torch.equal(weight, other) for _, _, other, _ in calls):
            found[path] = _Seen({"like": like, **facts}, weight.detach().clone(), bias)
    return _proved(model, found, example, output) if found else {}


def _proved(model: nn.Module, found: dict[str, _Seen], example: Any, output: str | int | None) -> dict[str, _Seen]:
    """Those that a plain convolution answers as, wherever the network calls them, on numbers and of random weights."""
    try:
        twin = scrambled(model, 0, torch.float64)
        ask = partial(run, twin, output=output)
        numbers, answer = proof_input(example, torch.float64, ask, asked=[twin])
        wanted = run(twin, numbers, output) if answer is None else answer
        given: dict[str, list[Any]] = {path: [] for path in found}
        handles = [twin.get_submodule(path).register_forward_hook(partial(_keep, kept)) for path, kept in given.items()]
        with _watched(twin) as watch:
            run(twin, numbers, output)
        for handle in handles:
            handle.remove()
        made, kept = {}, {}
        for path, seen in found.items():
            for padding in (seen.facts["padding"], SAME):
                facts = {**seen.facts, "padding": padding}
                plain = _plain(facts, watch.calls[path][0][2], watch.calls[path][0][3])
                if all(_same(plain, twin.get_submodule(path), args, out) for args, out in given[path]):
                    made[path], kept[path] = plain, _Seen(facts, seen.weight, seen.bias)
                    break
        plain_twin = _with(twin, made)
        if not alike(lambda: run(plain_twin, numbers, output), lambda: wanted, "this network with plain weights"):
            return {}
    except (BrickworkError, RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError):
        return {}  # it reads more of a module than what it answers, say; its weights stay as they are then
    return kept


def _keep(kept: list[Any], _module: nn.Module, args: Any, answer: Any) -> None:
    """What a module was called with and answered, before activations write over it."""
    kept.append(tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, (args, answer)))


def _same(plain: nn.Module, module: nn.Module, args: tuple[Any, ...], answer: Any) -> bool:
    """Whether both answer alike, also to an image of another size, which says whether they pad alike."""
    if len(args) != 1 or not isinstance(args[0], Tensor) or not isinstance(answer, Tensor):
        return False
    x = args[0]
    with torch.no_grad():
        pairs = [(plain(x), answer)]
        for axis in range(2, x.dim()):
            if x.shape[axis] > 1:
                other = x.narrow(axis, 1, x.shape[axis] - 1) * 0.5 + 1
                pairs.append((plain(other), module(other)))
    return all(
        a.shape == b.shape and bool((a - b).abs().max() <= BOUND * b.abs().max().clamp(min=1e-6)) for a, b in pairs
    )


def _plain(facts: Facts, weight: Tensor, bias: Tensor | None) -> nn.Module:
    """A convolution with this weight."""
    padded = facts["padding"] == SAME
    kind: Any = PaddedConv2d if padded else KINDS[weight.dim() - 3]
    how = {"stride": tuple(facts["stride"]), "dilation": tuple(facts["dilation"]), "groups": facts["groups"]}
    how["padding"] = 0 if padded else facts["padding"] if isinstance(facts["padding"], str) else tuple(facts["padding"])
    channels = weight.shape[1] * facts["groups"], weight.shape[0]
    layer: Any = kind(*channels, tuple(weight.shape[2:]), bias=bias is not None, device="meta", **how)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer


def _with(model: nn.Module, made: Mapping[str, nn.Module]) -> nn.Module:
    """In place: these layers in the place of the model's."""
    for path, layer in made.items():
        parent, _, name = path.rpartition(".")
        before = model.get_submodule(path)
        free = any(p.requires_grad for p in before.parameters())  # what is frozen stays so
        setattr(model.get_submodule(parent), name, layer.requires_grad_(free).train(before.training))
    return model
