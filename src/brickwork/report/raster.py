"""A drawing as PNG, by matplotlib."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from matplotlib import patches
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from PIL import Image

from brickwork.errors import RequestError
from brickwork.report.drawing import Circle, Curve, Drawing, Line, Mark, Picture, Polygon, Rectangle, Text
from brickwork.report.image_grid import png_of

LARGEST = 25_000_000  # pixels of a picture: about 100 MB while it is painted
DPI = 100.0


def paint(drawing: Drawing, scale: float) -> bytes:
    width, height = round(drawing.width * scale), round(drawing.height * scale)
    if not (width >= 1 and height >= 1 and width * height <= LARGEST):
        raise RequestError(f"a PNG of {width} × {height} pixels is not possible; choose another scale, or SVG.")
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    for order, mark in enumerate(drawing.marks):
        artist = _artist(axes, mark, 72 * scale / DPI)
        if artist is not None:
            artist.set_zorder(order + len(drawing.marks) * isinstance(mark, Text))
    axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0), aspect="auto")
    canvas.draw()
    return png_of(np.asarray(canvas.buffer_rgba())[..., :3])


def _artist(axes: Any, mark: Mark, points: float) -> Any:
    """What matplotlib draws; `points` of its own units make one unit of the drawing. None: nothing to see."""
    match mark:
        case Rectangle():
            if mark.fill == "transparent":  # there for the pointer alone
                return None
            box = (mark.x, mark.y), mark.width, mark.height
            return axes.add_patch(patches.Rectangle(*box, color=mark.fill, linewidth=0))
        case Circle():
            look = {"facecolor": mark.fill, "edgecolor": mark.colour, "linewidth": 1.5 * points}
            return axes.add_patch(patches.Circle((mark.x, mark.y), mark.radius, **look))
        case Line() | Curve():
            bend = [(mark.cx, mark.cy)] if isinstance(mark, Curve) else []
            codes = [Path.MOVETO, Path.CURVE3, Path.CURVE3] if bend else None
            path = Path([(mark.x1, mark.y1), *bend, (mark.x2, mark.y2)], codes)
            look = {"edgecolor": mark.colour, "alpha": mark.opacity, "linewidth": mark.width * points}
            ends = "round" if bend else "butt"
            return axes.add_patch(patches.PathPatch(path, facecolor="none", capstyle=ends, **look))
        case Polygon():
            return axes.add_patch(patches.Polygon(mark.points, color=mark.fill, alpha=mark.opacity, linewidth=0))
        case Picture():
            with Image.open(io.BytesIO(mark.png)) as picture:
                extent = (mark.x, mark.x + mark.width, mark.y + mark.height, mark.y)
                return axes.imshow(picture.convert("RGB"), extent=extent, interpolation="nearest")
        case Text():
            artist = axes.text(mark.x, mark.y, mark.text, fontsize=mark.size * points, color=mark.colour)
            side = {"start": "left", "middle": "center", "end": "right"}[mark.anchor]
            artist.set(ha=side, va="baseline", rotation=-mark.turn, rotation_mode="anchor", parse_math=False)
            artist.set_fontweight("bold" if mark.bold else "normal")
            if mark.halo:
                artist.set_path_effects([withStroke(linewidth=mark.halo * points, foreground="white")])
            return artist
    raise TypeError(f"a {type(mark).__name__} is no mark of a drawing")
