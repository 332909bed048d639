"""Blueprints: exact surgery on traced models. Public: trace, Blueprint, join."""

from brickwork.blueprint.joining import join
from brickwork.blueprint.plan import CLASSES, Blueprint, Layout, Space, trace
from brickwork.blueprint.replay import replay

__all__ = ["CLASSES", "Blueprint", "Layout", "Space", "join", "replay", "trace"]
