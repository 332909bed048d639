"""Training: one function, exact to repeat and to resume."""

from __future__ import annotations

from brickwork.training.loop import train
from brickwork.training.recipes import RECIPES, Recipe, settings_for
from brickwork.training.result import TrainingResult
from brickwork.training.settings import Settings

__all__ = ["RECIPES", "Recipe", "Settings", "TrainingResult", "settings_for", "train"]
