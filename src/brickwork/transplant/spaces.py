"""Where a task module puts its images: hidden features, and the plane in which they differ most (paper 3, Figure 5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.data.streamed import Images, unread
from brickwork.errors import BadData, BadModel, UnknownName
from brickwork.prediction import evaluating, input_of
from brickwork.transplant.route import RouteModel

_LAST = (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)


@dataclass(frozen=True)
class FeatureSpace:
    """Features of the same images through several adapters, in one plane: name -> (images, 2)."""

    category: str
    points: dict[str, np.ndarray]
    spread: dict[str, float]  # root of the features' total variance: near 0 where images fall on one spot
    explained: float  # share of the variance of all of them that the plane shows


def hidden_features(route: RouteModel, images: Images, *, layer: str | None = None, batch_size: int = 128) -> Tensor:
    """(N, D): what the last layer of the task module reads, or what `layer` gives; maps and tokens are averaged over places."""
    result: list[Tensor] = []
    net = route.above.net
    if layer is None:
        hook = _last(net).register_forward_pre_hook(lambda module, inputs: result.append(inputs[0]))
    else:
        known = dict(net.named_modules())
        if layer not in known or not layer:
            raise UnknownName("layer of the task module", layer, [name for name in known if name])
        hook = known[layer].register_forward_hook(lambda module, inputs, output: result.append(output))
    tensor = unread(images)
    if len(tensor) == 0:
        raise BadData("there are no images to look at.")
    try:
        with evaluating(route):
            for start in range(0, len(tensor), batch_size):
                route(input_of(route, tensor[start : start + batch_size]))
    finally:
        hook.remove()
    return torch.cat([_flat(value).cpu() for value in result])


def space_of(category: str, features: Mapping[str, Tensor]) -> FeatureSpace:
    """The first two principal components of all features together, so that adapters can be compared."""
    arrays = {name: value.double().numpy() for name, value in features.items()}
    together = np.concatenate(list(arrays.values()))
    centre = together.mean(0)
    _, values, axes = np.linalg.svd(together - centre, full_matrices=False)
    plane = axes[:2] * np.where(axes[:2].sum(1, keepdims=True) < 0, -1.0, 1.0)  # a sign of its own would be chance
    if len(plane) < 2:
        plane = np.concatenate([plane, np.zeros((2 - len(plane), plane.shape[1]))])
    total = float((values**2).sum())
    return FeatureSpace(
        category,
        {name: (value - centre) @ plane.T for name, value in arrays.items()},
        {name: float(np.sqrt(value.var(0).sum())) for name, value in arrays.items()},
        float((values[:2] ** 2).sum() / total) if total else 1.0,
    )


def _last(net: Any) -> nn.Module:
    """The layer that gives the answer: the last convolution or linear layer the graph runs."""
    for node in reversed(list(net.graph.nodes)):
        if node.op == "call_module":
            layer = net.get_submodule(str(node.target))
            if isinstance(layer, _LAST):
                return layer
    raise BadModel("the task module has no linear layer or convolution; name a layer.")


def _flat(value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.dim() < 2:
        raise BadModel("the layer gives no features of images; name another.")
    if value.dim() == 3:  # tokens (N, T, D)
        return value.mean(1)
    return value.flatten(2).mean(2) if value.dim() > 2 else value
