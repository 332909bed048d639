"""The table of benchmarks: a decorator on a plain function is the whole registry.

@benchmark("surgery", help="trace and cut against Torch-Pruning")
def surgery(*, repeat: int = 3) -> Outcome: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from brickwork.errors import RequestError, UnknownName


@dataclass(frozen=True)
class Outcome:
    """What a benchmark found: a row for each contender, peer ÷ ours for what was measured, further tables."""

    rows: list[dict[str, Any]]
    ratios: dict[str, float]
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def to_dict(self, name: str) -> dict[str, Any]:
        return {"name": name, "rows": self.rows, "ratios": self.ratios, **self.tables}


@dataclass(frozen=True)
class Benchmark:
    """One entry: its name, one line of help, and the function that runs it with keyword options."""

    name: str
    help: str
    function: Callable[..., Outcome]

    @property
    def options(self) -> dict[str, Any]:
        """Every option with its default."""
        return {name: p.default for name, p in inspect.signature(self.function).parameters.items()}

    def run(self, **options: Any) -> Outcome:
        for name, value in options.items():
            if name not in self.options:
                raise UnknownName(f"option of benchmark {self.name}", name, self.options)
            kind = type(self.options[name])
            if type(value) is not kind:
                raise RequestError(f"{name} of benchmark {self.name} must be {kind.__name__}, not {value!r}")
        return self.function(**options)


REGISTRY: dict[str, Benchmark] = {}


def benchmark(name: str, *, help: str) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Put a function into the table under `name`; the function itself stays as it is."""

    def register(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
        if name in REGISTRY:
            raise ValueError(f"two benchmarks are called {name!r}")
        REGISTRY[name] = Benchmark(name, help, function)
        return function

    return register


def find(name: str) -> Benchmark:
    if name not in REGISTRY:
        raise UnknownName("benchmark", name, REGISTRY)
    return REGISTRY[name]
