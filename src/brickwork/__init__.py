"""Brickwork takes trained neural networks apart and builds new ones from the parts.

The public names are loaded on first use, so that `import brickwork` and `brickwork --help` stay fast.
"""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version

from brickwork.lazy import attach

try:
    __version__ = _version("brickwork")
except PackageNotFoundError:  # a source tree that is on the path but not installed
    __version__ = "0+unknown"

__getattr__, __dir__, __all__ = attach(__name__, __file__)
__all__ += ["__version__"]
