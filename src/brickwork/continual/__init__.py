"""Continual learning: tasks one after another, methods side by side, accuracy against bytes on the disk.

>>> from brickwork import continual
>>> continual.names()[:3]
['finetune', 'joint', 'sequential']
"""

from __future__ import annotations

from brickwork.continual import registry
from brickwork.continual.bench import Bench
from brickwork.continual.method import Method
from brickwork.continual.registry import method, names, parse
from brickwork.continual.result import Comparison, ContinualResult
from brickwork.continual.running import run
from brickwork.continual.scenario import Scenario, sequence, split_classes

__all__ = [
    "Bench",
    "Comparison",
    "ContinualResult",
    "Method",
    "Scenario",
    "method",
    "names",
    "parse",
    "registry",
    "run",
    "sequence",
    "split_classes",
]
