"""Putting what was solved for into a layer: its weight, its bias, and the statistics of the norm behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from brickwork.errors import BadModel
from brickwork.moments.batch_norm import scale_and_shift
from brickwork.moments.gram import Moments
from brickwork.moments.ridge import Ridge


def effective(module: Any, norm: nn.Module | None) -> Tensor:
    """The layer's weight with the batch norm behind it taken in."""
    weight = module.weight.detach().double()
    if isinstance(norm, _BatchNorm):
        scale = scale_and_shift(norm)[0].detach().double()
        weight = weight * scale.reshape(-1, *[1] * (weight.dim() - 1))
    return weight


def write(module: Any, norm: nn.Module | None, fit: Ridge, moments: Moments) -> None:
    """Put a solution into the layer; a batch norm behind it keeps true statistics of what it will see."""
    with torch.no_grad():
        weight = fit.weight.mT.reshape(module.weight.shape)
        module.weight.copy_(weight)
        if isinstance(norm, _BatchNorm):
            assert fit.bias is not None and norm.running_mean is not None and norm.running_var is not None
            mean_x = moments.sum_x / moments.rows
            cov = moments.gram / moments.rows - mean_x.unsqueeze(-1) * mean_x.unsqueeze(-2)
            mean = (mean_x.unsqueeze(-2) @ fit.weight).reshape(-1)
            var = (fit.weight * (cov @ fit.weight)).sum(-2).reshape(-1).clamp(min=0)
            if module.bias is not None:
                module.bias.zero_()
            if (
                norm.weight is None or norm.bias is None
            ):  # its statistics are all that it has, and stand for scale and shift
                norm.running_mean.copy_(-fit.bias.reshape(-1))
                norm.running_var.fill_(1 - norm.eps)
                return
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(var)
            deviation = (norm.running_var.double() + norm.eps).sqrt()
            shift = fit.bias.reshape(-1) + norm.running_mean.double()
            norm.weight.copy_(deviation)
            norm.bias.copy_(shift)
        elif module.bias is not None and fit.bias is not None:
            module.bias.copy_(fit.bias.reshape(-1))


def write_choice(
    module: Any, norm: nn.Module | None, fit: Ridge, moments: Moments, choose: Callable[[Tensor, Tensor], Tensor | None]
) -> bool:
    """Put in a weight that is not free; what norm or bias can make good is fitted to it. False: it is free after all."""
    free = fit.weight.mT.reshape(module.weight.shape)
    ones = [1] * (free.dim() - 1)
    scale = None
    if isinstance(norm, _BatchNorm):
        scale = scale_and_shift(norm)[0].detach().double()
        dead = scale.abs() <= 1e-6 * scale.abs().max()  # a channel that is switched off says nothing of its weight
        free = torch.where(dead.reshape(-1, *ones), module.weight.detach().double(), free / scale.reshape(-1, *ones))
    mean_x, mean_y = moments.sum_x / moments.rows, (moments.sum_y / moments.rows).reshape(-1)
    centred = moments.gram / moments.rows - mean_x.unsqueeze(-1) * mean_x.unsqueeze(-2)
    chosen = choose(free, centred)
    if chosen is None:
        return False
    with torch.no_grad():
        module.weight.copy_(chosen)
        used = module.weight.detach().double().reshape(fit.weight.mT.shape).mT
        mean = (mean_x.unsqueeze(-2) @ used).reshape(-1)
        var = (used * (centred @ used)).sum(-2).reshape(-1).clamp(min=0)
        if isinstance(norm, _BatchNorm):
            assert norm.running_mean is not None and norm.running_var is not None and scale is not None
            cross = moments.cross / moments.rows - mean_x.unsqueeze(-1) * (moments.sum_y / moments.rows).unsqueeze(-2)
            slope = (used * cross).sum(-2).reshape(-1) / var.clamp(min=1e-12)
            slope = torch.where(var > 1e-12, slope, scale)
            if module.bias is not None:
                module.bias.zero_()
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(var)
            if norm.weight is None or norm.bias is None:
                raise BadModel(
                    "a batch norm without weight and bias (affine=False) cannot take a weight that is not free"
                )
            norm.weight.copy_(slope * (norm.running_var.double() + norm.eps).sqrt())
            norm.bias.copy_(mean_y + slope * (norm.running_mean.double() - mean))
        elif module.bias is not None:
            module.bias.copy_(mean_y - mean)
    return True
