"""Blueprints: exact surgery on traced models. Public: trace, Blueprint, join."""

from brickwork.blueprint.joining import join
from brickwork.blueprint.plan import CLASSES, Blueprint, Layout, Space, trace

__all__ = ["CLASSES", "Blueprint", "Layout", "Space", "join", "trace"]
