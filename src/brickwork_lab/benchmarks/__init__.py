"""Benchmarks against peers, by name: `brickwork bench NAME`. Each prints who was measured, and ratios."""

from brickwork_lab.benchmarks import backdistill, covlasso, disassemble, merge, nearest, pool_step, surgery, sweep  # noqa: F401 (register themselves)
from brickwork_lab.benchmarks.registry import REGISTRY, Benchmark, Outcome, benchmark, find

__all__ = ["REGISTRY", "Benchmark", "Outcome", "benchmark", "find"]
