"""A pool and its tasks drawn: which kernels each task chose, the kernels themselves, and what tasks have in common."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping

import numpy as np
from PIL import Image

from brickwork.errors import RequestError
from brickwork.pools import KernelPool, Task
from brickwork.report.drawing import PALE, Drawing, Line, Mark, Picture, Polygon, Rectangle, Text, shortened
from brickwork.report.gallery import GRID, Gallery
from brickwork.report.heat import colour, number_in

COLUMNS, WIDE, HIGH = 4, 230.0, 92.0  # of the panels of layers
STRIPS = 32  # places of a histogram that tell their numbers
MOST = 5  # tasks with histograms of their own, as many as the paper shows
INK = "#1f6fb4"
LOW, HIGH_END = (np.array([33.0, 102, 172]), np.array([178.0, 24, 43]))  # the most negative and the most positive value


def draw_pool(
    pool: KernelPool, tasks: Mapping[str, Task], *, sizes: Mapping[str, int] | None = None, title: str = "A kernel pool"
) -> Gallery:
    """One page: selection rates of up to five tasks (paper 4, Figures 1 to 5), the kernels, the overlap of all tasks."""
    shown = list(tasks)[:MOST]
    drawings = [draw_selection(pool, name, tasks[name]) for name in shown]
    drawings += [draw_overlap(pool, tasks, sizes)] if tasks else []
    drawings.append(draw_kernels(pool))
    more = f" Histograms are of the first {MOST}." if len(tasks) > MOST else ""
    about = f"{pool}. {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}.{more}"
    return Gallery(title, about, drawings)


def selection_rates(pool: KernelPool, task: Task) -> dict[str, np.ndarray]:
    """For each layer how often each kernel was chosen, h_i / d: shares that sum to 1 (paper 4, Section 6)."""
    if task.pool not in pool.versions:  # a pool that has grown still knows its earlier tasks
        raise RequestError("the task was learned with another pool; draw it with its own.")
    rates = {}
    for name, book in pool.layers.items():
        counts = np.bincount(task.codes[name].numpy(), minlength=len(book))
        rates[name] = counts / max(1, counts.sum())
    return rates


def draw_selection(pool: KernelPool, name: str, task: Task) -> Drawing:
    """Selection rate over the index of the kernel, one panel a layer."""
    rates = selection_rates(pool, task)
    marks: list[Mark] = [Text(24, 34, f"Kernels that {name} chose", 18, bold=True)]
    rows = []
    for number, (layer, rate) in enumerate(rates.items()):
        left, top = _place(number)
        marks += _histogram(layer, _form(pool, layer), rate, len(task.codes[layer]), left, top)
        used, most = int((rate > 0).sum()), int(rate.argmax())
        bits = float(-(rate[rate > 0] * np.log2(rate[rate > 0])).sum())
        rows.append(
            (
                layer,
                _form(pool, layer),
                f"{len(task.codes[layer]):,}",
                f"{used} of {len(rate)}",
                f"{bits:.2f}",
                f"{most} ({rate[most]:.1%})",
            )
        )
    about = (
        "Across: the index of a kernel in its layer's pool. Up: the selection rate, the share of places it takes; "
        "the scale is each layer's own, and its top is written at the left. Point at a place for its numbers."
    )
    head = ("layer", "kernel", "places", "kernels used", "bits of entropy", "most often")
    width = 24 + COLUMNS * (WIDE + 46)
    height = _place(len(rates) - 1)[1] + HIGH + 40
    return Drawing(f"Task {name}: selection rates", width, height, tuple(marks), about, head, tuple(rows), part="pools")


def draw_kernels(pool: KernelPool) -> Drawing:
    """Every layer's kernels as small pictures, blue below zero, red above, each layer on a scale of its own."""
    marks: list[Mark] = [Text(24, 34, "The kernels of the pool", 18, bold=True)]
    top, rows, width = 78.0, [], 900.0
    for layer, book in pool.layers.items():
        values = book.float().numpy()
        side = math.isqrt(values.shape[1])
        square = side * side == values.shape[1] and side > 1
        tiles = values.reshape(-1, side, side) if square else values[:, None, :]
        png, across, down = _sheet(tiles, 32 if square else 64)
        scale = min(860 / across, 7.0) if square else 860 / across
        high = down * (scale if square else 14)
        most = float(np.abs(values).max()) if values.size else 0.0
        marks.append(Text(24, top - 8, f"{layer}: {len(values)} × {_form(pool, layer)}, up to ±{most:.3g}", 12))
        marks.append(Picture(24, top, across * scale, high, png))
        rows.append((layer, _form(pool, layer), str(len(values)), f"{most:.4g}", f"{float(values.std()):.4g}"))
        top += high + 34
    about = (
        "Kernels stand in the order of their indices. Kernels of one number, as of 1×1 convolutions and linear layers, are "
        "one cell each."
    )
    head = ("layer", "kernel", "in the pool", "largest size", "spread")
    return Drawing("Kernels", width, top, tuple(marks), about, head, tuple(rows), part="pools")


def overlap(one: Task, other: Task) -> float:
    """The share of places at which two tasks chose the same kernel."""
    return 1.0 - one.changed(other)


