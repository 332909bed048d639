"""Continual learning: tasks one after another, methods side by side, accuracy against bytes on the disk.

>>> from brickwork import continual
>>> continual.names()[:3]
['finetune', 'joint', 'sequential']
"""

from brickwork.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
