"""Kernels that are computed from other parameters in every forward pass, and settled afterwards."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from brickwork.continual.networks import kernels_of
from brickwork.errors import BadModel


def compute(model: nn.Module, rule: Callable[[str, Any], nn.Module]) -> None:
    """Let `rule(name, layer)`, a module from weight to weight, compute every kernel below the head, in place."""
    layers = kernels_of(model)
    owners: dict[int, str] = {}
    for name, layer in layers.items():
        if (other := owners.setdefault(id(layer.weight), name)) != name:
            raise BadModel(
                f"layers {other} and {name} share a weight, which this method would change twice; untie them first."
            )
    for name, module in model.named_modules(remove_duplicate=False):
        if name not in layers and (first := owners.get(id(getattr(module, "weight", None)))) is not None:
            raise BadModel(
                f"{first} and {name} are one layer, or share a weight, which this method would change under one name "
                "only; give each a weight of its own first, or leave the method out."
            )
    for name, layer in layers.items():
        parametrize.register_parametrization(layer, "weight", rule(name, layer))


def rules(model: nn.Module) -> dict[str, Any]:
    """The rule of every layer, by the layer's name."""
    return {
        name: layer.parametrizations.weight[0]
        for name, layer in kernels_of(model).items()
        if parametrize.is_parametrized(layer, "weight")
    }


def settle(model: nn.Module) -> None:
    """Plain kernels again, with the values that were computed last."""
    for layer in kernels_of(model).values():
        if parametrize.is_parametrized(layer, "weight"):
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
