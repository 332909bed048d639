"""The picture of decision routes: columns are layers, and colours say which classes use a channel."""

from brickwork.bricks.route_sets import Routes
from brickwork.errors import RequestError
from brickwork.report.chart import legend
from brickwork.report.drawing import PALE, Drawing, Mark, Text, shortened, text_width
from brickwork.report.route_bars import draw_bars
from brickwork.report.route_cells import draw_cells, fits, lines_per_class
from brickwork.report.route_colours import Scheme

LEFT, TOP, NARROWEST = 28.0, 34.0, 640.0
STYLES = ("auto", "cells", "bars")
ABOUT = (
    "To see which channels a class needs before they are cut out: a class's route is the channels that decide for it.\n"
    "Every column is a layer, from the input to the classes, and a channel has the colour of the classes that need it. {score} "
    "A channel is on a route if it scores above {threshold:g} times the mean of its layer. In the table, on any: on at least "
    "one route; shared: on at least two; in brackets the share of the layer.\n{so}"
)
#: what a channel's score says; other attributions are named and no more
SCORES = {
    "frat": "The score, frat (feature route attribution), is how steeply the probability of the class rises with a channel.",
    "taylor": "The score, taylor, is about how much the class would lose of its lead over the others without the channel.",
}


def draw_routes(routes: Routes, *, style: str = "auto") -> Drawing:
    """A drawing of routes: every channel a cell where the network is small, else bars of sorted channels.

    style: "cells", "bars", or "auto" for whichever reads better (paper 2, Figures 3 and 6).

    >>> from brickwork.bricks import RoutesOptions
    >>> from brickwork.bricks.route_sets import RouteLayer, Routes
    >>> on = {"cat": (0, 1), "dog": (1,)}
    >>> layers = (RouteLayer("fc", "layer", 3, on, {"cat": (2.0, 2.0, 0.0), "dog": (0.0, 3.0, 0.0)}),)
    >>> routes = Routes(("cat", "dog"), layers, "net", {"cat": 9, "dog": 9}, RoutesOptions())
    >>> draw_routes(routes).svg().startswith("<svg ")
    True
    """
    if style not in STYLES:
        raise RequestError(f"style is {style!r}; it must be {', '.join(STYLES)}.")
    cells = fits(routes) if style == "auto" else style == "cells"
    draw, scheme = draw_cells if cells else draw_bars, Scheme(routes)
    width = max(NARROWEST, draw(routes, scheme, LEFT, 0.0)[1] + LEFT)
    room = width - 2 * LEFT
    colours = [(group.label, group.colour) for group in scheme.groups]
    names, y = legend(colours, LEFT, TOP + 50, width - LEFT, size=13, longest=width / 2)
    columns, _, y = draw(routes, scheme, LEFT, y + 34)
    frame: list[Mark] = [
        Text(LEFT, TOP, shortened(routes.title(), 20, room), 20, bold=True),
        Text(LEFT, TOP + 21, shortened(routes.summary(), 12, room), 12, colour=PALE),
    ]
    for line in _wrapped(_notes(routes, cells), room):
        y += 17
        frame.append(Text(LEFT, y + 5, line, 11.5, colour=PALE))
    head, rows = routes.table()
    marks, by = (*frame, *names, *columns), routes.options.attribution
    score = SCORES.get(by, f"The score is {by}.")
    about = ABOUT.format(score=score, threshold=routes.options.threshold, so=_so(routes))
    return Drawing(routes.title(), width, y + 28, marks, about, tuple(head), tuple(map(tuple, rows)), part="bricks")


def _so(routes: Routes) -> str:
    """What the picture says, in numbers of its own columns."""
    inner = [layer for layer in routes.layers if layer.kind == "layer"]
    used = sum(len(routes.either(layer.name)) for layer in inner)
    every = sum(layer.size for layer in inner)
    said = (
        f"{used} of {every} channels are on a route; the other {every - used} score lower and are candidates for a cut"
    )
    if len(routes.classes) == 1 or not inner:
        return f"{said}."
    by = {layer.label: len(routes.shared(layer.name)) / max(1, len(routes.either(layer.name))) for layer in inner}
    most, least = max(by, key=by.__getitem__), min(by, key=by.__getitem__)
    return f"{said}. The classes share most in {most} ({by[most]:.0%}) and least in {least} ({by[least]:.0%})."


def _notes(routes: Routes, cells: bool) -> str:
    if len(routes.classes) == 1:
        notes = "Below a column: the share of its channels that are on the route."
    else:
        many = "at least two routes / on any route" if len(routes.classes) > 2 else "both routes / on either route"
        notes = f"Below a column: sharing, channels on {many}."
    if cells:
        pairs = f"at most {lines_per_class(routes)} for each class"
        return notes + f" Lines join the highest-scoring pairs of channels on a route, {pairs}."
    bands = " Bands join a layer to the one it feeds directly."
    coupled = any(len(layer.made_by) > 1 for layer in routes.layers if layer.kind == "layer")
    return notes + bands + (" +3: three layers more write to the same channels." if coupled else "")


def _wrapped(text: str, room: float) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, 11.5) > room and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
