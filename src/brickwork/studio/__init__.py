"""The studio: a local page on which a person puts classes of trained networks together. Needs the extra [studio]."""

from brickwork.studio.app import make_app
from brickwork.studio.serving import serve
from brickwork.studio.shelf import Shelf

__all__ = ["Shelf", "make_app", "serve"]
