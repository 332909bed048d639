"""Everything that decides what a training run computes, checked all at once."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from brickwork.errors import RequestError

OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("cosine", "onecycle", "milestones", "constant")
AUGMENTATIONS = ("none", "flip", "crop", "crop+flip")
PRECISIONS = ("auto", "float32", "bf16")


@dataclass(frozen=True)
class Settings:
    """The numbers of a training run. Two runs with equal settings and data give the same weights on a CPU.

    >>> Settings(lr=-1, schedule="cosin")
    Traceback (most recent call last):
    ...
    brickwork.errors.RequestError: schedule is 'cosin'; it must be cosine, onecycle, milestones, constant; \
lr is -1; it must be above 0.
    """

    epochs: int = 20
    batch_size: int = 128
    lr: float = 0.1
    optimizer: str = "sgd"
    schedule: str = "onecycle"
    milestones: tuple[int, ...] = ()  # epochs at which the learning rate falls to a tenth
    weight_decay: float = 5e-4
    momentum: float = 0.9
    nesterov: bool = True
    label_smoothing: float = 0.0
    augment: str = "none"
    precision: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        problems = []
        for name, allowed in (
            ("optimizer", OPTIMIZERS),
            ("schedule", SCHEDULES),
            ("augment", AUGMENTATIONS),
            ("precision", PRECISIONS),
        ):
            if getattr(self, name) not in allowed:
                problems.append(f"{name} is {getattr(self, name)!r}; it must be {', '.join(allowed)}")
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                problems.append(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            problems.append(f"lr is {self.lr}; it must be above 0")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            problems.append(f"weight_decay is {self.weight_decay}; it must be 0 or more")
        for name in ("momentum", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                problems.append(f"{name} is {getattr(self, name)}; it must be 0 or more and below 1")
        if self.optimizer == "sgd" and self.nesterov and self.momentum == 0:
            problems.append("nesterov needs a momentum above 0")
        if (self.schedule == "milestones") != bool(self.milestones):
            problems.append(f"milestones are {self.milestones} with schedule {self.schedule!r}; give both or neither")
        if list(self.milestones) != sorted(set(self.milestones)) or any(m < 1 for m in self.milestones):
            problems.append(f"milestones are {self.milestones}; they must be rising epochs from 1")
        if self.seed < 0:
            problems.append(f"seed is {self.seed}; it must be 0 or more")
        if problems:
            raise RequestError("; ".join(problems) + ".")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
