"""The graph of a dependency map as SVG (paper 5, Figure 4): targets inside, the classes they are made of around."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from brickwork.dependencies import DependencyMap
from brickwork.report.drawing import INK, PALE, shortened, text_width

PLUS, MINUS = "#0072b2", "#d55e00"  # blue and vermilion: told apart by every kind of colour vision
MOST_TARGETS, USUAL, ALL_UP_TO = 16, 10, 16  # inside at most; unless told; with so few classes all of them
ARCS = 96  # in the whole picture
RADIUS, INNER, LABEL = 300.0, 152.0, 162.0
#: letters of classes around, turned outwards, and of the legend; none is smaller than the last
NAME, TURNED, LEGEND = 15.0, 14.0, 14.0
SEEN = 0.9  # opacity of arcs: their colours keep a contrast of 3 to white
RING = "#8c959f"
UPRIGHT = 24  # so many names around stay horizontal; more are turned outwards


@dataclass(frozen=True)
class Graph:
    """What is drawn: targets inside, bases around in this order, and the links (target, base) between them."""

    targets: tuple[int, ...]
    bases: tuple[int, ...]
    links: tuple[tuple[int, int], ...]
    each: int  # links of a target at most


def choose_graph(found: DependencyMap, classes: Sequence[int] = ()) -> Graph:
    """The targets asked for, else all of a few classes, else those the others explain best."""
    few = max(found.coef.shape) <= ALL_UP_TO
    chosen = list(dict.fromkeys(classes)) or (list(range(len(found.targets))) if few else best(found, USUAL))
    each = max(3, ARCS // len(chosen))
    links = [(t, int(j)) for t in chosen for j in found._order(t)[:each]]
    if few:
        return Graph(tuple(chosen), tuple(range(len(found.names))), tuple(links), each)
    # A base stands by the target that needs it most, so that arcs hardly cross.
    used = sorted({j for _, j in links})
    strength = np.abs(found.coef[np.ix_(chosen, used)])
    owner = strength.argmax(0) if used else np.zeros(0, int)
    bases: list[int] = []
    for k in range(len(chosen)):
        mine = sorted((i for i in range(len(used)) if owner[i] == k), key=lambda i: -strength[k, i])
        bases += [used[i] for i in (*mine[1::2][::-1], *mine[::2])]  # the strongest in the middle
    return Graph(tuple(chosen), tuple(bases), tuple(links), each)


def best(found: DependencyMap, count: int) -> list[int]:
    """Classes with dependencies, the smallest relative error first; those without come last."""
    error = np.where((found.coef != 0).any(1), found.columns["rel_error"], np.inf)
    return [int(t) for t in np.argsort(error, kind="stable")[:count]]


def draw_graph(found: DependencyMap, graph: Graph, *, title: str, inline: bool = False) -> str:
    """SVG text; inline: for a page, which needs neither the name space nor a fixed size."""
    upright = len(graph.bases) <= UPRIGHT
    wide, ring, tall = _measures(found, graph)
    box = f'viewBox="0 0 {wide} {tall}"'
    if not inline:
        box = f'xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{tall}" {box}'
    around = {j: _turn(i / len(graph.bases)) for i, j in enumerate(graph.bases)}
    inside = _inside(found, graph, around)
    most = float(np.abs(found.coef).max(initial=0)) or 1.0
    centre = f'<g transform="translate({wide / 2:g} {ring / 2:g})">'
    parts = [
        f'<svg class="graph" {box} role="img" font-family="system-ui,sans-serif" fill="{INK}">',
        f"<title>{_text(title)}</title>",
        "" if inline else '<rect width="100%" height="100%" fill="#fff"/>',
        f'{centre}<circle r="{RADIUS:g}" fill="none" stroke="{RING}"/>',
        f'<g fill="none" stroke-linecap="round" stroke-opacity="{SEEN}">',
    ]
    for t, j in sorted(graph.links, key=lambda link: abs(found.coef[link])):  # the strongest on top
        parts.append(_arc(found, t, j, inside[t], around[j], most))
    parts.append("</g>")
    parts += [_base(found, j, angle, upright) for j, angle in around.items()]
    parts += [_target(found, t, place) for t, place in inside.items()]
    return "\n".join([*filter(None, parts), "</g>", _legend(most, tall), "</svg>"]) + "\n"


def graph_width(found: DependencyMap, graph: Graph) -> int:
    """How wide the picture is; it can shrink to 11 / LEGEND of that before its letters are smaller than 11 pixels."""
    return _measures(found, graph)[0]


def _measures(found: DependencyMap, graph: Graph) -> tuple[int, int, int]:
    """Width, height of the ring with its names, and height of all of it: names that stay upright leave no corner free."""
    upright = len(graph.bases) <= UPRIGHT
    size = NAME if upright else TURNED
    longest = min(LABEL, max((text_width(found.names[j], size) for j in graph.bases), default=0.0))
    wide = math.ceil(2 * (RADIUS + max(longest, 20) + 16))
    if not upright:
        return wide, wide, wide
    ring = math.ceil(2 * (RADIUS + 34))
    return wide, ring, ring + 48


def _turn(share: float) -> float:
    """An angle, from the top clockwise."""
    return 2 * math.pi * share - math.pi / 2


def _inside(found: DependencyMap, graph: Graph, around: dict[int, float]) -> dict[int, tuple[float, float]]:
    if len(graph.targets) == 1:
        return {graph.targets[0]: (0.0, 0.0)}
    few = len(graph.bases) == len(found.names) and max(found.coef.shape) <= ALL_UP_TO
    own = few and found.targets == found.names  # a class inside, beside itself around
    return {
        t: _at(INNER, around[t] if own else _turn((k + 0.5) / len(graph.targets))) for k, t in enumerate(graph.targets)
    }


def _at(radius: float, angle: float) -> tuple[float, float]:
    return radius * math.cos(angle), radius * math.sin(angle)


def _arc(found: DependencyMap, t: int, j: int, start: tuple[float, float], angle: float, most: float) -> str:
    value = float(found.coef[t, j])
    (x, y), (bend_x, bend_y) = _at(RADIUS, angle), _at(0.62 * RADIUS, angle)
    colour, width = PLUS if value > 0 else MINUS, _thick(abs(value) / most)
    path = f"M{start[0]:.1f} {start[1]:.1f}Q{bend_x:.1f} {bend_y:.1f} {x:.1f} {y:.1f}"
    tip = f"{found.targets[t]} ≈ … {'+' if value > 0 else '−'} {abs(value):.3f}·{found.names[j]} …"
    if found.frequency is not None:
        tip += f"\nchosen in {found.frequency[t, j]:.0%} of the bootstrap rounds"
    marks = f'class="t arc" data-target="{t}" data-base="{j}"'
    return f'<path {marks} d="{path}" stroke="{colour}" stroke-width="{width:.2f}"><title>{_text(tip)}</title></path>'


def _base(found: DependencyMap, j: int, angle: float, upright: bool) -> str:
    x, y = _at(RADIUS, angle)
    size = NAME if upright else TURNED
    label = _text(shortened(found.names[j], size, LABEL))
    if upright:
        lean = math.cos(angle)
        anchor = "middle" if abs(lean) < 0.05 else "start" if lean > 0 else "end"
        lx, ly = _at(RADIUS + 12, angle)
        ly += 5 + (10 * math.sin(angle) if anchor == "middle" else 0)
        place = f'x="{lx:.1f}" y="{ly:.1f}"'
    else:
        right = math.cos(angle) >= 0
        anchor = "start" if right else "end"
        degrees = math.degrees(angle) + (0 if right else 180)
        along = (RADIUS + 10) * (1 if right else -1)
        place = f'transform="rotate({degrees:.2f})" x="{along:g}" y="5"'
    mark = f'class="t base" data-base="{j}"'
    tip = f"<title>{_text(found.names[j])}</title>"
    return (
        f'<circle {mark} cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{PALE}">{tip}</circle>'
        f'<text {mark} {place} font-size="{size:g}" text-anchor="{anchor}">{tip}{label}</text>'
    )


def _target(found: DependencyMap, t: int, place: tuple[float, float]) -> str:
    x, y = place
    error = found.columns["rel_error"][t]
    tip = f"<title>{_text(f'{found.targets[t]}: relative error {error:.2f}')}</title>"
    mark = f'class="t target" data-target="{t}"'
    if x == y == 0:  # the only one: its name on a plate, the arcs come from under it
        label = shortened(found.targets[t], 16, 280)
        half = text_width(label, 16) / 2 + 12
        return (
            f'<rect {mark} x="{-half:.1f}" y="-15" width="{2 * half:.1f}" height="30" rx="15" fill="{INK}">{tip}</rect>'
            f'<text {mark} y="5.5" font-size="16" font-weight="600" text-anchor="middle" fill="#fff">{tip}'
            f"{_text(label)}</text>"
        )
    inward = abs(x) > 0.6 * INNER  # at the sides there is room towards the centre, above and below outwards
    anchor = "end" if (x > 0) == inward else "start"
    label = shortened(found.targets[t], 16.5, abs(x) - 16 if inward else LABEL)  # bold is wider
    lx = x + (10 if anchor == "start" else -10)
    return (
        f'<circle {mark} cx="{x:.1f}" cy="{y:.1f}" r="6.5" fill="{INK}" stroke="#fff" stroke-width="1.5">{tip}</circle>'
        f'<text {mark} x="{lx:.1f}" y="{y + 5:.1f}" font-size="{NAME:g}" font-weight="600" text-anchor="{anchor}" '
        f'paint-order="stroke" stroke="#fff" stroke-width="4" stroke-linejoin="round">{tip}{_text(label)}</text>'
    )


def _thick(share: float) -> float:
    """Width of a line, of the largest coefficient's share."""
    return 1.0 + 8.0 * share


def _legend(most: float, tall: float) -> str:
    """Colours and widths, in the lower left corner."""
    lines: list[str] = []
    rows = (
        [(PLUS, 5.0, "added"), (MINUS, 5.0, "subtracted")],
        [(PALE, _thick(share), f"{share * most:.2g}") for share in (0.1, 0.5, 1.0)],
    )
    for row, y in zip(rows, (tall - 42, tall - 18), strict=True):
        x = 16.0
        for colour, thick, text in row:
            paint = f' fill="{PALE}"' if colour == PALE else ""
            lines.append(f'<path d="M{x:g} {y:g}h26" stroke="{colour}" stroke-width="{thick:.2f}"/>')
            lines.append(f'<text x="{x + 33:g}" y="{y + 5:g}" font-size="{LEGEND:g}"{paint}>{text}</text>')
            x += 50 + text_width(text, LEGEND)
    return f"<g>{''.join(lines)}</g>"


def _text(text: str) -> str:
    """Escaped, and without the characters that XML has no way to write."""
    return escape(re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text))
