"""A list of independent jobs, run here, in processes, or on Ray, and never run twice."""

from brickwork.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
