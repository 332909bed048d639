"""Attentions of a network opened, so that their heads may become narrower.

A forward that reshapes queries, keys and values to one width, or makes them in one layer, cannot have fewer dimensions of one
kind. So a module that is known by the names of its layers, and answers as it should on numbers, gives way to one of plain
layers, in which the dimensions of queries and keys are channels, and those of values. Every head keeps equally many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from brickwork.blueprint.attention import Attention
from brickwork.blueprint.attention_plans import answer_of, plan_of, same_tokens
from brickwork.blueprint.prove import alike, on_meta, proof_input, run, scrambled
from brickwork.blueprint.record import as_call
from brickwork.blueprint.self_attention import Plan, layers_of, made_open
from brickwork.copying import copy_module
from brickwork.errors import BrickworkError, Unsupported
from brickwork.origin import attach, origin_of

#: of the largest number, what two ways to compute may differ by; some compute weights in float32 whatever they are given
BOUNDS = {torch.float64: 1e-9}
BOUND = 1e-6


def open_heads(model: nn.Module, example: Any, output: str | int | None = None) -> nn.Module:
    """The same function with open attentions in place of those that are known; the model itself where there is none.

    The model is one of `explicit_attention`. Tried on numbers: each module by itself and where the network calls it, and
    then the whole network. One that shares weights with another stays as it is: the two could not be turned apart.

    >>> from brickwork import zoo
    >>> net = zoo.build("vit_small", image_size=16, dim=8, heads=2, depth=1).eval()
    >>> x = torch.rand(2, 3, 16, 16)
    >>> torch.allclose(open_heads(net, x)(x), net(x), atol=1e-6)
    True
    """
    if on_meta(model):
        return model
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    plans = _plans(model, BOUNDS.get(dtype, BOUND))
    plans = _proved(model, plans, example, output, BOUNDS.get(dtype, BOUND)) if plans else plans
    return _opened(model, plans) if plans else model


def opened_again(model: nn.Module, modules: Mapping[str, Mapping[str, Any]]) -> nn.Module:
    """What `open_heads` did to a network, once more, by its record."""
    known = dict(model.named_modules(remove_duplicate=False))
    plans: dict[str, Plan] = {}
    for path, facts in modules.items():
        if path not in known or not (isinstance(known[path], Attention) or layers_of(known[path]) is not None):
            raise Unsupported(f"the step open_heads of surgery names {path!r}, which is no attention of this network.")
        told = {f.name: facts[f.name] for f in fields(Plan) if f.name in facts}
        plans[path] = Plan(str(told.pop("order")), float(told.pop("scale")), **told)
        if not 0 <= float(plans[path].dropout) <= 1:
            raise Unsupported(f"the step open_heads of surgery drops a share of {plans[path].dropout!r}; it is 0 to 1.")
    return _opened(model, plans)


def _opened(model: nn.Module, plans: Mapping[str, Plan]) -> nn.Module:
    new = _with(copy_module(model), plans)
    step = {"op": "open_heads", "modules": {path: dict(vars(plan)) for path, plan in plans.items()}}
    attach(new, origin_of(model).after(step))
    return new


def _plans(model: nn.Module, bound: float) -> dict[str, Plan]:
    """Of every place of an attention that is known, by itself; not of those that share layers or weights with another."""
    held = Counter(id(x) for m in model.modules() for x in (*m._parameters.values(), *m._modules.values()))
    plans: dict[int, Plan | None] = {}
    places = list(model.named_modules(remove_duplicate=False))
    for path, module in places:
        layers = [child for child in module.children() if next(child.parameters(), None) is not None]
        alone = all(held[id(x)] == 1 for layer in layers for x in (layer, *layer.parameters()))
        if id(module) not in plans:
            plans[id(module)] = plan_of(module, bound) if path and alone else None
    return {path: plan for path, module in places if (plan := plans[id(module)]) is not None}


def _proved(
    model: nn.Module, plans: Mapping[str, Plan], example: Any, output: str | int | None, bound: float
) -> dict[str, Plan]:
    """Those of the plans that hold wherever the network calls the module, if the network with these is the same."""
    holds: dict[str, bool] = {}

    def compare(path: str, made: nn.Module, _module: nn.Module, given: Any, named: Any, answer: Any) -> None:
        holds[path] = holds.get(path, True) and same_tokens(answer_of(made, *given, **named), answer, bound)

    try:
        twin = scrambled(model, 0, torch.float64)
        hooks = []
        for path, plan in plans.items():
            module = twin.get_submodule(path)
            hook = partial(compare, path, made_open(module, plan))
            hooks.append(module.register_forward_hook(hook, with_kwargs=True))
        # with all pixels: an attention may see the tokens of a large image in another way than those of a small one
        ask = partial(run, twin, output=output)
        numbers, answer = proof_input(example, torch.float64, ask, asked=[twin], pixels=False)
        wanted = run(twin, numbers, output) if answer is None else answer
        for handle in hooks:
            handle.remove()
        kept = {path: plan for path, plan in plans.items() if holds.get(path)}
        opened, dtype = _with(copy_module(twin), kept), torch.float64 if bound < BOUND else torch.float32
        if _forms(opened, numbers) != _forms(twin, numbers):  # weights that go out of the network, say
            kept = {path: plan for path, plan in kept.items() if not plan.pair}
            opened = _with(twin, kept)
        same = "this network with open heads"
        if not alike(lambda: run(opened, numbers, output).to(dtype), lambda: wanted.to(dtype), same):
            return {}  # neither finite nor proved
    except (BrickworkError, RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError):
        return {}  # it reads more of a module than what it answers, say; its heads go whole then
    return kept


def _forms(model: nn.Module, example: Any) -> list[Any]:
    """Of everything that a network answers, what it is, and of tensors the shape."""
    args, kwargs = as_call(example)
    with torch.no_grad():
        leaves = tree_leaves(model(*args, **kwargs))
    return [tuple(x.shape) if isinstance(x, Tensor) else type(x) for x in leaves]


def _with(model: nn.Module, plans: Mapping[str, Plan]) -> nn.Module:
    """In place: open attentions where the plans say; a module that stands in several places stays one."""
    done: dict[int, nn.Module] = {}
    for path, plan in plans.items():
        parent, _, name = path.rpartition(".")
        module = model.get_submodule(path)
        if getattr(module, "heads_open", False):
            continue  # what holds it stands in several places
        if id(module) not in done:
            done[id(module)] = made_open(module, plan)
        setattr(model.get_submodule(parent), name, done[id(module)])
    return model


def open_attentions(model: nn.Module) -> Collection[str]:
    """The paths of attentions that are open."""
    return [path for path, module in model.named_modules() if getattr(module, "heads_open", False)]


def layers_before(model: nn.Module, opened: nn.Module) -> dict[str, str]:
    """Of the layers of open attentions, those of the model that they were made of."""
    result: dict[str, str] = {}
    for path in open_attentions(opened):
        known = layers_of(model.get_submodule(path))
        if known is not None:
            before = [*known.makers * (3 // len(known.makers)), known.last]
            layers = zip(("q", "k", "v", "out"), before, strict=True)
            result |= {f"{path}.{new}": f"{path}.{old}" for new, old in layers}
    return result
