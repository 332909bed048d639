"""A pool from networks that there are: k-means of every layer's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from brickwork.devices import pick
from brickwork.errors import BadModel, RequestError
from brickwork.origin import origin_of
from brickwork.pools.arguments import same_arguments
from brickwork.pools.clusters import k_means
from brickwork.pools.encoding import encode
from brickwork.pools.layers import find_layers, head_of, outputs_of, same_layers, weight_of
from brickwork.pools.nearest import nearest
from brickwork.pools.pool import KernelPool, kinds_of
from brickwork.progress import bar
from brickwork.store.weights import check_finite, state_of


def cluster(
    models: Sequence[nn.Module] | nn.Module,
    *,
    size: int = 512,
    group: int = 1,
    residual: int = 0,
    head: str | None = None,
    images: Any = None,
    seed: int = 0,
    device: str | torch.device | None = "cpu",
    progress: bool = False,
) -> KernelPool:
    """k-means of every layer's kernels over one or several networks of one architecture; no training, no images.

    size: kernels in a codebook; a layer with fewer distinct ones gets those (see `short`).
    group: how many scalars of 1×1 and linear layers make a vector. residual: size of a second codebook for what the
    first leaves, 0 for none. The first network, said in the pool's kernels, is `base`: each kernel by its nearest, or,
    with (unlabelled) images, by what it does to the network's responses on them.
    """
    models = [models] if isinstance(models, nn.Module) else list(models)
    first = _checked(models, size, group, residual)
    head = head_of(first, head)
    shapes = find_layers(first, head, group)
    for number, model in enumerate(models[1:], 2):
        if head not in dict(model.named_modules()):
            raise BadModel(
                f"network {number} has no layer {head!r}, which is the first one's head; the networks of a pool are of one "
                "architecture: make a pool of each."
            )
        same_layers(shapes, find_layers(model, head_of(model, head), group))
        outputs = outputs_of(first, head), outputs_of(model, head)
        same_arguments(origin_of(first), origin_of(model), outputs)
    where = pick(device)
    layers, second = {}, {}
    with bar("clustering", len(shapes), show=progress) as advance:
        for number, (name, layer) in enumerate(shapes.items()):
            weights = [weight_of(model, name).to(where).reshape(-1, layer.length) for model in models]
            vectors = torch.cat(weights)
            layers[name] = k_means(vectors, size, seed=seed + number).cpu()
            if residual:
                book = layers[name].to(where)
                left = vectors - book[nearest(vectors, book)]
                second[name] = k_means(left, residual, seed=seed + number).cpu()
            advance(1, name)
    facts = {"made": "cluster", "networks": len(models), "seed": seed}
    pool = KernelPool.of(first, layers, shapes, head, size=size, group=group, residual=second, facts=facts)
    if images is None:
        return pool
    told = encode(replace(pool, base=None), first, images, seed=seed, device=where, progress=progress)
    return replace(pool, base=told)


def _checked(models: list[nn.Module], size: int, group: int, residual: int) -> nn.Module:
    if not models:
        raise RequestError("a pool is clustered from one network or more; none was given.")
    for name, value, least in (("size", size, 1), ("group", group, 1), ("residual", residual, 0)):
        if value < least:
            raise RequestError(f"{name} is {value}; it must be {least} or more.")
    kinds = set()
    for model in models:
        check_finite(state_of(model), "cannot make a pool")
        kinds |= {p.dtype for p in model.parameters() if p.is_floating_point()}
    if len(kinds) > 1 or not kinds <= {torch.float32, torch.float64}:
        raise BadModel(
            f"the weights are {kinds_of(kinds)}; a pool is made from networks in float32. "
            "Convert them first, as model.float() does."
        )
    return models[0]
