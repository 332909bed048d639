"""Training: one function, exact to repeat and to resume."""

from brickwork.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
