"""LoRA adapters as peft writes them: baked into their base, merged by their products, extracted from a difference."""

from brickwork.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
