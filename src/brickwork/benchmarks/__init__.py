"""Benchmarks against peers, by name: `brickwork bench NAME`. Each prints who was measured, and ratios."""

from brickwork.benchmarks import (  # noqa: F401 (register themselves)
    backdistill,
    covlasso,
    disassemble,
    merge,
    nearest,
    pool_step,
    surgery,
    sweep,
)
from brickwork.benchmarks.registry import REGISTRY, Benchmark, Outcome, benchmark, find

__all__ = ["REGISTRY", "Benchmark", "Outcome", "benchmark", "find"]
