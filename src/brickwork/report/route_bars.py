"""Routes of a wide or deep network: every layer a bar, its channels sorted into groups of one colour."""

from itertools import accumulate, pairwise

from brickwork.bricks.route_sets import Routes
from brickwork.report.drawing import PALE, Mark, Polygon, Rectangle, Text, shortened, text_width
from brickwork.report.route_colours import Scheme, footer, layer_tip

PER_ROW = 22  # columns at most
ROOM, NARROW, BROAD = 1240.0, 52.0, 96.0  # of a row; of a column at least and at most
SLOPE = 38.0  # degrees a name rises
LEAST = 2.0  # pixels of a group that is not empty


def draw_bars(routes: Routes, scheme: Scheme, left: float, top: float) -> tuple[list[Mark], float, float]:
    """Marks, and how far right and down they reach."""
    count = len(routes.layers)
    rows = -(-count // PER_ROW)
    each = -(-count // rows)
    pitch = min(BROAD, max(NARROW, ROOM / each))
    wide, tall = 0.64 * pitch, 340.0 if rows == 1 else 240.0
    names = [shortened(layer.label, 11.5, 190) for layer in routes.layers]
    step = 0.62 * max(text_width(name, 11.5) for name in names) + 30 + tall + 50  # from row to row
    marks: list[Mark] = []
    right, before = left, [0.0]
    for i, (layer, name) in enumerate(zip(routes.layers, names, strict=True)):
        row, place = divmod(i, each)
        x, bottom = left + place * pitch, top + (row + 1) * step - 50
        edges = _edges(scheme.counts(layer), bottom - tall, tall)
        if place and routes.layers[i - 1].name in layer.reads:
            marks += _bands(scheme, before, edges, x - pitch * 0.36, x)
        marks += _bar(routes, scheme, i, name, (x, bottom, wide), edges)
        right = max(right, x + wide + 24, x + wide / 2 + 0.79 * text_width(name, 11.5) + 10)
        before = edges
    return marks, right, top + rows * step


def _edges(counts: list[int], top: float, tall: float) -> list[float]:
    """The top of every group and the bottom of the last; a group that is not empty is never too thin to be seen."""
    heights = [max(LEAST, tall * n / sum(counts)) if n else 0.0 for n in counts]
    heights[heights.index(max(heights))] -= sum(heights) - tall
    return list(accumulate(heights, initial=top))


def _bands(scheme: Scheme, before: list[float], after: list[float], x1: float, x2: float) -> list[Mark]:
    """From each group to the same group of the next layer."""
    marks: list[Mark] = []
    for group, (top1, low1), (top2, low2) in zip(scheme.groups[:-1], pairwise(before), pairwise(after), strict=False):
        if low1 > top1 and low2 > top2:
            marks.append(Polygon(((x1, top1), (x2, top2), (x2, low2), (x1, low1)), group.colour, 0.22))
    return marks


def _bar(
    routes: Routes, scheme: Scheme, i: int, name: str, box: tuple[float, float, float], edges: list[float]
) -> list[Mark]:
    layer, (x, bottom, width) = routes.layers[i], box
    centre, tip = x + width / 2, layer_tip(routes, layer)
    marks: list[Mark] = [
        Text(centre, edges[0] - 22, name, 11.5, bold=True, turn=-SLOPE, tip=tip),
        Text(centre, edges[0] - 6, f"{layer.size}", 10.5, "middle", colour=PALE),
        Text(centre, bottom + 18, footer(routes, layer), 12, "middle", bold=True, tip=tip),
    ]
    if len(routes.classes) > 1:
        part = f"{len(routes.shared(layer.name))}/{len(routes.either(layer.name))}"
        size = 10.0 if text_width(part, 10) <= width / 0.64 - 2 else 8.5
        marks.append(Text(centre, bottom + 33, part, size, "middle", colour=PALE))
    for group, count, (high, low) in zip(scheme.groups, scheme.counts(layer), pairwise(edges), strict=True):
        if count:
            about = f"{layer.label}\n{group.label}: {count} of {layer.size} channels ({count / layer.size:.1%})"
            marks.append(Rectangle(x, high, width, low - high, group.colour, about))
        if low - high >= 13 and text_width(str(count), 10.5) <= width - 2:
            marks.append(Text(centre, (high + low) / 2 + 3.8, f"{count}", 10.5, "middle", colour=group.ink))
    return marks
