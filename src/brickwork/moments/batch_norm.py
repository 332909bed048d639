"""Batch normalisation: folding into the layer before (exact), and re-estimating statistics on new data."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from brickwork.blueprint.plan import shapes_of
from brickwork.blueprint.record import Graph, record
from brickwork.blueprint.request import example_to_json
from brickwork.blueprint.walk import rule_name
from brickwork.errors import BadData
from brickwork.origin import attach, origin_of


def scale_and_shift(norm: _BatchNorm) -> tuple[Tensor, Tensor]:
    """What an eval-mode batch norm does to a channel: y = scale · x + shift."""
    if norm.running_mean is None or norm.running_var is None:
        raise BadData("a batch norm without running statistics cannot be folded")
    scale = (norm.running_var + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight
    shift = -norm.running_mean * scale
    if norm.bias is not None:
        shift = shift + norm.bias
    return scale, shift


def norm_behind(graph: Graph, model: nn.Module) -> dict[str, str]:
    """For every convolution or linear layer that only a batch norm reads: that batch norm."""
    readers: dict[int, list[Any]] = {}
    ops = graph.live()
    for op in ops:
        for value in op.inputs():
            readers.setdefault(value.index, []).append(op)
    found = {}
    for op in ops:
        layer = model.get_submodule(op.module) if op.module else None
        if not isinstance(layer, (_ConvNd, nn.Linear)) or graph.calls.get(op.module, 0) != 1:
            continue
        out = op.outputs[0]
        after = readers.get(out.index, []) if out is not None else []
        if len(after) == 1 and "batch_norm" in rule_name(after[0]) and after[0].args[0] is out:
            norm = model.get_submodule(after[0].module)
            if isinstance(norm, _BatchNorm) and graph.calls.get(after[0].module, 0) == 1:
                found[op.module] = after[0].module
    return found


def fold_batch_norm(model: nn.Module, example: Any) -> nn.Module:
    """A copy in which every batch norm right behind a convolution or linear layer is part of that layer.

    The same function in eval mode, exactly; the folded norms become identities.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval()
    >>> type(fold_batch_norm(net, torch.zeros(1, 1, 3, 3))[1]).__name__
    'Identity'
    """
    graph = record(model, example)
    folded = copy.deepcopy(model)
    for path, behind in norm_behind(graph, model).items():
        layer, norm = folded.get_submodule(path), folded.get_submodule(behind)
        assert isinstance(layer, (_ConvNd, nn.Linear)) and isinstance(norm, _BatchNorm)
        with torch.no_grad():
            scale, shift = scale_and_shift(norm)
            weight = layer.weight
            if isinstance(layer, _ConvNd) and layer.transposed:
                wide = scale.reshape(layer.groups, 1, -1).expand(-1, weight.shape[0] // layer.groups, -1)
                factor = wide.reshape(weight.shape[0], -1)
            else:
                factor = scale.reshape(-1, 1)
            factor = factor.reshape(*factor.shape, *[1] * (weight.dim() - 2))
            bias = shift if layer.bias is None else layer.bias * scale + shift
            layer.weight = nn.Parameter(weight * factor, weight.requires_grad)
            layer.bias = nn.Parameter(bias.to(weight.dtype), weight.requires_grad)
        parent, _, leaf = behind.rpartition(".")
        setattr(folded.get_submodule(parent), leaf, nn.Identity())
    step = {"op": "fold_batch_norm", "example": example_to_json(shapes_of(example)), "output": None}
    attach(folded, origin_of(model).after(step))
    return folded


def reestimate_batch_norm(model: nn.Module, batches: Iterable[Tensor]) -> nn.Module:
    """A copy whose batch norms have the statistics of these batches (unlabelled), averaged over all of them.

    Every batch norm normalises by the batch while the statistics are gathered, so that later ones see what they
    will see; batches count by their number of images.
    """
    new = copy.deepcopy(model)
    norms = [m for m in new.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
    modes = {m: m.training for m in new.modules()}
    sums: dict[nn.Module, list[Tensor]] = {m: [] for m in norms}
    momenta = {m: m.momentum for m in norms}
    counters = {m: m.num_batches_tracked.clone() for m in norms if m.num_batches_tracked is not None}
    new.eval()
    for m in norms:
        m.train()
        m.momentum = 1.0  # after each batch the running statistics are exactly that batch's
    seen = 0
    with torch.no_grad():
        for images in batches:
            new(images)
            seen += len(images)
            for m in norms:
                assert m.running_mean is not None and m.running_var is not None
                now = torch.stack([m.running_mean, m.running_var]).double() * len(images)
                sums[m] = [sums[m][0] + now] if sums[m] else [now]
    if not seen:
        raise BadData("no images were given to re-estimate batch norms on")
    for m in norms:
        mean, var = sums[m][0] / seen
        if not bool(torch.isfinite(mean).all() and torch.isfinite(var).all()):
            raise BadData("activations became NaN or infinite while batch norms were re-estimated")
        m.running_mean.copy_(mean)  # type: ignore[union-attr]
        m.running_var.copy_(var)  # type: ignore[union-attr]
        m.momentum = momenta[m]
        if m in counters:
            m.num_batches_tracked.copy_(counters[m])  # type: ignore[union-attr]
    for m, mode in modes.items():
        m.training = mode
    return new
