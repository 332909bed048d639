"""Self-attention of plain layers whose heads may be narrow, and how it is made of a module that is known.

Known are modules by the names of their layers: one that makes queries, keys and values, or three, and a last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.blueprint.attention import Attention
from brickwork.blueprint.attributes import HEADS
from brickwork.copying import copy_module
from brickwork.errors import Unsupported

#: how public models call the layers of their attention
FUSED = ("qkv", "to_qkv", "qkv_proj", "query_key_value", "in_proj")
APART = (("q", "k", "v"), ("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("to_q", "to_k", "to_v"))
LAST = ("proj", "o_proj", "out_proj", "out", "to_out", "dense", "fc_out", "proj_out")
#: the order of rows in a layer that makes all three: of queries, keys and values, then heads, or the other way round
ORDERS = ("kinds", "heads")


class SelfAttention(nn.Module):
    """Every token looks at every token, by linear layers for queries, keys, values and output.

    pair: called where (tokens, weights) is expected; the weights are None.
    names: what the tokens are called where they are given by name, and the mask.
    masks: which kinds of mask it takes, of "bool" and "float".
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
        names: Sequence[str] = ("x",),
        masks: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.q, self.k, self.v = layers
        self.out, self.after = out, after
        self.num_heads, self.scale, self.dropout, self.pair = num_heads, scale, dropout, pair
        self.names, self.masks = list(names), list(masks)

    def forward(self, *given: Any, **named: Any) -> Any:
        """x: (images, tokens, width), and where it takes one, a mask, (images, 1 or heads, tokens, tokens)."""
        call = {**named, **dict(zip(self.names, given, strict=False))}
        x, mask = [*(call.pop(name, None) for name in self.names), None][:2]
        others = (*given[len(self.names) :], *call.values())
        if any(isinstance(value, Tensor) for value in others) or (mask is not None and not self._takes(mask)):
            raise Unsupported(
                "this attention was narrowed for calls with its tokens, and such masks as were tried; it takes nothing else."
            )
        q, k, v = (layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        dropped = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, mask, dropped, scale=self.scale)
        out = self.out(mixed.transpose(1, 2).flatten(2))
        out = out if self.after is None else self.after(out)
        return (out, None) if self.pair else out

    def _takes(self, mask: Any) -> bool:
        return isinstance(mask, Tensor) and mask.dim() == 4 and kind_of(mask) in self.masks


def kind_of(mask: Tensor) -> str:
    return "bool" if mask.dtype == torch.bool else "float"


@dataclass(frozen=True)
class KnownLayers:
    """An attention's layers by their names in it, and how many heads it has."""

    makers: tuple[str, ...]  # of queries, keys and values, or the one that makes all three
    last: str
    heads: int


@dataclass(frozen=True)
class Plan:
    """What is known of an attention that is to be opened; older records of surgery lack the last four."""

    order: str  # one of ORDERS; "" where queries, keys and values have layers of their own
    scale: float
    pair: bool = False
    names: list[str] = field(default_factory=lambda: ["x"])
    masks: list[str] = field(default_factory=list)
    dropout: float = 0.0  # of the weights, in training mode
    after: str = ""  # what drops the output then: a module in the attention, or a number


def layers_of(module: nn.Module) -> KnownLayers | None:
    """The layers of an attention; None: nothing that is known."""
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
        # not one whose weight is computed, as a weight norm does
        linear = [layer for layer in found if type(layer) is nn.Linear and "weight" in layer._parameters]
        heads = _number_of_heads(module)
        if len(linear) < len(found) or heads < 1:
            continue
        *makers, out = linear
        sizes = {layer.out_features * len(names) // 3 for layer in makers}
        if sizes == {out.in_features} and out.in_features % heads == 0 and len({x.in_features for x in makers}) == 1:
            return KnownLayers(names, last[0], heads)
    return None


def _number_of_heads(module: Any) -> int:
    numbers = (getattr(module, name, None) for name in HEADS)
    return next((n for n in numbers if isinstance(n, int) and not isinstance(n, bool)), 0)


def made_open(module: Any, plan: Plan) -> nn.Module:
    """The open attention for a module; an `Attention` of ours is opened as it is."""
    if isinstance(module, Attention):
        opened = copy_module(module)
        opened.heads_open = True
        return opened
    known = layers_of(module)
    assert known is not None
    makers = [getattr(module, name) for name in known.makers]
    first, second, third = makers if len(makers) == 3 else _apart(makers[0], plan.order, known.heads)
    rate = vars(module).get(plan.after)
    after = None
    if plan.after:
        after = nn.Dropout(rate) if isinstance(rate, int | float) else module.get_submodule(plan.after)
    made = SelfAttention(
        (first, second, third),
        getattr(module, known.last),
        num_heads=known.heads,
        scale=plan.scale,
        dropout=plan.dropout,
        after=after,
        pair=plan.pair,
        names=plan.names,
        masks=plan.masks,
    )
    return made.train(module.training)


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
