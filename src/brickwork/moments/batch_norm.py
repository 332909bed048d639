"""Batch normalisation: folding into the layer before (exact), and re-estimating statistics on new data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from brickwork.blueprint.plan import shapes_of
from brickwork.blueprint.record import Graph, Op, record
from brickwork.blueprint.request import example_to_json
from brickwork.blueprint.walk import rule_name
from brickwork.copying import copy_module
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


def norm_behind(graph: Graph, model: nn.Module) -> dict[str, Op]:
    """For every convolution or linear layer that only a batch norm with statistics reads: the normalisation.

    Its module may do more than that, as timm's norms that hold an activation do: see `only_normalises`.
    """
    readers: dict[int, list[Any]] = {}
    ops = graph.live()
    for op in ops:
        for value in op.inputs():
            readers.setdefault(value.index, []).append(op)
    result = {}
    for op in ops:
        layer = model.get_submodule(op.module) if op.module else None
        if layer is None or graph.calls.get(op.module, 0) != 1 or not is_plain(graph, op, layer):
            continue
        out = op.outputs[0]
        after = readers.get(out.index, []) if out is not None else []
        if len(after) == 1 and "batch_norm" in rule_name(after[0]) and after[0].args[0] is out:
            norm = model.get_submodule(after[0].module)
            known = isinstance(norm, _BatchNorm) and norm.running_mean is not None
            if known and graph.calls.get(after[0].module, 0) == 1:
                result[op.module] = after[0]
    return result


def only_normalises(graph: Graph, op: Op) -> bool:
    """Whether the module of a batch norm returns what was normalised, and not something it made of that."""
    return graph.module_outputs.get(op.module) is op.outputs[0]


def is_plain(graph: Graph, op: Op, layer: nn.Module) -> bool:
    """Whether an operation is all a layer does: x · weight + bias, with its own parameters as they are.

    A kernel computed from the parameter (weight standardisation, say) or a result worked on further is not.
    """
    if graph.module_outputs.get(op.module) is not op.outputs[0]:
        return False
    if isinstance(layer, _ConvNd):
        return rule_name(op) == "convolution" and op.args[1] is graph.tensors.get(f"{op.module}.weight")
    return isinstance(layer, nn.Linear) and type(layer).forward is nn.Linear.forward


def fold_batch_norm(model: nn.Module, example: Any) -> nn.Module:
    """A copy in which every batch norm right behind a convolution or linear layer is part of that layer.

    The same function in eval mode, exactly; the folded norms become identities. One whose module does more than
    normalise (an activation, say) stays where it is with mean 0 and variance 1, for the sake of the rest.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval()
    >>> type(fold_batch_norm(net, torch.zeros(1, 1, 3, 3))[1]).__name__
    'Identity'
    """
    graph = record(model, example)
    folded = copy_module(model)
    for path, op in norm_behind(graph, model).items():
        behind = op.module
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
        if not only_normalises(graph, op):
            _neutralise(norm)
            continue
        folded.set_submodule(behind, nn.Identity())
    step = {"op": "fold_batch_norm", "example": example_to_json(shapes_of(example)), "output": None}
    attach(folded, origin_of(model).after(step))
    return folded


def _neutralise(norm: _BatchNorm) -> None:
    """Numbers with which a batch norm leaves its input as it is."""
    assert norm.running_mean is not None and norm.running_var is not None
    with torch.no_grad():
        norm.running_mean.zero_()
        norm.running_var.fill_(1 - norm.eps)
        if norm.weight is not None:
            norm.weight.fill_(1)
        if norm.bias is not None:
            norm.bias.zero_()


def without_statistics(model: nn.Module) -> nn.Module:
    """A copy whose batch norms have no statistics of their own: they take those of every batch, in eval mode too."""
    new = copy_module(model)
    for norm in new.modules():
        if isinstance(norm, _BatchNorm):
            norm.running_mean = norm.running_var = norm.num_batches_tracked = None
    return new


def reestimate_batch_norm(model: nn.Module, batches: Iterable[Tensor]) -> nn.Module:
    """A copy whose batch norms have the mean and variance of these batches (unlabelled), all taken together.

    Every batch norm normalises by the batch while the statistics are gathered, so that later ones see what
    they will see. The first one's do not depend on how the images were split into batches.
    """
    new = copy_module(model)
    norms = {n: m for n, m in new.named_modules() if isinstance(m, _BatchNorm) and m.running_mean is not None}
    modes = {m: m.training for m in new.modules()}
    momenta = {n: m.momentum for n, m in norms.items()}
    counters = {n: t.clone() for n, m in norms.items() if (t := m.num_batches_tracked) is not None}
    sums: dict[str, list[Any]] = {}
    new.eval()
    handles = []
    for name, norm in norms.items():
        norm.train()
        norm.momentum = 1.0  # after each call the running statistics are exactly that call's
        handles.append(norm.register_forward_hook(_adding_to(sums, name)))
    seen = 0
    with torch.no_grad():
        for images in batches:
            try:
                new(images)
            except ValueError as error:
                raise BadData(f"a batch of {len(images)} cannot be used to re-estimate batch norms: {error}") from error
            seen += len(images)
    if not seen:
        raise BadData("no images were given to re-estimate batch norms on")
    for handle in handles:
        handle.remove()
    for name, norm in norms.items():
        if name in sums:  # else it never ran
            _set_statistics(norm, name, *sums[name])
        norm.momentum = momenta[name]
        if name in counters:
            norm.num_batches_tracked.copy_(counters[name])  # type: ignore[union-attr]
    for m, mode in modes.items():
        m.training = mode
    return new


def _adding_to(sums: dict[str, list[Any]], name: str) -> Any:
    def hook(norm: _BatchNorm, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert norm.running_mean is not None and norm.running_var is not None
        now = batch_sums(inputs[0], norm.running_mean, norm.running_var)
        sums[name] = [a + b for a, b in zip(sums[name], now, strict=True)] if name in sums else now

    return hook


def batch_sums(x: Tensor, mean: Tensor, var: Tensor) -> list[Any]:
    """How many numbers a channel of a batch has, their sum and that of their squares, from mean and unbiased variance."""
    n = x.numel() // x.shape[1]
    mean, var = mean.double(), var.double()
    return [n, n * mean, (n - 1) * var + n * mean.square()]


def pooled_statistics(n: int, total: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and unbiased variance of all batches together, from their sums."""
    mean = total / n
    return mean, (squares - n * mean.square()).clamp(min=0) / max(1, n - 1)


def _set_statistics(norm: _BatchNorm, name: str, n: int, total: Tensor, squares: Tensor) -> None:
    assert norm.running_mean is not None and norm.running_var is not None
    mean, var = pooled_statistics(n, total, squares)
    if not bool(torch.isfinite(mean).all() and torch.isfinite(squares).all()):
        raise BadData(f"activations at {name} became NaN or infinite while batch norms were re-estimated")
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(var)
