"""Self-attention whose heads may become narrower.

A forward that reshapes queries, keys and values to one width, or makes them in one layer, cannot have fewer dimensions of one
kind. So a module that is known by the names of its layers, and answers as it should on numbers, gives way to one of plain
layers, in which the dimensions of queries and keys are channels, and those of values. Every head keeps equally many.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.blueprint.attention import Attention
from brickwork.blueprint.attributes import HEADS
from brickwork.blueprint.prove import on_meta, proof_input, prove, run, scrambled
from brickwork.errors import BrickworkError, Unsupported
from brickwork.origin import attach, origin_of

#: how public models call the layers of their attention
FUSED = ("qkv", "to_qkv", "qkv_proj", "query_key_value", "in_proj")
APART = (("q", "k", "v"), ("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("to_q", "to_k", "to_v"))
LAST = ("proj", "o_proj", "out_proj", "out", "to_out", "dense", "fc_out", "proj_out")
DROPOUTS = ("attn_drop", "attn_dropout", "attention_dropout", "dropout")
#: the order of rows in a layer that makes all three: of queries, keys and values, then heads, or the other way round
ORDERS = ("kinds", "heads")


class SelfAttention(nn.Module):
    """Every token looks at every token, by linear layers for queries, keys, values and output.

    pair: called where (tokens, weights) is expected; the weights are None.
    """

    heads_open = True

    def __init__(
        self,
        layers: tuple[nn.Linear, nn.Linear, nn.Linear],
        out: nn.Linear,
        *,
        num_heads: int,
        scale: float,
        dropout: float = 0.0,
        after: nn.Module | None = None,
        pair: bool = False,
    ) -> None:
        super().__init__()
        self.q, self.k, self.v = layers
        self.out, self.after = out, after
        self.num_heads, self.scale, self.dropout, self.pair = num_heads, scale, dropout, pair

    def forward(self, x: Tensor, *more: Any, **options: Any) -> Any:
        """x: (images, tokens, width)."""
        if any(isinstance(value, Tensor) for value in (*more, *options.values())):
            raise Unsupported("this attention was narrowed for calls without masks; it takes the tokens alone.")
        q, k, v = (layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0.0, scale=self.scale
        )
        out = self.out(mixed.transpose(1, 2).flatten(2))
        out = out if self.after is None else self.after(out)
        return (out, None) if self.pair else out


@dataclass(frozen=True)
class _Plan:
    """What is known of an attention that is to be opened."""

    order: str  # one of ORDERS; "" where queries, keys and values have layers of their own
    scale: float
    pair: bool


def open_heads(model: nn.Module, example: Any, output: str | int | None = None) -> nn.Module:
    """The same function with open attentions in place of those that are known; the model itself where there is none.

    The model is one of `explicit_attention`. Tried on numbers: each module by itself, and then the whole network.

    >>> from brickwork import zoo
    >>> net = zoo.build("vit_small", image_size=16, dim=8, heads=2, depth=1).eval()
    >>> x = torch.rand(2, 3, 16, 16)
    >>> torch.allclose(open_heads(net, x)(x), net(x), atol=1e-6)
    True
    """
    if on_meta(model):
        return model
    plans = {path: plan for path, module in model.named_modules() if (plan := _plan(module)) is not None}
    if not plans:
        return model
    try:
        twin = scrambled(model, 0, torch.float64)
        opened = _with(copy.deepcopy(twin), plans)
        numbers, answer = proof_input(example, torch.float64, lambda x: run(twin, x, output))
        wanted = run(twin, numbers, output) if answer is None else answer
        prove(lambda: run(opened, numbers, output), lambda: wanted, "this network with open heads")
    except (BrickworkError, RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError):
        return model  # called in another way than tried; its heads go whole then
    new = _with(copy.deepcopy(model), plans)
    step = {"op": "open_heads", "modules": {path: vars(plan) for path, plan in plans.items()}}
    attach(new, origin_of(model).after(step))
    return new


def opened_again(model: nn.Module, modules: Mapping[str, Mapping[str, Any]]) -> nn.Module:
    """What `open_heads` did to a network, once more, by its record."""
    known = dict(model.named_modules())
    plans: dict[str, _Plan] = {}
    for path, facts in modules.items():
        if path not in known or not (isinstance(known[path], Attention) or _layers(known[path]) is not None):
            raise Unsupported(f"the step open_heads of surgery names {path!r}, which is no attention of this network.")
        plans[path] = _Plan(str(facts["order"]), float(facts["scale"]), bool(facts["pair"]))
    new = _with(copy.deepcopy(model), plans)
    attach(new, origin_of(model).after({"op": "open_heads", "modules": {p: vars(plan) for p, plan in plans.items()}}))
    return new


def _layers(module: nn.Module) -> tuple[list[nn.Linear], nn.Linear, int] | None:
    """The layers that make queries, keys and values, the last one, and the number of heads; None: nothing that is known."""
    children = {name: child for name, child in module.named_children() if next(child.parameters(), None) is not None}
    for names in (*((name,) for name in FUSED), *APART):
        last = [name for name in LAST if name in children]
        if (
            len(last) != 1
            or set(children) != {*names, *last}
            or next(module.parameters(recurse=False), None) is not None
        ):
            continue
        found = [children[name] for name in (*names, *last)]
        linear = [layer for layer in found if type(layer) is nn.Linear]
        heads = _number_of_heads(module)
        if len(linear) < len(found) or heads < 1:
            continue
        *makers, out = linear
        sizes = {layer.out_features * len(names) // 3 for layer in makers}
        if sizes == {out.in_features} and out.in_features % heads == 0 and len({x.in_features for x in makers}) == 1:
            return makers, out, heads
    return None


def _number_of_heads(module: Any) -> int:
    return next((n for name in HEADS if isinstance(n := getattr(module, name, None), int)), 0)


def _plan(module: nn.Module) -> _Plan | None:
    """How to open a module, found by trying what it answers; None where it is something else."""
    if isinstance(module, Attention):
        return None if module.heads_open else _Plan("", module.scale, False)
    known = _layers(module)
    if known is None:
        return None
    makers, _, heads = known
    width = makers[0].out_features * len(makers) // 3 // heads
    scales = [width**-0.5, *(s for name in ("scale", "scaling") if isinstance(s := getattr(module, name, None), float))]
    twin = scrambled(module, 0, torch.float64)
    x = torch.randn(2, 5, makers[0].in_features, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    try:
        with torch.no_grad():
            answer = twin(x)
    except Exception:  # a module of somebody's own fails in its own way where it wants more than tokens
        return None
    pair = isinstance(answer, tuple) and len(answer) == 2
    wanted = answer[0] if pair else answer
    if not isinstance(wanted, Tensor):
        return None
    for order in ORDERS if len(makers) == 1 else ("",):
        for scale in dict.fromkeys(scales):
            plan = _Plan(order, scale, pair)
            with torch.no_grad():
                given = _made(twin, plan)(x)
            given = given[0] if pair else given
            if given.shape == wanted.shape and torch.allclose(given, wanted, rtol=1e-9, atol=1e-9):
                return plan
    return None


def _made(module: nn.Module, plan: _Plan) -> nn.Module:
    """The open attention for a module; an `Attention` of ours is opened as it is."""
    if isinstance(module, Attention):
        opened = copy.deepcopy(module)
        opened.heads_open = True
        return opened
    known = _layers(module)
    assert known is not None
    makers, out, heads = known
    first, second, third = makers if len(makers) == 3 else _apart(makers[0], plan.order, heads)
    rate = next((r for name in DROPOUTS if (r := _rate(getattr(module, name, None))) is not None), 0.0)
    after = next(
        (d for name in ("proj_drop", "proj_dropout", "resid_drop") if (d := getattr(module, name, None))), None
    )
    made = SelfAttention(
        (first, second, third), out, num_heads=heads, scale=plan.scale, dropout=rate, after=after, pair=plan.pair
    )
    return made.train(module.training)


def _rate(dropout: Any) -> float | None:
    return dropout if isinstance(dropout, float) else dropout.p if isinstance(dropout, nn.Dropout) else None


def _apart(layer: nn.Linear, order: str, heads: int) -> list[nn.Linear]:
    """A layer that makes queries, keys and values, as three."""

    def third(tensor: Tensor, k: int) -> Tensor:
        if order == "kinds":
            return tensor.chunk(3)[k].clone()
        return tensor.unflatten(0, (heads, 3, -1))[:, k].flatten(0, 1).clone()

    result = []
    for k in range(3):
        single = nn.Linear(layer.in_features, layer.out_features // 3, layer.bias is not None, device="meta")
        single.weight = nn.Parameter(third(layer.weight.detach(), k), layer.weight.requires_grad)
        if layer.bias is not None:
            single.bias = nn.Parameter(third(layer.bias.detach(), k), layer.bias.requires_grad)
        result.append(single)
    return result


def _with(model: nn.Module, plans: Mapping[str, _Plan]) -> nn.Module:
    """In place: open attentions where the plans say; a module that stands in several places stays one."""
    done: dict[int, nn.Module] = {}
    for path, plan in plans.items():
        parent, _, name = path.rpartition(".")
        module = model.get_submodule(path)
        setattr(model.get_submodule(parent), name, done.setdefault(id(module), _made(module, plan)))
    return model


def open_attentions(model: nn.Module) -> Collection[str]:
    """The paths of attentions that are open."""
    return [path for path, module in model.named_modules() if getattr(module, "heads_open", False)]
