"""Neural dependencies: which classes' logits are combinations of a few others' (paper 5)."""

from brickwork.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
