"""The picture of decision routes: columns are layers, and colours say which classes use a channel."""

from __future__ import annotations

from brickwork.bricks.route_sets import Routes
from brickwork.errors import RequestError
from brickwork.report.drawing import PALE, Drawing, Mark, Rectangle, Text, shortened, text_width
from brickwork.report.route_bars import draw_bars
from brickwork.report.route_cells import draw_cells, fits, lines
from brickwork.report.route_colours import Scheme

LEFT, TOP, NARROWEST = 28.0, 34.0, 640.0
STYLES = ("auto", "cells", "bars")


def draw_routes(routes: Routes, *, style: str = "auto") -> Drawing:
    """A drawing of routes: every channel a cell where the network is small, else bars of sorted channels.

    style: "cells", "bars", or "auto" for whichever reads better (paper 2, Figures 3 and 6).

    >>> from brickwork.bricks.route_sets import RouteLayer, Routes
    >>> on = {"cat": (0, 1), "dog": (1,)}
    >>> layers = (RouteLayer("fc", "layer", 3, on, {"cat": (2.0, 2.0, 0.0), "dog": (0.0, 3.0, 0.0)}),)
    >>> about = {"attribution": "frat", "threshold": 1.0}
    >>> found = Routes(("cat", "dog"), layers, "net", {"cat": 9, "dog": 9}, about)
    >>> draw_routes(found).svg().startswith("<svg ")
    True
    """
    if style not in STYLES:
        raise RequestError(f"style is {style!r}; it must be {', '.join(STYLES)}.")
    cells = fits(routes) if style == "auto" else style == "cells"
    scheme = Scheme(routes)
    draw = draw_cells if cells else draw_bars
    marks, right, _ = draw(routes, scheme, LEFT, 0.0)
    width = max(NARROWEST, right + LEFT)
    frame: list[Mark] = [
        Text(LEFT, TOP, shortened(routes.title(), 20, width - 2 * LEFT), 20, bold=True),
        Text(LEFT, TOP + 21, shortened(routes.summary(), 12, width - 2 * LEFT), 12, colour=PALE),
    ]
    legend, y = _legend(scheme, width, TOP + 50)
    marks, right, y = draw(routes, scheme, LEFT, y + 34)
    notes = _notes(routes, cells)
    frame += [Text(LEFT, y + 22 + 17 * i, note, 11.5, colour=PALE) for i, note in enumerate(_wrapped(notes, width))]
    height = y + 22 + 17 * len(_wrapped(notes, width)) + 6
    head, rows = routes.table()
    return Drawing(
        title=routes.title(),
        width=width,
        height=height,
        marks=(*frame, *legend, *marks),
        about=ABOUT,
        head=tuple(head),
        rows=tuple(map(tuple, rows)),
        part="bricks",
    )


ABOUT = (
    "Every column is a layer, from the input to the classes, and colours say which class needs a channel. Look at how many "
    "channels the classes share: first layers often serve several classes, the last ones fewer. A channel is on the route "
    "of a class if it scores above the threshold times the mean of its layer; every route has the whole input, and of the "
    "classes its own. In the table, in brackets: the share of the layer's channels; on any: on at least one route; shared: "
    "on at least two; sharing: shared / on any. A name with +3: three layers more write to the same channels."
)


def _notes(routes: Routes, cells: bool) -> str:
    if len(routes.classes) == 1:
        notes = "Below a column: the share of its channels that are on the route."
    else:
        many = "at least two routes / on any route" if len(routes.classes) > 2 else "both routes / on either route"
        notes = f"Below a column: sharing, channels on {many}."
    if cells:
        pairs = f"at most {lines(routes)} for each class"
        return notes + f" Lines join the highest-scoring pairs of channels on a route, {pairs}."
    bands = " Bands join a layer to the one it feeds directly."
    coupled = any(len(layer.made_by) > 1 for layer in routes.layers if layer.kind == "layer")
    return notes + bands + (" +3: three layers more write to the same channels." if coupled else "")


def _wrapped(text: str, width: float) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, 11.5) > width - 2 * LEFT and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _legend(scheme: Scheme, width: float, y: float) -> tuple[list[Mark], float]:
    """Coloured squares with their meaning, on as many lines as they take; and where the last line is."""
    marks: list[Mark] = []
    x = LEFT
    for group in scheme.groups:
        label = shortened(group.label, 13, width / 2)
        room = 20 + text_width(label, 13) + 22
        if x > LEFT and x + room > width - LEFT:
            x, y = LEFT, y + 22
        marks += [Rectangle(x, y - 11, 14, 14, group.colour), Text(x + 20, y + 0.5, label, 13)]
        x += room
    return marks, y
