"""Merging that looks at images: response matching, RegMean, Fisher weights; and re-basin, which looks at weights alone.

Batch norms are folded into the layers before them first (exactly), so that a network is its weights. Labels are not used.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from brickwork.algebra.merging import merge
from brickwork.blueprint.plan import trace
from brickwork.data.pixels import Images, as_input
from brickwork.errors import RequestError, UnknownName
from brickwork.moments import (
    Moments,
    Source,
    collect_moments,
    fold_batch_norm,
    match_responses,
    reestimate_batch_norm,
    solve_ridge,
)
from brickwork.origin import attach, origin_of
from brickwork.outputs import logits_of
from brickwork.prediction import device_of


def merge_on(
    models: Sequence[nn.Module],
    images: Sequence[Images],
    method: str = "match",
    *,
    weights: Sequence[float] | None = None,
    progress: bool = True,
    **options: Any,
) -> nn.Module:
    """One network of several, each with unlabelled images of its own task; what is given is left unchanged.

    method: "match" (layer by layer from the input up, what the merged network really makes of the images is brought to
    each network's own responses; design.md, "The second idea"), "regmean" (every layer by itself, on each network's own
    features; arXiv 2212.09849) or "fisher" (every weight by how much it matters; arXiv 2111.09832).
    weights: how much each network's task counts; the same by default.

    >>> nets = [nn.Sequential(nn.Linear(4, 3)) for _ in range(2)]
    >>> same = merge_on([nets[0], nets[0]], [torch.randn(40, 4), torch.randn(40, 4)], progress=False)
    >>> bool((same[0].weight - nets[0][0].weight).abs().max() < 1e-4)
    True
    """
    if method not in METHODS:
        raise UnknownName("merge method with data", method, METHODS)
    if len(models) < 1 or len(models) != len(images):
        raise RequestError(
            f"{len(models)} networks and {len(images)} sets of images; each network needs its own."
        )
    shares = [1.0] * len(models) if weights is None else [float(w) for w in weights]
    if len(shares) != len(models) or not all(w > 0 for w in shares):
        raise RequestError(f"weights are {weights}; there must be {len(models)}, all above 0.")
    inputs = [_inputs(model, some) for model, some in zip(models, images, strict=True)]
    folded = [fold_batch_norm(copy.deepcopy(m).eval(), x[:2]) for m, x in zip(models, inputs, strict=True)]
    merged = METHODS[method](folded, inputs, shares, progress=progress, **options)
    facts = {"merge": {"method": method, "weights": shares, "images": [len(x) for x in inputs]}}
    attach(merged, replace(origin_of(merged), provenance=facts))
    return merged.eval()


def _matched(
    models: list[nn.Module], inputs: list[Tensor], shares: list[float], *, progress: bool, ridge: float = 1e-3
) -> nn.Module:
    start = merge(models, weights=[w / sum(shares) for w in shares])
    sources = [Source(m, x, weight=w) for m, x, w in zip(models, inputs, shares, strict=True)]
    return match_responses(start, sources, ridge=ridge, progress=progress).model


def _regmean(
    models: list[nn.Module], inputs: list[Tensor], shares: list[float], *, progress: bool, shrink: float = 0.9,
    ridge: float = 1e-6,
) -> nn.Module:  # fmt: skip
    """W = (Σ G_i)⁻¹ Σ G_i W_i, the off-diagonal of each Gram matrix times `shrink`."""
    if not 0 <= shrink <= 1:
        raise RequestError(f"shrink is {shrink}; it must be 0 to 1.")
    merged = merge(models, weights=[w / sum(shares) for w in shares])
    grams = [collect_moments(m, x.split(250), progress=progress) for m, x in zip(models, inputs, strict=True)]
    with torch.no_grad():
        for path in grams[0]:
            total: Moments | None = None
            for model, found, share in zip(models, grams, shares, strict=True):
                weight = _matrix(model.get_submodule(path), found[path].gram.shape[0])
                off = found[path].gram * shrink
                gram = off + torch.diag_embed(found[path].gram.diagonal(dim1=-2, dim2=-1) * (1 - shrink))
                zero = torch.zeros_like(found[path].sum_x)
                cross = gram @ weight
                part = replace(
                    found[path], gram=gram, cross=cross, sum_x=zero, sum_y=torch.zeros_like(cross[..., 0, :]),
                    sum_yy=(weight * cross).sum(-2),
                ).scaled(share / found[path].rows)  # fmt: skip
                total = part if total is None else total.plus(part)
            layer = merged.get_submodule(path)
            assert total is not None
            mean = _matrix(layer, total.gram.shape[0])
            solved = solve_ridge(total, ridge=ridge, bias=False, prior=mean).weight
            own = layer.weight
            assert isinstance(own, Tensor)
            own.copy_(solved.mT.reshape(own.shape))
    return merged


def _fisher(
    models: list[nn.Module], inputs: list[Tensor], shares: list[float], *, progress: bool, seed: int = 0,
    floor: float = 1e-6,
) -> nn.Module:  # fmt: skip
    """θ = Σ F_i θ_i / Σ F_i, F the diagonal of the Fisher matrix under each network's own predictions."""
    merged = copy.deepcopy(models[0])
    importance = [_information(m, x, seed) for m, x in zip(models, inputs, strict=True)]
    with torch.no_grad():
        for name, parameter in merged.named_parameters():
            top, bottom = torch.zeros_like(parameter), torch.zeros_like(parameter)
            for model, found, share in zip(models, importance, shares, strict=True):
                weight = share * (found[name] + floor)
                top += weight * dict(model.named_parameters())[name]
                bottom += weight
            parameter.copy_(top / bottom)
    return merged


