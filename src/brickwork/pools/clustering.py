"""A pool from networks that there are: k-means of every layer's kernels."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from brickwork.data.images import ImageData
from brickwork.data.streamed import Images
from brickwork.devices import DeviceLike, pick
from brickwork.errors import BadModel, RequestError
from brickwork.options import takes
from brickwork.origin import origin_of
from brickwork.pools.arguments import same_arguments
from brickwork.pools.clusters import k_means
from brickwork.pools.encoding import encode
from brickwork.pools.layers import find_layers, head_of, outputs_of, same_layers, weight_of
from brickwork.pools.options import ClusterOptions
from brickwork.pools.pool import KernelPool, kinds_of, made_facts
from brickwork.progress import bar
from brickwork.store.weights import check_finite, state_of


@takes(ClusterOptions)
def cluster(
    models: Sequence[nn.Module] | nn.Module,
    data: ImageData | Images | None = None,
    *,
    device: DeviceLike | None = "cpu",
    progress: bool = False,
    options: ClusterOptions,
) -> KernelPool:
    """k-means of every layer's kernels over one or several networks of one architecture; no training.

    A layer with fewer than `size` distinct kernels gets those (see `KernelPool.short`). The first network, in the pool's
    kernels, is `base`: each kernel by its nearest or, with `data` (unlabelled images), by what it does to the network's
    responses on them.

    >>> from brickwork import zoo
    >>> cluster([zoo.build("lenet", seed=0)], size=16)
    KernelPool(lenet: 4 layers of up to 16 kernels, 3,328 bytes)
    """
    models = [models] if isinstance(models, nn.Module) else list(models)
    group, seed = options.group, options.seed
    first = _checked(models)
    head = head_of(first, options.head)
    shapes = find_layers(first, head, group)
    for number, model in enumerate(models[1:], 2):
        if head not in dict(model.named_modules()):
            raise BadModel(
                f"network {number} has no layer {head!r}, which is the first one's head; the networks of a pool are of one "
                "architecture: make a pool of each."
            )
        same_layers(shapes, find_layers(model, head_of(model, head), group))
        same_arguments(origin_of(first), origin_of(model), (outputs_of(first, head), outputs_of(model, head)))
    where = pick(device)
    layers = {}
    with bar("clustering", len(shapes), show=progress) as advance:
        for number, (name, layer) in enumerate(shapes.items()):
            vectors = torch.cat([weight_of(model, name).to(where).reshape(-1, layer.length) for model in models])
            layers[name] = k_means(vectors, options.size, seed=seed + number).cpu()
            advance(1, name)
    facts = made_facts("cluster", models, options, ("seed",))
    pool = KernelPool.of(first, layers, shapes, head, size=options.size, group=group, facts=facts)
    if data is None:
        return pool
    base = encode(replace(pool, base=None), first, data, seed=seed, device=where, progress=progress)
    return replace(pool, base=base)


def _checked(models: list[nn.Module]) -> nn.Module:
    """The first of the networks, all of which can be pooled."""
    if not models:
        raise RequestError("a pool is clustered from one network or more; none was given.")
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
