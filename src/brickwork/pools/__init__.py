"""Kernel pools: task after task by choosing frozen kernels (paper 4, neural weight search)."""

from brickwork.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
