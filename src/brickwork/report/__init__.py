"""Pictures and pages of what Brickwork finds."""

from brickwork.report.drawing import Drawing
from brickwork.report.routes import draw_routes

__all__ = ["Drawing", "draw_routes"]
