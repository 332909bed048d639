"""How an attention is to be opened, found by trying what it answers: on tokens, with masks, and with its dropouts."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from brickwork.blueprint.attention import Attention
from brickwork.blueprint.prove import scrambled
from brickwork.blueprint.self_attention import ORDERS, Plan, kind_of, layers_of, made_open


def plan_of(module: nn.Module, bound: float) -> Plan | None:
    """How to open a module, found by trying what it answers; None where it is something else."""
    if getattr(module, "heads_open", False):
        return None
    if isinstance(module, Attention):
        return Plan("", module.scale)
    known = layers_of(module)
    if known is None:
        return None
    twin: Any = scrambled(module, 0, torch.float64)
    first, last = getattr(twin, known.makers[0]), getattr(twin, known.last)
    if last.bias is None:  # with one, what drops the weights can be told from what drops the output
        last.bias = nn.Parameter(torch.ones(last.out_features, dtype=torch.float64), requires_grad=False)
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, first.in_features, dtype=torch.float64, generator=rng)
    answer, width = answer_of(twin, x), last.in_features // known.heads
    scales = [width**-0.5, *(s for name in ("scale", "scaling") if isinstance(s := getattr(module, name, None), float))]
    orders = ORDERS if len(known.makers) == 1 else ("",)
    plans = [Plan(order, scale, isinstance(answer, tuple)) for order in orders for scale in dict.fromkeys(scales)]
    plan = next((plan for plan in plans if same_tokens(answer_of(made_open(twin, plan), x), answer, bound)), None)
    if plan is None:
        return None
    plan = _with_masks(twin, plan, x, bound)
    with torch.random.fork_rng(devices=[]):
        twin.train()
        dropouts = _dropouts(twin, last.bias, x, answer, bound)
        plan = plan if dropouts is None else replace(plan, dropout=dropouts[0], after=dropouts[1])
        same = dropouts is not None and same_tokens(_seeded(made_open(twin, plan), x), _seeded(twin, x), bound)
    return plan if same else None


def answer_of(module: nn.Module, *given: Any, **named: Any) -> Any:
    """None where it fails: a module of somebody's own does so in its own way where it wants other things."""
    try:
        with torch.no_grad():
            return module(*given, **named)
    except Exception:
        return None


def _seeded(module: nn.Module, x: Tensor) -> Any:
    torch.default_generator.manual_seed(0)
    return answer_of(module, x)


def _tokens(answer: Any) -> Any:
    return answer[0] if isinstance(answer, tuple) and len(answer) == 2 else answer


def same_tokens(one: Any, other: Any, bound: float) -> bool:
    """Whether two answers have the same tokens."""
    one, other = _tokens(one), _tokens(other)
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.shape != other.shape or not other.numel():
        return False
    return bool((one - other).abs().max() <= bound * other.abs().max().clamp(min=1e-6))


def _with_masks(twin: nn.Module, plan: Plan, x: Tensor, bound: float) -> Plan:
    """The plan with what the arguments are called, and which masks a module takes as the open one would."""
    parameters = inspect.signature(twin.forward).parameters.values()
    names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)][:2]
    rng = torch.Generator().manual_seed(1)
    numbers = torch.randn(len(x), 1, x.shape[1], x.shape[1], dtype=x.dtype, generator=rng)
    masks = [(numbers > 0) | torch.eye(x.shape[1], dtype=torch.bool), numbers]  # every token sees itself at least
    made = made_open(twin, replace(plan, names=names, masks=["bool", "float"]))
    taken = [
        kind_of(mask)
        for mask in masks
        if names[1:] and same_tokens(answer_of(twin, x, mask), answer_of(made, x, mask), bound)
    ]
    return replace(plan, names=(names if taken else names[:1]) or plan.names, masks=taken)


def _dropouts(twin: nn.Module, bias: Tensor, x: Tensor, answer: Any, bound: float) -> tuple[float, str] | None:
    """How much of the weights is dropped, and what drops the output; None where a dropout does something else.

    One at a time drops all: of the weights, so that the last layer's bias is left, or of the output, so that nothing is.
    """
    rates = [
        (path, module, name, float(rate))
        for path, module in twin.named_modules()
        for name, rate in vars(module).items()
        if ("drop" in name or (name == "p" and isinstance(module, _DropoutNd)))
        if isinstance(rate, int | float) and not isinstance(rate, bool) and 0 < rate <= 1
    ]
    weights, after = 0.0, ""
    for _, module, name, _ in rates:
        setattr(module, name, 0.0)
    for path, module, name, rate in rates:
        setattr(module, name, 1.0)
        left = _tokens(answer_of(twin, x))
        setattr(module, name, 0.0)
        if not after and isinstance(left, Tensor) and not left.any():
            after = path or name
        elif not weights and same_tokens(left, bias.expand_as(_tokens(answer)), bound):
            weights = rate
        elif not same_tokens(left, answer, bound):
            return None
    for _, module, name, rate in rates:
        setattr(module, name, rate)
    return weights, after
