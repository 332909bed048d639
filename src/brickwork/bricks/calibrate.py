"""Bring the logits of different parts to one scale, inside the layer that makes them: no new module, no labels."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.plan import trace
from brickwork.blueprint.record import pick_output
from brickwork.errors import Unsupported
from brickwork.prediction import evaluating


def fold(
    model: nn.Module, scale: Tensor, shift: Tensor, example: Tensor, output: str | int | None
) -> nn.Module:
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
        raise Unsupported(
            "calibration needs one linear or convolution layer that makes all logits of a part."
        )
    head = heads[0]
    new = copy.deepcopy(model)
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
        wanted = pick_output(old(x), output) * scale + shift
    with evaluating(new):
        found = pick_output(new(x), output)
    # Cancellation between weight and shift costs digits relative to the largest term.
    size = max(1.0, float(wanted.abs().max()), float(shift.abs().max()))
    if not float((found - wanted).abs().max()) <= 1e-3 * size:
        raise Unsupported("calibration is exact only where the last layer's output is the logits themselves.")
