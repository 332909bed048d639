"""Forward contribution: how much of what a class's route adds up came through each channel (no gradient).

The rule of the later official code of paper 2. What input channel q adds to output channel p of a layer is
s[p, q] = Σ_places max(0, w[p, q] ∗ x[q]), averaged over the images of a class. From the class's own logit down,
a channel's contribution is Σ_p R[p] · s[p, q], where R is the contribution of p itself, scaled to 0…1 in its layer.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.blueprint.plan import CLASSES, Blueprint, trace
from brickwork.bricks.image_rows import Rows, image_rows, two_or_more
from brickwork.errors import Unsupported
from brickwork.moments.layers import Layer, find_layers
from brickwork.moments.program import Program
from brickwork.prediction import eval_mode
from brickwork.progress import bar

AT_ONCE = 2**25  # numbers held at a time while one layer is taken apart


def contributions(
    model: nn.Module, bp: Blueprint, images: Tensor, labels: Tensor, *, batch_size: int, progress: bool
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """({space: (classes, channels)}, images of each class)."""
    classes = len(bp.output_units)
    counts = torch.bincount(labels, minlength=classes).double().cpu().numpy()
    flows: dict[str, Tensor] = {}
    reads: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    with eval_mode(model), torch.no_grad(), bar("scoring", len(images), show=progress) as advance:
        parts = math.ceil(len(images) / batch_size)
        for x, y in zip(images.tensor_split(parts), labels.tensor_split(parts), strict=True):
            one_hot = F.one_hot(y, classes).to(x.dtype)
            if len(x) == 1:  # the second counts for no class
                x, one_hot = two_or_more(x), torch.cat([one_hot, torch.zeros_like(one_hot)])
            here = trace(model, x, output=bp.output)
            program = Program(model, here.graph, [x])
            layers = find_layers(here.graph, model)
            rows = image_rows(model, bp, images, here.graph, [layer.input for layer in layers])
            for layer in layers:
                made, taken = here.channels(layer.output), here.channels(layer.input)
                if made is None or taken is None or layer.input.index not in rows:
                    continue
                if layer.path not in reads:
                    reads[layer.path] = made[0], taken[0]
                given = program.get(layer.input)[0]
                place = rows[layer.input.index]
                if layer.op is None:
                    given = place.laid_out(given, taken[1]).transpose(1, 2)
                elif place != Rows(0, 1):
                    raise Unsupported(
                        f"contribution cannot score {layer.path}: its rows are not images; use attribution 'taylor'."
                    )
                result = _flow(layer, model.get_submodule(layer.path), given, one_hot)
                flows[layer.path] = flows[layer.path] + result if layer.path in flows else result
            advance(len(y))
    tables = _down(bp, reads, {path: flow.cpu().double().numpy() for path, flow in flows.items()})
    silent = [name for name, table in tables.items() if not table.any()]
    if silent:
        raise Unsupported(
            f"contribution cannot score {', '.join(silent[:3])}: only layers that run once and read channels "
            "directly count; use attribution 'taylor'."
        )
    return tables, counts


def _flow(layer: Layer, module: nn.Module, x: Tensor, one_hot: Tensor) -> Tensor:
    """s[class, p, q], summed over images and places; x as a convolution reads it, or (images, places, inputs)."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    weight = weight.detach()
    groups = int(layer.op.args[8]) if layer.op is not None else 1
    if weight[0, 0].numel() == 1 and groups == 1:  # one tap: the sign decides, no places needed
        flat = x.flatten(2).transpose(1, 2) if layer.op is not None else x
        if layer.op is not None and any(s != 1 for s in layer.op.args[3]):
            steps = [slice(None), slice(None), *[slice(None, None, s) for s in layer.op.args[3]]]
            flat = x[tuple(steps)].flatten(2).transpose(1, 2)
        up, down = (one_hot.t() @ side.sum(1) for side in (flat.clamp(min=0), (-flat).clamp(min=0)))
        w = weight.flatten(1)
        return w.clamp(min=0)[None] * up[:, None] + (-w).clamp(min=0)[None] * down[:, None]
    assert layer.op is not None
    convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[x.dim() - 2]
    stride, padding, dilation = layer.op.args[3:6]
    outputs, inputs = weight.shape[0], x.shape[1]
    made, taken = outputs // groups, inputs // groups
    result = x.new_zeros(one_hot.shape[1], outputs, inputs)
    places = max(1, math.prod(layer.output.shape[2:]))
    step = max(1, AT_ONCE // (len(x) * made * places))
    for group in range(groups):
        rows = slice(group * made, (group + 1) * made)
        for start in range(0, taken, step):
            picked = slice(start, min(start + step, taken))
            count = picked.stop - picked.start
            own = slice(group * taken + picked.start, group * taken + picked.stop)
            kernels = weight[rows, picked].transpose(0, 1).flatten(0, 1)[:, None]
            parts = convolve(x[:, own], kernels, stride=stride, padding=padding, dilation=dilation, groups=count)
            sums = parts.clamp_(min=0).flatten(2).sum(2)
            result[:, rows, own] = (one_hot.t() @ sums).reshape(-1, count, made).transpose(1, 2)
    return result


def _down(
    bp: Blueprint, reads: dict[str, tuple[np.ndarray, np.ndarray]], flows: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """From the logits to the input: each channel's share in what the layers above it add up."""
    classes = len(bp.output_units)
    tables = {name: np.zeros((classes, size)) for name, size in bp.spaces.items()}
    tables[CLASSES][:] = np.eye(classes)[:, [bp.place(int(u))[1] for u in bp.output_units]].T
    for path in reversed(reads):
        made, taken = reads[path]
        relevance = _scaled(_gathered(bp, tables, made))
        share = np.einsum("cp,cpq->cq", relevance, flows[path])
        share /= np.maximum(share.sum(1, keepdims=True), 1e-300)
        for space, mine, there in bp.places(taken):
            np.add.at(tables[space].T, there, share[:, mine].T)
    return {name: table for name, table in tables.items() if name != CLASSES}


def _gathered(bp: Blueprint, tables: dict[str, np.ndarray], units: np.ndarray) -> np.ndarray:
    result = np.zeros((len(bp.output_units), len(units)))
    for space, mine, there in bp.places(units):
        result[:, mine] = tables[space][:, there]
    return result


def _scaled(scores: np.ndarray) -> np.ndarray:
    """To 0…1 within the layer, class by class."""
    low, high = scores.min(1, keepdims=True), scores.max(1, keepdims=True)
    return (scores - low) / np.maximum(high - low, 1e-300)
