"""The table of Brickwork's own architectures: a decorator on a plain function is the whole registry.

@architecture("lenet")
def lenet(num_classes: int = 10, in_channels: int = 3) -> nn.Module: ...
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

Factory = Callable[..., nn.Module]
SIDE = 32  # height and width of the images that these networks are usually given


@dataclass(frozen=True)
class Architecture:
    """One entry: its name, the function that builds it, and what its outputs are."""

    name: str
    factory: Factory
    task: str = "classify"  # or "segment": one score a class and pixel

    @property
    def summary(self) -> str:
        """The first line of the factory's docstring."""
        return (inspect.getdoc(self.factory) or "").split("\n")[0]

    @property
    def defaults(self) -> dict[str, Any]:
        """Every argument of the factory with its default."""
        return {name: p.default for name, p in inspect.signature(self.factory).parameters.items()}

    def input_shape(self, args: dict[str, Any]) -> tuple[int, int, int]:
        """Channels, height and width of one example for these arguments."""
        given = {**self.defaults, **args}
        size = given.get("image_size") or (224 if given.get("stem") == "imagenet" else SIDE)
        return (int(given.get("in_channels", 3)), int(size), int(size))


REGISTRY: dict[str, Architecture] = {}


def architecture(name: str, *, task: str = "classify") -> Callable[[Factory], Factory]:
    """Put a factory into the registry under `name`; the function itself stays as it is."""

    def register(factory: Factory) -> Factory:
        if name in REGISTRY:
            raise ValueError(f"two architectures are called {name!r}")
        REGISTRY[name] = Architecture(name, factory, task)
        return factory

    return register
