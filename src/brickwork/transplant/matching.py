"""Adapters without training, from images alone: least squares onto the features that a task module is used to.

The same images go through the category module and through the one that the task module came with; rows of the least squares
are the places of both, paired by image, and prefix tokens by themselves. No label, no teacher and no gradient is needed.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.copying import copy_module
from brickwork.errors import BadData
from brickwork.moments.gram import Moments
from brickwork.moments.ridge import Ridge, best_ridge, solve_ridge
from brickwork.transplant.adapter import Adapter
from brickwork.transplant.closed_form import solve_features
from brickwork.transplant.token_adapter import AnyAdapter, TokenAdapter

HELD = 5  # one image in so many is held out, with all its tokens, to choose the ridge by
BATCH = 64


def match_features(adapter: AnyAdapter, given: Tensor, wanted: Tensor) -> AnyAdapter:
    """A copy that makes of a category's features those that the task is used to, for the same images.

    given, wanted: (N, …), paired by image. The first layer and the prefix tokens are solved; further layers begin at
    nothing. The ridge of tokens is chosen on held-out images.

    >>> from brickwork.transplant.layout import Layout
    >>> maps, tokens = Layout.of((3, 4, 4)), Layout.of((5, 6), (2, 2))
    >>> x = torch.randn(40, 3, 4, 4, dtype=torch.float64)
    >>> y = TokenAdapter(maps, tokens, start="random", seed=1).double()(x).detach()
    >>> found = match_features(TokenAdapter(maps, tokens).double(), x, y)
    >>> float((found(x) - y).detach().abs().max() / y.abs().max()) < 1e-2
    True
    """
    if len(given) != len(wanted) or len(given) == 0:
        raise BadData(
            f"features of {len(given)} and {len(wanted)} images are not paired; give both for the same images."
        )
    if isinstance(adapter, Adapter):
        return solve_features(adapter, given, wanted)
    solved = copy_module(adapter)
    first: Any = solved.convs[0]
    for conv in list(solved.convs)[1:]:
        nn.init.zeros_(conv.weight)  # type: ignore[arg-type]
        nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
    places, prefix = _moments(solved, given, wanted)
    kernel: int = first.kernel_size[0]
    prior = first.weight.detach().flatten(1).T.double() if solved.channels[0] == solved.channels[1] else None
    fit = _solved(*places, prior)
    with torch.no_grad():
        first.weight.copy_(fit.weight.T.reshape(-1, first.in_channels, kernel, kernel))
        first.bias.copy_(fit.bias)
        if solved.prefix_bias is not None and solved.prefix_weight is None:  # nothing is read: the mean
            seen, held = prefix
            solved.prefix_bias.copy_((seen.sum_y + held.sum_y) / (seen.rows + held.rows))
        elif solved.prefix_bias is not None and solved.prefix_weight is not None:
            fit = _solved(*prefix, None)
            solved.prefix_weight.copy_(fit.weight.T)
            solved.prefix_bias.copy_(fit.bias)  # type: ignore[arg-type]
    return solved


@torch.no_grad()
def _moments(
    adapter: TokenAdapter, given: Tensor, wanted: Tensor
) -> tuple[tuple[Moments, Moments], tuple[Moments, Moments]]:
    """Of the places and of the prefix tokens, each of the images that are seen and of those held out."""
    first: Any = adapter.convs[0]
    kernel, where = first.kernel_size[0], first.weight.device
    bias, weight = adapter.prefix_bias, adapter.prefix_weight
    read, made = 0 if weight is None else weight.shape[1], 0 if bias is None else len(bias)
    places = [Moments.empty(first.weight[0].numel(), first.out_channels, where) for _ in range(2)]
    prefix = [Moments.empty(read, made, where) for _ in range(2)]
    held = torch.arange(len(given)) % HELD == HELD - 1
    for part in torch.arange(len(given)).split(BATCH):
        for kind in (0, 1):
            some = part[held[part] == bool(kind)].to(given.device)
            if not len(some):
                continue
            x, own = adapter.prepared(given[some])
            y, tokens = adapter.wanted(wanted[some])
            columns = F.unfold(x, kernel, padding=kernel // 2).transpose(1, 2).flatten(0, 1)
            places[kind].add(columns, y.flatten(2).transpose(1, 2).flatten(0, 1))
            if made:
                prefix[kind].add(tokens.new_empty(len(tokens), 0) if own is None else own, tokens)
    return (places[0], places[1]), (prefix[0], prefix[1])


def _solved(seen: Moments, held: Moments, prior: Tensor | None) -> Ridge:
    if not held.rows:  # fewer images than any could be held out of
        return solve_ridge(seen, prior=prior)
    return solve_ridge(seen.plus(held), ridge=best_ridge(seen, held, prior=prior), prior=prior)
