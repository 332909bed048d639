"""A drawing as PNG, by Pillow. Shapes are drawn twice as large and scaled down, which smooths their edges."""

from __future__ import annotations

import functools
import io
from typing import Any

from PIL import Image, ImageColor, ImageDraw, ImageFont

from brickwork.errors import RequestError
from brickwork.report.drawing import Drawing, Line, Picture, Polygon, Rectangle, Text

SMOOTH = 2  # how much larger the shapes are drawn
LARGEST = 100_000_000  # pixels of the enlarged picture: about 300 MB


def paint(drawing: Drawing, scale: float) -> bytes:
    width, height = round(drawing.width * scale), round(drawing.height * scale)
    if not (width >= 1 and height >= 1 and width * height * SMOOTH**2 <= LARGEST):
        raise RequestError(f"a PNG of {width} × {height} pixels is not possible; choose another scale, or SVG.")
    large = Image.new("RGB", (width * SMOOTH, height * SMOOTH), "white")
    pen = ImageDraw.Draw(large, "RGBA")  # this mode blends what is not opaque
    k = scale * SMOOTH
    for mark in drawing.marks:
        if isinstance(mark, Rectangle) and mark.fill == "transparent":
            continue  # there for the pointer alone
        if isinstance(mark, Rectangle):
            x, y = round(mark.x * k), round(mark.y * k)
            right, bottom = round((mark.x + mark.width) * k) - 1, round((mark.y + mark.height) * k) - 1
            pen.rectangle((x, y, max(x, right), max(y, bottom)), fill=mark.fill)
        elif isinstance(mark, Line):
            ends = (mark.x1 * k, mark.y1 * k, mark.x2 * k, mark.y2 * k)
            pen.line(ends, fill=_colour(mark.colour, mark.opacity), width=max(1, round(mark.width * k)))
        elif isinstance(mark, Polygon):
            pen.polygon([(x * k, y * k) for x, y in mark.points], fill=_colour(mark.fill, mark.opacity))
        elif isinstance(mark, Picture):
            size = (max(1, round(mark.width * k)), max(1, round(mark.height * k)))
            with Image.open(io.BytesIO(mark.png)) as picture:
                sharp = picture.convert("RGB").resize(size, Image.Resampling.NEAREST)
            large.paste(sharp, (round(mark.x * k), round(mark.y * k)))
    image = large.reduce(SMOOTH)
    for mark in drawing.marks:
        if isinstance(mark, Text) and mark.text:
            _write(image, mark, scale)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _write(image: Image.Image, mark: Text, scale: float) -> None:
    font = _font(round(mark.size * scale), mark.bold)
    x, y = mark.x * scale, mark.y * scale
    anchor = {"start": "ls", "middle": "ms", "end": "rs"}[mark.anchor]
    if not mark.turn:
        ImageDraw.Draw(image).text((x, y), mark.text, mark.colour, font, anchor)
        return
    # Turned text is written into the middle of a square and the square turned about that point.
    reach = int(font.getlength(mark.text) + 2 * mark.size * scale) + 1
    square = Image.new("L", (2 * reach, 2 * reach))
    ImageDraw.Draw(square).text((reach, reach), mark.text, 255, font, anchor)
    square = square.rotate(-mark.turn, Image.Resampling.BICUBIC)
    image.paste(mark.colour, (round(x) - reach, round(y) - reach), square)


def _colour(name: str, opacity: float) -> tuple[int, ...]:
    return (*ImageColor.getrgb(name)[:3], round(255 * opacity))


@functools.lru_cache(maxsize=32)
def _font(size: int, bold: bool) -> Any:
    """DejaVu Sans, which comes with matplotlib: the same picture on every machine, and many alphabets."""
    import matplotlib

    name = f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans{'-Bold' if bold else ''}.ttf"
    return ImageFont.truetype(name, size)
