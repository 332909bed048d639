"""Images side by side: one row per kind (the image, its mask, what networks say), one column per example."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from brickwork.report.drawing import Drawing, Mark, Picture, Text

LEFT, TOP, CELL, GAP, LINE = 4.0, 56.0, 66.0, 7.0, 24.0  # five images fit a phone


def draw_images(title: str, rows: Mapping[str, np.ndarray], **words: Any) -> Drawing:
    """rows: names and images, (N, H, W) or (N, H, W, 3), numbers from 0 to 255. words: as of `draw_bars`."""
    marks: list[Mark] = [Text(LEFT, 30, title, 17, bold=True)]
    count = max((len(images) for images in rows.values()), default=0)
    for number, (name, images) in enumerate(rows.items()):
        y = TOP + number * (CELL + LINE) + LINE
        marks.append(Text(LEFT, y - 7, name, 13))
        for k, image in enumerate(images):
            marks.append(Picture(LEFT + k * (CELL + GAP), y, CELL, CELL, png_of(image)))
    size = 2 * LEFT + count * (CELL + GAP) - GAP, TOP + len(rows) * (CELL + LINE) + 6
    return Drawing(title, *size, tuple(marks), **words)


def png_of(image: np.ndarray) -> bytes:
    """An image (H, W), (H, W, 1) or (H, W, 3) as a PNG file's bytes."""
    pixels = image[..., 0] if image.ndim == 3 and image.shape[-1] == 1 else image
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels.astype(np.uint8))).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
