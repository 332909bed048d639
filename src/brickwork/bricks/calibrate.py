"""Bring the logits of different parts to one scale, inside the layer that makes them: no new module, no labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.plan import trace
from brickwork.bricks.brick import Brick
from brickwork.copying import copy_module
from brickwork.data.datasets import images_of
from brickwork.data.pixels import as_input
from brickwork.data.streamed import Images
from brickwork.devices import device_of
from brickwork.errors import BadModel, Unsupported
from brickwork.origin import origin_of
from brickwork.outputs import logits_of
from brickwork.prediction import evaluating


def calibrated(
    parts: Sequence[Brick], example: Tensor, how: str, target: Images | None = None
) -> tuple[list[nn.Module], str]:
    """The parts' networks with their logits on one scale, and how that was done."""
    if how == "none" or (how == "auto" and (len(parts) == 1 or not all(p.spread for p in parts))):
        return [part.model for part in parts], "none"
    changes = _to_the_first(parts) if how in ("auto", "source") else _every_logit(parts, how, target)
    models = []
    for part, (scale, shift) in zip(parts, changes, strict=True):
        same = bool((scale == 1).all()) and bool((shift == 0).all())
        try:
            models.append(part.model if same else fold(part.model, scale, shift, example, part.output))
        except Unsupported:
            if how == "auto":
                return [part.model for part in parts], "none"
            raise
    return models, "source" if how == "auto" else how


def _to_the_first(parts: Sequence[Brick]) -> list[tuple[Tensor, Tensor]]:
    """One scale a part: its whole network's logits get the spread of the first part's."""
    changes = []
    for part in parts:
        if part.spread is None or not part.spread > 0:
            raise _unknown(part)
        scale = torch.full((len(part.classes),), (parts[0].spread or 0) / part.spread, dtype=torch.float64)
        changes.append((scale, torch.zeros_like(scale)))
    return changes


def _every_logit(parts: Sequence[Brick], how: str, target: Images | None) -> list[tuple[Tensor, Tensor]]:
    """Every logit z-scored, then all put back to their common spread, so that confidences keep their scale."""
    pairs = []
    for part in parts:
        mean, std = _on_target(part, target) if how == "target" else (part.mean, part.std)
        if not mean:
            raise _unknown(part)
        if not all(s > 0 for s in std):
            raise BadModel(f"a logit of {_names(part)} never varied on the images; do not calibrate.")
        pairs.append((torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)))
    common = torch.cat([std for _, std in pairs]).mean()
    return [(common / std, -mean * common / std) for mean, std in pairs]


def _unknown(part: Brick) -> BadModel:
    return BadModel(
        f"the part of {_names(part)} has no statistics of its own data; calibrate by target images, or not at all."
    )


def _names(part: Brick) -> str:
    return ", ".join(part.classes[:10])


def _on_target(part: Brick, target: Images | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    assert target is not None
    with evaluating(part.model):
        inputs = as_input(images_of(target), origin_of(part.model).preprocessing, device_of(part.model))
        logits = torch.cat([logits_of(part.model(x), part.output).double().cpu() for x in inputs.split(500)])
    return tuple(logits.mean(0).tolist()), tuple(logits.std(0, unbiased=False).tolist())


def fold(model: nn.Module, scale: Tensor, shift: Tensor, example: Tensor, output: str | int | None) -> nn.Module:
    """A copy whose logits are scale · logit + shift, exactly: the last layer's rows and biases are changed.

    >>> net = nn.Linear(2, 2)
    >>> x = torch.ones(1, 2)
    >>> new = fold(net, torch.tensor([2.0, 1.0]), torch.tensor([0.0, 5.0]), x, None)
    >>> torch.allclose(new(x), net(x) * torch.tensor([2.0, 1.0]) + torch.tensor([0.0, 5.0]))
    True
    """
    bp = trace(model, example, output=output)
    made = [s for s in bp.sites if s.kind in ("linear", "conv") and not s.transposed and s.weight is not None]
    if len(scale) == 1:  # an axis of one place is no channel axis to a blueprint; the proof below decides
        heads = [s for s in made if s.makes is None and bp.graph.tensors[s.weight or ""].shape[0] == 1][-1:]
    else:
        heads = [s for s in made if s.makes is not None and np.array_equal(s.makes, bp.output_units)]
    if len(heads) != 1:
        raise Unsupported("calibration needs one linear or convolution layer that makes all logits of a part.")
    head = heads[0]
    new = copy_module(model)
    layer = new.get_submodule(head.module)
    weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
    if not isinstance(weight, Tensor) or not isinstance(bias, Tensor):
        raise Unsupported(f"calibration is folded into a bias, and {head.module} has none.")
    scale, shift = scale.to(weight), shift.to(weight)
    with torch.no_grad():
        weight.mul_(scale.reshape(-1, *[1] * (weight.dim() - 1)))
        bias.mul_(scale).add_(shift)
    _prove(model, new, scale, shift, example, output)
    return new


def _prove(
    old: nn.Module, new: nn.Module, scale: Tensor, shift: Tensor, example: Tensor, output: str | int | None
) -> None:
    """Something behind the layer (a softmax) or a second use of its weight would show here."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((4, *example.shape[1:]), generator=generator).to(example)
    with evaluating(old):
        wanted = logits_of(old(x), output) * scale + shift
    with evaluating(new):
        result = logits_of(new(x), output)
    # Cancellation between weight and shift costs digits relative to the largest term.
    size = max(1.0, float(wanted.abs().max()), float(shift.abs().max()))
    if not float((result - wanted).abs().max()) <= 1e-3 * size:
        raise Unsupported("calibration is exact only where the last layer's output is the logits themselves.")
