"""A pool and its tasks drawn: which kernels each task chose, the kernels themselves, and what tasks have in common."""

import math
from collections.abc import Mapping

import numpy as np

from brickwork.errors import RequestError
from brickwork.pools import KernelPool, PoolTask
from brickwork.report.book import Book, gallery
from brickwork.report.chart import BLUE, GRID, heading
from brickwork.report.drawing import PALE, Drawing, Line, Mark, Picture, Polygon, Rectangle, Text, shortened
from brickwork.report.heat import cell
from brickwork.report.image_grid import png_of
from brickwork.words import counted, sides

COLUMNS, WIDE, HIGH = 4, 230.0, 92.0  # of the panels of layers
STRIPS = 32  # places of a histogram that show their numbers
MOST = 5  # tasks with histograms of their own, as many as the paper shows
LOW, HIGH_END = (np.array([33.0, 102, 172]), np.array([178.0, 24, 43]))  # the most negative and the most positive value


def draw_pool(
    pool: KernelPool,
    tasks: Mapping[str, PoolTask],
    *,
    sizes: Mapping[str, int] | None = None,
    title: str = "A kernel pool",
) -> Book:
    """One page: selection rates of up to five tasks (paper 4, Figures 1 to 5), the kernels, the overlap of all tasks."""
    drawings = [draw_selection(pool, name, tasks[name]) for name in list(tasks)[:MOST]]
    drawings += [draw_overlap(pool, tasks, sizes)] if tasks else []
    drawings.append(draw_kernels(pool))
    more = f" Histograms are of the first {MOST}." if len(tasks) > MOST else ""
    return gallery(title, drawings, f"{pool}. {counted(len(tasks), 'task')}.{more}")


def selection_rates(pool: KernelPool, task: PoolTask) -> dict[str, np.ndarray]:
    """For each layer how often each kernel was chosen, h_i / d: shares that sum to 1 (paper 4, Section 6)."""
    if task.pool not in pool.versions:  # a pool that has grown still knows its earlier tasks
        raise RequestError("the task was learned with another pool; draw it with its own.")
    rates = {}
    for name, book in pool.layers.items():
        counts = np.bincount(task.codes[name].numpy(), minlength=len(book))
        rates[name] = counts / max(1, counts.sum())
    return rates


