"""Weight algebra: deltas, and networks merged from several (paper 1)."""

from brickwork.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