def draw_overlap(pool: KernelPool, tasks: Mapping[str, Task], sizes: Mapping[str, int] | None = None) -> Drawing:
    """The share of equal indices of every two tasks, and by layer how much tasks agree with the pool's own network."""
    names = list(tasks)
    cell = float(max(12, min(46, 420 // len(names))))
    left, top = 150.0, 110.0 + (60 if len(names) > 1 else 20)
    marks: list[Mark] = [Text(24, 34, "What tasks have in common", 18, bold=True)]
    marks.append(Text(24, 58, "share of places with the same kernel", 13, colour=PALE))
    for i, a in enumerate(names):
        y = top + i * cell
        marks.append(Text(left - 8, y + cell / 2 + 4, shortened(a, 11, left - 30), 11, "end", colour=PALE, tip=a))
        marks.append(Text(left + (i + 0.5) * cell + 4, top - 8, shortened(a, 11, 84), 11, colour=PALE, turn=-45, tip=a))
        for j, b in enumerate(names):
            value = overlap(tasks[a], tasks[b])
            marks.append(
                Rectangle(left + j * cell, y, cell - 1, cell - 1, colour(value), f"{a}\n{b}\n{value:.2%} the same")
            )
            if cell >= 30:
                marks.append(number_in(value, left + (j + 0.5) * cell, y + cell / 2 + 4))
    side = left + len(names) * cell
    if pool.base is not None:
        marks += _by_layer(pool, tasks, side + 90, top)
    head = ("task", "classes", "unlike its reference", *(["bytes on disk"] if sizes else []))
    rows = tuple(
        (
            n,
            ", ".join(t.classes),
            f"{t.changed():.2%}" if t.reference is not None else "–",
            *([f"{sizes.get(n, 0):,}"] if sizes else []),
        )
        for n, t in tasks.items()
    )
    about = "A task costs what its kernels differ from those of the task it is told relative to, its reference."
    height = max(top + len(names) * cell + 30, top + 14.0 * len(pool.layers) + 40)
    return Drawing("Overlap", max(side + 60, side + 470), height, tuple(marks), about, head, rows, part="pools")


def _by_layer(pool: KernelPool, tasks: Mapping[str, Task], left: float, top: float) -> list[Mark]:
    """Bars: the mean share of kernels that are still those of the pool's own network, layer by layer."""
    assert pool.base is not None
    marks: list[Mark] = [Text(left, top - 14, "the same as the pool's own network, by layer", 13, bold=True)]
    wide, base = 220.0, pool.base
    for number, layer in enumerate(pool.layers):
        shares = [float((t.codes[layer] == base.codes[layer]).double().mean()) for t in tasks.values()]
        mean, y = float(np.mean(shares)), top + 14.0 * number
        tip = f"{layer}\nmean {mean:.2%}\nfrom {min(shares):.2%} to {max(shares):.2%}"
        marks.append(Rectangle(left, y, wide, 11, GRID, tip))
        marks.append(Rectangle(left, y, max(1.0, wide * mean), 11, INK, tip))
        marks.append(Text(left + wide + 8, y + 9, f"{mean:.0%}  {shortened(layer, 10, 120)}", 10, colour=PALE))
    return marks


def _histogram(layer: str, form: str, rate: np.ndarray, places: int, left: float, top: float) -> list[Mark]:
    most = float(rate.max()) or 1.0
    room = WIDE - 36
    marks: list[Mark] = [
        Text(left, top - 8, shortened(layer, 12, WIDE - 60), 12, bold=True, tip=layer),
        Text(left + WIDE - 8, top - 8, form, 11, "end", colour=PALE),
        Text(left + 30, top + 10, f"{most:.1%}", 10, "end", colour=PALE),
        Line(left + 36, top + HIGH, left + WIDE, top + HIGH, GRID),
        Line(left + 36, top, left + WIDE, top, GRID),
    ]
    step = room / len(rate)
    points = [(left + 36, top + HIGH)]
    for index, value in enumerate(rate):
        y = top + HIGH * (1 - value / most)
        points += [(left + 36 + index * step, y), (left + 36 + (index + 1) * step, y)]
    points.append((left + 36 + room, top + HIGH))
    marks.append(Polygon(tuple(points), INK))
    strips = min(STRIPS, len(rate))
    for k in range(strips):
        first, last = k * len(rate) // strips, (k + 1) * len(rate) // strips
        peak = first + int(rate[first:last].argmax())
        own = f"kernel {first}" if last - first == 1 else f"kernels {first} to {last - 1}: {rate[first:last].sum():.2%}"
        tip = f"{layer}, {places:,} places\n{own}\nmost often {peak}: {rate[peak]:.3%}"
        wide = (last - first) * step
        # a clear rectangle over the bars: it takes the pointer, and the bars stay one shape
        marks.append(Rectangle(left + 36 + first * step, top, wide, HIGH, "transparent", tip))
    return marks


def _sheet(tiles: np.ndarray, across: int) -> tuple[bytes, int, int]:
    """Kernels (n, h, w) side by side with a pixel of grey between, as PNG; its width and height in pixels."""
    count, height, width = tiles.shape
    across = min(across, max(1, count))
    down = -(-count // across)
    most = float(np.abs(tiles).max(initial=0)) or 1.0
    sheet = np.full((down * (height + 1) - 1, across * (width + 1) - 1, 3), 128, np.uint8)
    share = (tiles / most)[..., None]
    end = np.where(share < 0, LOW, HIGH_END)
    shades = np.rint(255 + (end - 255) * np.abs(share) ** 0.7).astype(np.uint8)
    for k in range(count):
        y, x = (k // across) * (height + 1), (k % across) * (width + 1)
        sheet[y : y + height, x : x + width] = shades[k]
    buffer = io.BytesIO()
    Image.fromarray(sheet).save(buffer, "PNG", optimize=True)
    return buffer.getvalue(), sheet.shape[1], sheet.shape[0]


def _place(number: int) -> tuple[float, float]:
    return 24 + (number % COLUMNS) * (WIDE + 46), 84 + (number // COLUMNS) * (HIGH + 46)


def _form(pool: KernelPool, layer: str) -> str:
    """`3×3`, or how many scalars stand together."""
    shape = pool.shapes[layer]
    return "×".join(map(str, shape.shape[2:])) if len(shape.shape) > 2 else f"{shape.length}"