def draw_selection(pool: KernelPool, name: str, task: PoolTask) -> Drawing:
    """Selection rate over the index of the kernel, one panel per layer."""
    marks = heading(f"Kernels that {name} chose")
    rows, top = [], 84.0
    for number, (layer, rate) in enumerate(selection_rates(pool, task).items()):
        left, top = 24 + (number % COLUMNS) * (WIDE + 46), 84 + (number // COLUMNS) * (HIGH + 46)
        form, places = _form(pool, layer), len(task.codes[layer])
        marks += _histogram(layer, form, rate, places, left, top)
        used, most = rate[rate > 0], int(rate.argmax())
        bits = float(-(used * np.log2(used)).sum())
        numbers = f"{places:,}", f"{len(used)} of {len(rate)}", f"{bits:.2f}", f"{most} ({rate[most]:.1%})"
        rows.append((layer, form, *numbers))
    about = (
        "To see whether a task uses the whole pool or leans on a few kernels.\n"
        "Across: the index of a kernel in its layer's pool. Up: the selection rate, the share of places it takes; "
        "the scale is each layer's own, and its top is written at the left.\n"
        "The fewer kernels a task uses, the fewer bits its file needs: see the entropy in the "
        "table."
    )
    head = ("layer", "kernel", "places", "kernels used", "bits of entropy", "most often")
    size = 24 + COLUMNS * (WIDE + 46), top + HIGH + 40
    return Drawing(f"Task {name}: selection rates", *size, tuple(marks), about, head, tuple(rows), part="pools")


def draw_kernels(pool: KernelPool) -> Drawing:
    """Every layer's kernels as small pictures, blue below zero, red above, each layer on a scale of its own."""
    marks = heading("The kernels of the pool")
    top, rows = 78.0, []
    for layer, book in pool.layers.items():
        values, form = book.float().numpy(), _form(pool, layer)
        side = math.isqrt(values.shape[1])
        square = side * side == values.shape[1] and side > 1
        sheet = _sheet(values.reshape(-1, side, side) if square else values[:, None, :], 32 if square else 64)
        down, across = sheet.shape[:2]
        scale = min(860 / across, 7.0) if square else 860 / across
        high = down * (scale if square else 14)
        most = float(np.abs(values).max(initial=0))
        marks.append(Text(24, top - 8, f"{layer}: {len(values)} × {form}, up to ±{most:.3g}", 12))
        marks.append(Picture(24, top, across * scale, high, png_of(sheet)))
        rows.append((layer, form, str(len(values)), f"{most:.4g}", f"{float(values.std()):.4g}"))
        top += high + 34
    about = (
        "To look at what tasks can choose from.\nKernels stand in the order of their indices, blue below zero, red above; "
        "kernels of one number, as of 1×1 convolutions and linear layers, are one cell each.\nThese never change, so no task "
        "can spoil another."
    )
    head = ("layer", "kernel", "in the pool", "largest size", "spread")
    return Drawing("Kernels", 900.0, top, tuple(marks), about, head, tuple(rows), part="pools")


def overlap(one: PoolTask, other: PoolTask) -> float:
    """The share of places at which two tasks chose the same kernel."""
    return 1.0 - one.changed(other)


def draw_overlap(pool: KernelPool, tasks: Mapping[str, PoolTask], sizes: Mapping[str, int] | None = None) -> Drawing:
    """The share of equal indices of every two tasks, and by layer how much tasks agree with the pool's own network."""
    names = list(tasks)
    size = float(max(12, min(46, 420 // len(names))))
    left, top = 150.0, 110.0 + (60 if len(names) > 1 else 20)
    marks = heading("What tasks have in common", "share of places with the same kernel")
    for i, a in enumerate(names):
        x, y = left + (i + 0.5) * size + 4, top + i * size
        marks.append(Text(left - 8, y + size / 2 + 4, shortened(a, 11, left - 30), 11, "end", colour=PALE, tip=a))
        marks.append(Text(x, top - 8, shortened(a, 11, 84), 11, colour=PALE, turn=-45, tip=a))
        for j, b in enumerate(names):
            value = overlap(tasks[a], tasks[b])
            marks += cell(left + j * size, y, size, value, f"{a}\n{b}\n{value:.2%} the same")
    side = left + len(names) * size
    marks += _by_layer(pool, tasks, side + 90, top)
    head = ("task", "classes", "unlike its reference", *(["bytes on disk"] if sizes else []))
    rows = []
    for name, task in tasks.items():
        changed = f"{task.changed():.2%}" if task.reference is not None else "–"
        rows.append((name, ", ".join(task.classes), changed, *([f"{sizes.get(name, 0):,}"] if sizes else [])))
    about = (
        "To see which tasks are alike.\nA cell is the share of places at which two tasks chose the same kernel.\nA task costs "
        "what its kernels differ from those of the task it is told relative to, its reference."
    )
    height = max(top + len(names) * size + 30, top + 14.0 * len(pool.layers) + 40)
    return Drawing("Overlap", side + 470, height, tuple(marks), about, head, tuple(rows), part="pools")


def _by_layer(pool: KernelPool, tasks: Mapping[str, PoolTask], left: float, top: float) -> list[Mark]:
    """Bars: the mean share of kernels that are still those of the pool's own network, layer by layer."""
    if pool.base is None:
        return []
    marks: list[Mark] = [Text(left, top - 14, "the same as the pool's own network, by layer", 13, bold=True)]
    wide = 220.0
    for number, layer in enumerate(pool.layers):
        shares = [float((t.codes[layer] == pool.base.codes[layer]).double().mean()) for t in tasks.values()]
        mean, y = float(np.mean(shares)), top + 14.0 * number
        tip = f"{layer}\nmean {mean:.2%}\nfrom {min(shares):.2%} to {max(shares):.2%}"
        marks.append(Rectangle(left, y, wide, 11, GRID, tip))
        marks.append(Rectangle(left, y, max(1.0, wide * mean), 11, BLUE, tip))
        marks.append(Text(left + wide + 8, y + 9, f"{mean:.0%}  {shortened(layer, 10, 120)}", 10, colour=PALE))
    return marks


def _histogram(layer: str, form: str, rate: np.ndarray, places: int, left: float, top: float) -> list[Mark]:
    most = float(rate.max()) or 1.0
    start, end, bottom = left + 36, left + WIDE, top + HIGH
    step = (end - start) / len(rate)
    points = [(start, bottom)]
    for index, value in enumerate(rate):
        y = top + HIGH * (1 - value / most)
        points += [(start + index * step, y), (start + (index + 1) * step, y)]
    marks: list[Mark] = [
        Text(left, top - 8, shortened(layer, 12, WIDE - 60), 12, bold=True, tip=layer),
        Text(end - 8, top - 8, form, 11, "end", colour=PALE),
        Text(start - 6, top + 10, f"{most:.1%}", 10, "end", colour=PALE),
        Line(start, bottom, end, bottom, GRID),
        Line(start, top, end, top, GRID),
        Polygon((*points, (end, bottom)), BLUE),
    ]
    strips = min(STRIPS, len(rate))
    for k in range(strips):
        first, last = k * len(rate) // strips, (k + 1) * len(rate) // strips
        peak = first + int(rate[first:last].argmax())
        own = f"kernel {first}" if last - first == 1 else f"kernels {first} to {last - 1}: {rate[first:last].sum():.2%}"
        tip = f"{layer}, {places:,} places\n{own}\nmost often {peak}: {rate[peak]:.3%}"
        # a clear rectangle over the bars: it takes the pointer, and the bars stay one shape
        marks.append(Rectangle(start + first * step, top, (last - first) * step, HIGH, "transparent", tip))
    return marks


def _sheet(tiles: np.ndarray, across: int) -> np.ndarray:
    """Kernels (n, h, w) side by side with a pixel of grey between, as an image."""
    count, height, width = tiles.shape
    across = min(across, max(1, count))
    down = -(-count // across)
    share = (tiles / (float(np.abs(tiles).max(initial=0)) or 1.0))[..., None]
    shades = np.rint(255 + (np.where(share < 0, LOW, HIGH_END) - 255) * np.abs(share) ** 0.7)
    sheet = np.full((down * (height + 1) - 1, across * (width + 1) - 1, 3), 128, np.uint8)
    for k in range(count):
        y, x = (k // across) * (height + 1), (k % across) * (width + 1)
        sheet[y : y + height, x : x + width] = shades[k]
    return sheet


def _form(pool: KernelPool, layer: str) -> str:
    """`3×3`, or how many scalars stand together."""
    shape = pool.shapes[layer]
    return sides(shape.shape[2:]) if len(shape.shape) > 2 else f"{shape.length}"
