"""`nn.MultiheadAttention` as plain layers: its own forward asks for one width of everything, so that nothing of it can go."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.copying import copy_module
from brickwork.origin import attach, origin_of


class Attention(nn.Module):
    """The same function with a linear layer for queries, keys, values and output; heads may go, and what it reads.

    Called as `nn.MultiheadAttention` is, by torch's own transformer layers, too.
    """

    in_proj_bias = None  # torch's transformer layers ask for it before they take a path of their own
    _qkv_same_embed_dim = False
    heads_open = False  # whether the dimensions within its heads are channels

    def __init__(self, source: nn.MultiheadAttention) -> None:
        super().__init__()
        width = source.embed_dim
        if source.in_proj_weight is not None:
            weights = source.in_proj_weight.detach().split(width)
        else:
            weights = tuple(w.detach() for w in (source.q_proj_weight, source.k_proj_weight, source.v_proj_weight))
        given = source.in_proj_bias
        biases = (None, None, None) if given is None else given.detach().split(width)
        self.q, self.k, self.v = (_linear(w, b) for w, b in zip(weights, biases, strict=True))
        last = source.out_proj
        self.out = _linear(last.weight.detach(), None if last.bias is None else last.bias.detach())
        self.num_heads, self.dropout, self.batch_first = source.num_heads, source.dropout, source.batch_first
        self.scale = source.head_dim**-0.5  # the whole's, however narrow heads become
        first = source.q_proj_weight if source.in_proj_weight is None else source.in_proj_weight
        for layers, like in (((self.q, self.k, self.v), first), ((self.out,), last.weight)):
            for layer in layers:
                layer.requires_grad_(like.requires_grad)  # what is frozen stays so
        self.train(source.training)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        alone = query.dim() == 2
        turned = not self.batch_first and not alone
        given = [x.unsqueeze(0) if alone else x.transpose(0, 1) if turned else x for x in (query, key, value)]
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for layer, x in zip((self.q, self.k, self.v), given, strict=True)
        )
        mask = _joint(attn_mask, key_padding_mask, q, k)
        dropped = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.mT * self.scale
            weights = (scores if mask is None else scores + mask).softmax(-1)
            weights = F.dropout(weights, dropped)
            mixed = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights[0] if alone else weights
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, mask, dropped, scale=self.scale)
        out = self.out(mixed.transpose(1, 2).flatten(2))
        return (out[0] if alone else out.transpose(0, 1) if turned else out), weights


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.clone())
    return layer


def _joint(mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Both masks as numbers to add: (batch, heads or 1, queries, keys)."""
    total = None
    if mask is not None:
        added = _additive(mask, q)
        heads = added.shape[0] // q.shape[0] if added.dim() == 3 else 0
        # as many as there were heads: those that are left have the masks of the first, where all have the same
        total = added.unflatten(0, (q.shape[0], heads))[:, : q.shape[1]] if heads else added[None, None]
    if padding is not None:
        added = _additive(padding, q).reshape(-1, 1, 1, k.shape[2])
        total = added if total is None else total + added
    return total


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    return (
        torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf")) if mask.dtype == torch.bool else mask
    )


def explicit_attention(model: nn.Module) -> nn.Module:
    """The model with plain layers in place of every `nn.MultiheadAttention`; the model itself where there is none.

    >>> net = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    >>> x = torch.rand(1, 3, 8)
    >>> torch.allclose(explicit_attention(net)(x), net(x), atol=1e-6)
    True
    """
    if not any(_can_be(module) for module in model.modules()):
        return model
    new = copy_module(model)
    done: dict[int, Attention] = {}
    for parent in list(new.modules()):
        if isinstance(parent, nn.TransformerEncoder):
            parent.use_nested_tensor = False  # a path of torch's that reads weights of nn.MultiheadAttention
        for name, module in list(parent._modules.items()):
            if module is not None and _can_be(module):
                assert isinstance(module, nn.MultiheadAttention)
                setattr(parent, name, done.setdefault(id(module), Attention(module)))
    attach(new, origin_of(model).after({"op": "explicit_attention"}))
    return new


def _can_be(module: nn.Module) -> bool:
    """Not one that adds keys of its own."""
    return type(module) is nn.MultiheadAttention and module.bias_k is None and not module.add_zero_attn
