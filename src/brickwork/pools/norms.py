"""Batch norms told with the statistics of another task: the same function from half as many numbers."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def with_statistics_of(
    model: nn.Module, own: Mapping[str, Tensor], other: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """`own` tensors in which every batch norm has the other's mean and variance; weight and bias make up for it.

    Exactly the same function in evaluation; in training a batch's own statistics meet a weight meant for others.
    """
    told = dict(own)
    for path, norm in model.named_modules():
        names = [
            f"{path}.{leaf}" if path else leaf for leaf in ("running_mean", "running_var", "weight", "bias")
        ]
        if (
            not isinstance(norm, _BatchNorm)
            or any(n not in own for n in names)
            or any(n not in other for n in names[:2])
        ):
            continue
        if other[names[0]].shape != own[names[0]].shape:
            continue
        mean, var, weight, bias = (own[name].double() for name in names)
        there, spread = (other[name].double() for name in names[:2])
        deviation = (var + norm.eps).sqrt()
        told[names[0]], told[names[1]] = other[names[0]].clone(), other[names[1]].clone()
        told[names[2]] = (weight * (spread + norm.eps).sqrt() / deviation).to(own[names[2]].dtype)
        told[names[3]] = (bias + weight * (there - mean) / deviation).to(own[names[3]].dtype)
    return told
