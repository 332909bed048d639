"""Routes of a small network: every channel a cell, lines between the strongest cells of neighbouring layers."""

from brickwork.bricks.route_sets import MOST_CLASSES, RouteLayer, Routes
from brickwork.report.drawing import PALE, Line, Mark, Rectangle, Text, shortened
from brickwork.report.route_colours import Scheme, footer, layer_tip
from brickwork.words import counted

TALLEST = 600.0  # pixels a column may take
CELL = 24.0  # pixels a channel takes where there are few
WIDE, PITCH = 34.0, 172.0  # of a column
HEAD, FOOT = 44.0, 44.0
LINES = 120  # between two layers


def fits(routes: Routes) -> bool:
    """Whether every channel can have a cell that is still seen."""
    return len(routes.layers) <= 9 and all(layer.size <= 150 for layer in routes.layers)


def lines_per_class(routes: Routes) -> int:
    """How many lines a class may have between two layers: fewer where there are many classes."""
    return max(8, LINES // max(2, len(routes.classes)))


def draw_cells(routes: Routes, scheme: Scheme, left: float, top: float) -> tuple[list[Mark], float, float]:
    """Marks, and how far right and down they reach."""
    tall = max(min(TALLEST, CELL * layer.size) for layer in routes.layers)
    middle = top + HEAD + tall / 2
    places = [_places(layer, middle) for layer in routes.layers]
    columns = [left + 40 + PITCH * i for i in range(len(routes.layers))]
    marks: list[Mark] = []
    for i in range(1, len(routes.layers)):
        before, after = routes.layers[i - 1], routes.layers[i]
        if before.name in after.reads:
            for a, b, colour, strength in _links(routes, scheme, before, after):
                y1, y2 = places[i - 1][a], places[i][b]
                x1, x2 = columns[i - 1] + WIDE, columns[i]
                marks.append(Line(x1, y1, x2, y2, colour, 0.6 + 0.9 * strength, 0.18 + 0.5 * strength))
    for layer, x, centres in zip(routes.layers, columns, places, strict=True):
        marks += _column(routes, scheme, layer, x, centres, top, top + HEAD + tall)
    names = max((len(text.text) for text in marks if isinstance(text, Text) and text.x > columns[-1] + WIDE), default=0)
    return marks, columns[-1] + WIDE + max(40.0, 14 + 8 * names), top + HEAD + tall + FOOT


def _places(layer: RouteLayer, middle: float) -> list[float]:
    """The vertical centre of every channel's cell."""
    step = min(CELL, TALLEST / layer.size)
    return [middle + (k - (layer.size - 1) / 2) * step for k in range(layer.size)]


def _column(
    routes: Routes, scheme: Scheme, layer: RouteLayer, x: float, centres: list[float], top: float, bottom: float
) -> list[Mark]:
    centre, tip = x + WIDE / 2, layer_tip(routes, layer)
    name = shortened(layer.label, 13, PITCH - 12)
    below = " shared" if len(routes.classes) > 1 else " of the layer"
    count = counted(layer.size, "channel") if layer.kind != "classes" else ""
    marks: list[Mark] = [
        Text(centre, top + 12, name, 13, "middle", bold=True, tip=tip),
        Text(centre, top + 28, count, 11, "middle", colour=PALE),
        Text(centre, bottom + 24, footer(routes, layer) + below, 13, "middle", bold=True, tip=tip),
    ]
    if len(routes.classes) > 1:
        part = f"{len(routes.shared(layer.name))} of {len(routes.either(layer.name))}"
        marks.append(Text(centre, bottom + 40, part, 11, "middle", colour=PALE))
    step = min(CELL, TALLEST / layer.size)
    gap = min(3.0, 0.22 * step)
    relative = {n: layer.relative(n) for n in routes.classes} if layer.scores else {}
    for k, (users, y) in enumerate(zip(layer.users(), centres, strict=True)):
        colour = scheme.groups[scheme.of(users)].colour
        about = _cell_tip(layer, k, users, {n: row[k] for n, row in relative.items()})
        marks.append(Rectangle(x, y - (step - gap) / 2, WIDE, step - gap, colour, about))
        if layer.kind == "classes" and users and step >= 12:
            marks.append(Text(x + WIDE + 8, y + 4.5, shortened(users[0], 12, 160), 12))
    return marks


def _cell_tip(layer: RouteLayer, k: int, users: tuple[str, ...], relative: dict[str, float]) -> str:
    if layer.kind == "classes":
        return f"class {users[0]}" if users else f"class number {k}: not asked for"
    lines = [f"{layer.name}, channel {k}"]
    shown = list(relative) if len(relative) <= MOST_CLASSES else list(users[:12])
    for name in shown:
        on = ", on the route" if name in users else ""
        lines.append(f"{name}: {relative.get(name, 1):.2f} × the layer's mean{on}")
    if len(relative) > MOST_CLASSES:
        lines[0] += f": on {len(users)} of {len(relative)} routes"
    return "\n".join(lines)


def _links(routes: Routes, scheme: Scheme, before: RouteLayer, after: RouteLayer) -> list[tuple[int, int, str, float]]:
    """(from, to, colour, strength 0 to 1), weakest first; a pair that two classes use has the shared colour."""
    strongest: dict[tuple[int, int], float] = {}
    for name in routes.classes:
        here, there = before.relative(name), after.relative(name)
        pairs = [(here[a] * there[b], a, b) for a in before.on[name] for b in after.on[name]]
        pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
        most = pairs[0][0] if pairs and pairs[0][0] > 0 else 1.0
        for value, a, b in pairs[: lines_per_class(routes)]:
            strongest[a, b] = max(strongest.get((a, b), 0.0), value / most)
    users_before, users_after = before.users(), after.users()
    links = []
    for (a, b), strength in sorted(strongest.items(), key=lambda item: (item[1], item[0])):
        both = tuple(name for name in users_before[a] if name in users_after[b])
        links.append((a, b, scheme.groups[scheme.of(both)].colour, strength))
    return links
