"""A drawing as PNG, by Pillow. Shapes are drawn twice as large and scaled down, which smooths their edges."""

import functools
import io
from typing import Any

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from brickwork.errors import RequestError
from brickwork.report.drawing import Circle, Drawing, Line, Mark, Picture, Polygon, Rectangle, Text
from brickwork.report.image_grid import png_of

SMOOTH = 2  # how much larger the shapes are drawn
LARGEST = 100_000_000  # pixels of the enlarged picture: about 300 MB


def paint(drawing: Drawing, scale: float) -> bytes:
    """PNG bytes, `scale` pixels per unit of the drawing."""
    width, height = round(drawing.width * scale), round(drawing.height * scale)
    if not (width >= 1 and height >= 1 and width * height * SMOOTH**2 <= LARGEST):
        raise RequestError(f"a PNG of {width} × {height} pixels is not possible; choose another scale, or SVG.")
    large = Image.new("RGB", (width * SMOOTH, height * SMOOTH), "white")
    for mark in drawing.marks:
        _draw(large, mark, scale * SMOOTH)
    image = large.reduce(SMOOTH)
    for mark in drawing.marks:
        if isinstance(mark, Text) and mark.text:
            _write(image, mark, scale)
    return png_of(np.asarray(image))


def _draw(image: Image.Image, mark: Mark, k: float) -> None:
    """A shape, k pixels per unit; what is not opaque is blended."""
    pen = ImageDraw.Draw(image, "RGBA")
    match mark:
        case Rectangle() if mark.fill != "transparent":  # those are there for the pointer alone
            x, y = round(mark.x * k), round(mark.y * k)
            right, bottom = round((mark.x + mark.width) * k) - 1, round((mark.y + mark.height) * k) - 1
            pen.rectangle((x, y, max(x, right), max(y, bottom)), fill=mark.fill)
        case Circle():
            fill, outline = (None if colour == "none" else colour for colour in (mark.fill, mark.colour))
            pen.circle((mark.x * k, mark.y * k), mark.radius * k, fill, outline, width=round(1.5 * k))
        case Line():
            cx, cy = mark.bend or ((mark.x1 + mark.x2) / 2, (mark.y1 + mark.y2) / 2)
            steps = np.linspace(0, 1, 33 if mark.bend else 2)[:, None]
            ends = np.array([[mark.x1, mark.y1], [cx, cy], [mark.x2, mark.y2]]) * k
            way = (1 - steps) ** 2 * ends[0] + 2 * steps * (1 - steps) * ends[1] + steps**2 * ends[2]
            ink, width = (*ImageColor.getrgb(mark.colour)[:3], round(255 * mark.opacity)), max(1, round(mark.width * k))
            pen.line([tuple(point) for point in way], fill=ink, width=width, joint="curve" if mark.bend else None)
            for end in way[[0, -1]] if mark.bend else ():
                pen.circle(tuple(end), width / 2, ink)
        case Polygon():
            ink = (*ImageColor.getrgb(mark.fill)[:3], round(255 * mark.opacity))
            pen.polygon([(x * k, y * k) for x, y in mark.points], fill=ink)
        case Picture():
            size = (max(1, round(mark.width * k)), max(1, round(mark.height * k)))
            with Image.open(io.BytesIO(mark.png)) as picture:
                sharp = picture.convert("RGB").resize(size, Image.Resampling.NEAREST)
            image.paste(sharp, (round(mark.x * k), round(mark.y * k)))


def _write(image: Image.Image, mark: Text, scale: float) -> None:
    font = _font(round(mark.size * scale), mark.bold)
    x, y = mark.x * scale, mark.y * scale
    anchor = {"start": "ls", "middle": "ms", "end": "rs"}[mark.anchor]
    if not mark.turn:
        halo: dict[str, Any] = {"stroke_width": round(mark.halo * scale / 2), "stroke_fill": "white"}
        ImageDraw.Draw(image).text((x, y), mark.text, mark.colour, font, anchor, **halo)
        return
    # Turned text is written into the middle of a square and the square turned about that point.
    reach = int(font.getlength(mark.text) + 2 * mark.size * scale) + 1
    square = Image.new("L", (2 * reach, 2 * reach))
    ImageDraw.Draw(square).text((reach, reach), mark.text, 255, font, anchor)
    square = square.rotate(-mark.turn, Image.Resampling.BICUBIC)
    image.paste(mark.colour, (round(x) - reach, round(y) - reach), square)


@functools.lru_cache(maxsize=32)
def _font(size: int, bold: bool) -> Any:
    """DejaVu Sans, which comes with matplotlib: the same picture on every machine, and many alphabets."""
    import matplotlib

    name = f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans{'-Bold' if bold else ''}.ttf"
    return ImageFont.truetype(name, size)
