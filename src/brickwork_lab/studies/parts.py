"""Parts cut out of the networks of a set's two halves: what the studies of joining have in common."""

from __future__ import annotations

from typing import Any

from brickwork.bricks import Brick, disassemble
from brickwork.data import class_indices
from brickwork_lab.lab import Lab

Pick = tuple[tuple[str, str], ...]  # (half, its classes by their number within the half), a part each


def parse_pick(text: str) -> Pick:
    """The parts that a text names.

    >>> parse_pick("A0-2 B3-4")
    (('A', '0-2'), ('B', '3-4'))
    """
    return tuple((part[0], part[1:]) for part in text.split())


def numbers_of(classes: str, count: int) -> list[int]:
    """Classes by their number within a half, whatever they are called.

    >>> numbers_of("0-1,4", 5)
    [0, 1, 4]
    """
    return class_indices(classes, [f"class {k}" for k in range(count)])


def cut_parts(lab: Lab, arch: str, source: str, pick: Pick, **options: Any) -> list[Brick]:
    """A brick per part, each cut out of the network of its half."""
    bricks = []
    for letter, classes in pick:
        half = lab.data(f"{source}:{letter}")
        model, numbers = lab.network(arch, f"{source}:{letter}"), numbers_of(classes, len(half.classes))
        bricks.append(disassemble(model, numbers, half, seed=lab.seed, progress=lab.progress, **options))
    return bricks