def _information(model: nn.Module, images: Tensor, seed: int) -> dict[str, Tensor]:
    """Mean square of the gradient of log p(y|x), y drawn from the network's own answer, one image at a time."""
    state = {n: p.detach() for n, p in model.named_parameters()}
    generator = torch.Generator().manual_seed(seed)

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        logits = logits_of(torch.func.functional_call(model, weights, (x[None],)))
        return nn.functional.cross_entropy(logits, y[None])

    gradient = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    total = {n: torch.zeros_like(p) for n, p in state.items()}
    for x in images.split(50):
        with torch.no_grad():
            chances = logits_of(model(x)).softmax(1).cpu()
        drawn = torch.multinomial(chances, 1, generator=generator)[:, 0].to(x.device)
        for name, found in gradient(state, x, drawn).items():
            total[name] += found.square().sum(0)
    return {n: t / len(images) for n, t in total.items()}


METHODS: dict[str, Callable[..., nn.Module]] = {"match": _matched, "regmean": _regmean, "fisher": _fisher}


def rebasin(a: nn.Module, b: nn.Module, example: Tensor) -> nn.Module:
    """b with its channels in the order that brings its weights closest to a's; it answers as before (2209.04836).

    The permutations come from the blueprint, so any network that can be traced will do. Merge afterwards, then give
    batch norms new statistics (`repair`).
    """
    bp = trace(a, example)
    return trace(b, example).permute(b, bp.align(a, b))


def repair(model: nn.Module, images: Images, *, batch_size: int = 250) -> nn.Module:
    """New batch-norm statistics on unlabelled images: what a merged network needs most (REPAIR, 2211.08403)."""
    return reestimate_batch_norm(model, _inputs(model, images).split(batch_size))


def _inputs(model: nn.Module, images: Images) -> Tensor:
    first = next(model.parameters())
    return as_input(images, origin_of(model).preprocessing, device_of(model)).to(first.dtype)


def _matrix(layer: nn.Module, groups: int) -> Tensor:
    """A layer's weight as (groups, inputs of a group, outputs of a group), float64."""
    weight = layer.weight
    assert isinstance(weight, Tensor) and isinstance(layer, nn.Linear | _ConvNd)
    return weight.detach().double().reshape(groups, weight.shape[0] // groups, -1).mT
