"""Bricks: the sub-network of some classes, cut out of a classifier, and networks built from such parts (paper 2)."""

from brickwork.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
