"""Transplanting: category modules and task modules of different networks, joined by small adapters (paper 3)."""

from brickwork.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
