"""Images side by side: a row a kind (the image, its mask, what networks say), a column an example."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
from PIL import Image

from brickwork.report.drawing import Drawing, Mark, Picture, Text, shortened

LEFT, TOP, CELL, GAP = 230.0, 60.0, 74.0, 8.0


def draw_images(
    title: str,
    rows: Mapping[str, np.ndarray],
    *,
    about: str = "",
    part: str = "",
    cards: tuple[tuple[str, str], ...] = (),
    command: str = "",
) -> Drawing:
    """rows: a name and its images, (N, H, W) or (N, H, W, 3), numbers from 0 to 255; every row as many."""
    marks: list[Mark] = [Text(24, 34, title, 18, bold=True)]
    count = max((len(images) for images in rows.values()), default=0)
    for number, (name, images) in enumerate(rows.items()):
        y = TOP + number * (CELL + GAP)
        marks.append(Text(LEFT - 12, y + CELL / 2 + 4, shortened(name, 13, LEFT - 40), 13, "end"))
        for k, image in enumerate(images):
            marks.append(Picture(LEFT + k * (CELL + GAP), y, CELL, CELL, _png(image)))
    width, height = LEFT + count * (CELL + GAP) + 20, TOP + len(rows) * (CELL + GAP) + 10
    return Drawing(title, width, height, tuple(marks), about, (), (), cards, command, part)


def _png(image: np.ndarray) -> bytes:
    kept = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image.astype(np.uint8).squeeze())).save(kept, "PNG")
    return kept.getvalue()
