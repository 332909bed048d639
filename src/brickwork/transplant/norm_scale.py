"""What a batch norm multiplies gradients by, be it a layer or a call of the function inside a layer."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

_PARAMETERS = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
#: the running variance, the weight or None, and eps, as they are now
Read = Callable[[], tuple[Any, Any, float]]


class NormScale:
    """The factor of every channel; calculated again only where the norm's tensors are others."""

    def __init__(self, read: Read) -> None:
        self.read = read
        self.known: tuple[Any, Tensor] | None = None

    def __call__(self, like: Tensor) -> Tensor:
        variance, weight, eps = self.read()
        read = [t for t in (variance, weight) if t is not None]
        learning = torch.is_grad_enabled() and any(t.requires_grad for t in read)
        if learning or any(t.is_inference() for t in read):  # the latter do not count their changes
            return _scale(variance, weight, eps, like)
        sign = (like.dtype, like.dim(), eps, *((t.data_ptr(), t.device, t._version) for t in read))
        if self.known is None or self.known[0] != sign:
            self.known = sign, _scale(variance, weight, eps, like)
        return self.known[1]


def _scale(variance: Tensor, weight: Tensor | None, eps: float, like: Tensor) -> Tensor:
    scale = (variance + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    return scale.reshape(-1, *[1] * (like.dim() - 2)).to(like.dtype)


def scale_of_call(node: fx.Node, modules: Mapping[str, nn.Module]) -> NormScale | None:
    """Of a call of F.batch_norm by running statistics that the network holds; None for any other."""
    given: dict[str, Any] = dict(zip(_PARAMETERS, node.args, strict=False)) | dict(node.kwargs)
    variance, weight = given.get("running_var"), given.get("weight")
    held = [n for n in (variance, weight) if n is not None]
    if variance is None or given.get("training", False) is not False:
        return None
    if any(not isinstance(n, fx.Node) or n.op != "get_attr" for n in held):
        return None

    def tensor(source: fx.Node | None) -> Any:
        if source is None:
            return None
        owner, _, name = str(source.target).rpartition(".")
        return getattr(modules[owner], name)

    eps = float(given.get("eps", 1e-5))
    return NormScale(lambda: (tensor(variance), tensor(weight), eps))
