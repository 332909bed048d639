"""The table of Brickwork's own architectures: a decorator on a plain function is the whole registry.

@architecture("lenet", size=32)
def lenet(num_classes: int = 10, in_channels: int = 3) -> nn.Module: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

Factory = Callable[..., nn.Module]


@dataclass(frozen=True)
class Architecture:
    """One entry: its name, the function that builds it, and the image side it is usually given."""

    name: str
    factory: Factory
    size: int = 32
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
        size = given.get("image_size") or (224 if given.get("stem") == "imagenet" else self.size)
        return (int(given.get("in_channels", 3)), int(size), int(size))


REGISTRY: dict[str, Architecture] = {}


def architecture(name: str, *, size: int = 32, task: str = "classify") -> Callable[[Factory], Factory]:
    """Put a factory into the registry under `name`; the function itself stays as it is."""

    def register(factory: Factory) -> Factory:
        if name in REGISTRY:
            raise ValueError(f"two architectures are called {name!r}")
        REGISTRY[name] = Architecture(name, factory, size, task)
        return factory

    return register
