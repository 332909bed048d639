"""Benchmarks against peers, by name: `brickwork bench NAME`. Each prints who was measured, and ratios."""

from brickwork_lab.benchmarks import (  # noqa: F401 (register themselves)
    backdistill,
    covlasso,
    disassemble,
    growth,
    images,
    merge,
    nearest,
    pool_step,
    surgery,
    sweep,
)
from brickwork_lab.benchmarks.registry import REGISTRY, Benchmark, Outcome, benchmark, find

__all__ = ["REGISTRY", "Benchmark", "Outcome", "benchmark", "find"]
