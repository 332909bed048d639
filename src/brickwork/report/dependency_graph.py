"""The graph of a dependency map (paper 5, Figure 4): targets inside, the classes they are made of around."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brickwork.dependencies import DependencyMap
from brickwork.report.chart import heading
from brickwork.report.drawing import INK, PALE, Circle, Drawing, Line, Mark, Text, shortened, text_width

PLUS, MINUS = "#0072b2", "#d55e00"  # blue and vermilion: told apart by every kind of colour vision
MOST_TARGETS, USUAL, ALL_UP_TO = 16, 10, 16  # inside at most; by default; with so few classes all of them
ARCS = 96  # in the whole picture
RADIUS, SMALL, LABEL = 300.0, 178.0, 162.0  # of the ring, of the ring of a few classes: it fits a phone; of a name
INNER = 0.507  # the ring of the targets, as a share
HEAD = 62.0  # above the ring, for the title
#: letters of classes around, turned outwards, and of the legend; none is smaller than the last
NAME, TURNED, LEGEND = 15.0, 14.0, 14.0
RING = "#8c959f"
FEW, UPRIGHT = (
    12,
    24,
)  # so many classes have the small ring; so many names around stay horizontal; more are turned outwards


@dataclass(frozen=True)
class Graph:
    """What is drawn: targets inside, bases around in this order, and the links (target, base) between them."""

    targets: tuple[int, ...]
    bases: tuple[int, ...]
    links: tuple[tuple[int, int], ...]
    each: int  # links of a target at most


def choose_graph(result: DependencyMap, classes: Sequence[int] = ()) -> Graph:
    """The targets asked for, else all of a few classes, else those the others explain best."""
    few = max(result.coef.shape) <= ALL_UP_TO
    chosen = list(dict.fromkeys(classes)) or (list(range(len(result.targets))) if few else best(result, USUAL))
    each = max(3, ARCS // len(chosen))
    links = [(t, int(j)) for t in chosen for j in result._order(t)[:each]]
    if few:
        return Graph(tuple(chosen), tuple(range(len(result.names))), tuple(links), each)
    # A base stands by the target that needs it most, so that arcs hardly cross.
    used = sorted({j for _, j in links})
    strength = np.abs(result.coef[np.ix_(chosen, used)])
    owner = strength.argmax(0) if used else np.zeros(0, int)
    bases: list[int] = []
    for k in range(len(chosen)):
        mine = sorted((i for i in range(len(used)) if owner[i] == k), key=lambda i: -strength[k, i])
        bases += [used[i] for i in (*mine[1::2][::-1], *mine[::2])]  # the strongest in the middle
    return Graph(tuple(chosen), tuple(bases), tuple(links), each)


def best(result: DependencyMap, count: int) -> list[int]:
    """Classes with dependencies, the smallest relative error first; those without come last."""
    error = np.where((result.coef != 0).any(1), result.columns["rel_error"], np.inf)
    return [int(t) for t in np.argsort(error, kind="stable")[:count]]


def draw_graph(result: DependencyMap, graph: Graph, title: str, *, headed: bool = False) -> Drawing:
    """A curve per link, as thick as its coefficient is large; names on the ring and inside it. headed: with the title."""
    upright = len(graph.bases) <= UPRIGHT
    names = max((text_width(result.names[j], NAME if upright else TURNED) for j in graph.bases), default=0.0)
    radius = SMALL if len(graph.bases) <= FEW and names <= 30 else RADIUS
    top = HEAD if headed else 0.0
    wide = math.ceil(2 * (radius + max(min(LABEL, names), 20) + 16))
    ring = math.ceil(2 * (radius + 34)) if upright else wide
    tall = top + (ring + 48 if upright else wide)  # names that stay upright leave no corner free for the legend
    centre = complex(wide / 2, top + ring / 2)
    around = {j: radius * _turn(i / len(graph.bases)) for i, j in enumerate(graph.bases)}
    inside = _inside(result, graph, around, radius)
    most = float(np.abs(result.coef).max(initial=0)) or 1.0
    note = Text(24, 57, "lines lead from a class to those its logit is a sum of", LEGEND, colour=PALE)
    marks: list[Mark] = [*heading(title), note] if headed else []
    marks.append(Circle(centre.real, centre.imag, radius, "none", colour=RING))
    for t, j in sorted(graph.links, key=lambda link: abs(result.coef[link])):  # the strongest on top
        marks.append(_arc(result, t, j, centre, inside[t], around[j], most))
    for j, angle in around.items():
        marks += _base(result.names[j], j, centre, angle, upright)
    for t, place in inside.items():
        marks += _target(result, t, centre, place, radius)
    return Drawing(title, wide, tall, (*marks, *_legend(most, tall)), part="dependencies")


def _turn(share: float) -> complex:
    """A direction, from the top clockwise."""
    angle = 2 * math.pi * share - math.pi / 2
    return complex(math.cos(angle), math.sin(angle))


def _inside(result: DependencyMap, graph: Graph, around: dict[int, complex], radius: float) -> dict[int, complex]:
    """Where the targets stand, seen from the centre."""
    if len(graph.targets) == 1:
        return {graph.targets[0]: 0j}
    few = len(graph.bases) == len(result.names) and max(result.coef.shape) <= ALL_UP_TO
    own = few and result.targets == result.names  # a class inside, beside itself around
    count = len(graph.targets)
    return {t: INNER * (around[t] if own else radius * _turn((k + 0.5) / count)) for k, t in enumerate(graph.targets)}


def _arc(result: DependencyMap, t: int, j: int, centre: complex, start: complex, end: complex, most: float) -> Line:
    value = float(result.coef[t, j])
    tip = f"{result.targets[t]} ≈ … {'+' if value > 0 else '−'} {abs(value):.3f}·{result.names[j]} …"
    if result.frequency is not None:
        tip += f"\nchosen in {result.frequency[t, j]:.0%} of the bootstrap rounds"
    begin, bend, end = centre + start, centre + 0.62 * end, centre + end
    colour, width = PLUS if value > 0 else MINUS, _thick(abs(value) / most)
    keys: dict[str, Any] = {"role": "arc", "keys": (("target", t), ("base", j))}
    # with an opacity of 0.9 the colours keep a contrast of 3 to white
    look: dict[str, Any] = {"opacity": 0.9, "bend": (bend.real, bend.imag), "tip": tip, **keys}
    return Line(begin.real, begin.imag, end.real, end.imag, colour, width, **look)


def _base(name: str, j: int, centre: complex, place: complex, upright: bool) -> list[Mark]:
    keys: dict[str, Any] = {"role": "base", "keys": (("base", j),)}
    angle, size = place / abs(place), NAME if upright else TURNED
    anchor, turn = "start" if angle.real >= 0 else "end", 0.0
    if upright:
        label = centre + place + 12 * angle + 5j
        if abs(angle.real) < 0.05:
            anchor, label = "middle", label + 10j * angle.imag
    else:
        lean = angle if angle.real >= 0 else -angle
        turn = math.degrees(math.atan2(lean.imag, lean.real))
        label = centre + place + 10 * angle + 5j * lean  # 5 below the line from the centre
    text, place = shortened(name, size, LABEL), centre + place
    return [
        Circle(place.real, place.imag, 4.5, PALE, name, **keys),
        Text(label.real, label.imag, text, size, anchor, turn=turn, tip=name, **keys),
    ]


def _target(result: DependencyMap, t: int, centre: complex, place: complex, radius: float) -> list[Mark]:
    keys: dict[str, Any] = {"role": "target", "keys": (("target", t),)}
    name, tip = result.targets[t], f"{result.targets[t]}: relative error {result.columns['rel_error'][t]:.2f}"
    x, y = (centre + place).real, (centre + place).imag
    if place == 0:  # the only one: its name on a plate, the arcs come from under it
        label = shortened(name, 16, 280)
        half = text_width(label, 16) / 2 - 3
        plate = Line(x - half, y, x + half, y, INK, 30, bend=(x, y), tip=tip, **keys)
        return [plate, Text(x, y + 5.5, label, 16, "middle", True, "#fff", tip=tip, **keys)]
    inward = (
        abs(place.real) > 0.6 * INNER * radius
    )  # at the sides there is room towards the centre, above and below outwards
    anchor = "end" if (place.real > 0) == inward else "start"
    label = shortened(name, 16.5, abs(place.real) - 16 if inward else LABEL)  # bold is wider
    return [
        Circle(x, y, 6.5, INK, tip, "#fff", **keys),
        Text(x + (10 if anchor == "start" else -10), y + 5, label, NAME, anchor, True, tip=tip, halo=4, **keys),
    ]


def _thick(share: float) -> float:
    """Width of a line, from its share of the largest coefficient."""
    return 1.0 + 8.0 * share


def _legend(most: float, tall: float) -> list[Mark]:
    """Colours and widths, in the lower left corner."""
    marks: list[Mark] = []
    kinds = [(PLUS, 5.0, "added", INK), (MINUS, 5.0, "subtracted", INK)]
    widths = [(PALE, _thick(share), f"{share * most:.2g}", PALE) for share in (0.1, 0.5, 1.0)]
    word = "coefficient:"
    marks.append(Text(16, tall - 13, word, LEGEND, colour=PALE))
    for row, x, y in ((kinds, 16.0, tall - 42), (widths, 26.0 + text_width(word, LEGEND), tall - 18)):
        for colour, width, text, ink in row:
            marks.append(Line(x + 3, y, x + 23, y, colour, width, bend=(x + 13, y)))
            marks.append(Text(x + 33, y + 5, text, LEGEND, colour=ink))
            x += 50 + text_width(text, LEGEND)
    return marks
