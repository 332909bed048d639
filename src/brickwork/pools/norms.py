"""The statistics of batch norms: rounded no further than they bear, or stored as another task's."""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from brickwork.pools.task import rounded

EPS = 1e-5  # torch's own
LOSS = 0.05  # of variance + eps; beside an eps of 1e-5 not even 12 bits lose more, and tasks stay as small as they are


def with_statistics_of(model: nn.Module, own: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`own` tensors in which every batch norm has the other's mean and variance; weight and bias make up for it.

    Exactly the same function in evaluation; in training a batch's own statistics meet a weight meant for others.
    """
    folded = dict(own)
    for path, norm in model.named_modules():
        names = [f"{path}.{leaf}" if path else leaf for leaf in ("running_mean", "running_var", "weight", "bias")]
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
        folded[names[0]], folded[names[1]] = other[names[0]].clone(), other[names[1]].clone()
        folded[names[2]] = (weight * (spread + norm.eps).sqrt() / deviation).to(own[names[2]].dtype)
        folded[names[3]] = (bias + weight * (there - mean) / deviation).to(own[names[3]].dtype)
    return folded


def rounded_variance(value: Tensor, bits: int, eps: float) -> Tensor:
    """`rounded`, but as it is where a variance is so small that what is lost would count beside `eps`.

    A norm divides by √(variance + eps): 0 in place of a variance of 1e-8 is nothing to an eps of 1e-5, and a wrong scale
    to one of 1e-12.

    >>> import torch
    >>> tiny = torch.tensor([1.0, 2e-8])
    >>> rounded_variance(tiny, 16, 1e-5)[1].item(), torch.equal(rounded_variance(tiny, 16, 1e-12), tiny)
    (0.0, True)
    """
    back = rounded(value, bits)
    lost = (back - value).abs() > LOSS * (value.abs() + eps)
    return value if bool(lost.any()) else back


def eps_of(model: nn.Module, name: str) -> float:
    """What the module that holds this tensor adds to a variance; torch's own number where it does not say."""
    eps = getattr(model.get_submodule(name.rpartition(".")[0]), "eps", None)
    return float(eps) if isinstance(eps, int | float) else EPS
