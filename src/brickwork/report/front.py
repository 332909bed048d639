"""Accuracy against megabytes or seconds: a point per method, those that no other beats joined as the Pareto front."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from brickwork.report.chart import RULE, SERIES, Axis, Panel, dot, heading
from brickwork.report.drawing import Drawing, Line, Mark, Text, shortened, text_width
from brickwork.report.labels import Point, Segment, place_labels
from brickwork.report.ticks import log_range, log_ticks, percent_levels, percent_range

LEFT, TOP, WIDE, HIGH, GAP = 66.0, 84.0, 624.0, 360.0, 70.0  # 760 in all: a phone does not shrink it
LONGEST = 180  # pixels of a line of a name, which has two at most
SMALL, FEW = 280.0, 6  # so few spots fit a phone


@dataclass(frozen=True)
class Cost:
    """What lies on the horizontal axis, in the words of the figure."""

    name: str
    unit: str
    under: str
    axis: str
    about: str


MEGABYTES = Cost(
    "megabytes",
    "MB",
    "average accuracy after the last task",
    "megabytes of all files, all tasks",
    "To choose how to keep many tasks: what accuracy do how many megabytes buy?\n"
    "A square is a method; up and to the left is better. Every byte that all tasks need counts: what is kept once (a trunk, a "
    "pool) and the file of each task. Large squares, joined: no other method has as few megabytes and as good an accuracy.\n",
)
SECONDS = Cost(
    "seconds",
    "s",
    "average accuracy over the tasks",
    "processor seconds of one merge",
    "To choose how to merge networks: what accuracy does how much computing buy?\n"
    "A square is a method; up and to the left is better. Seconds are of the merge itself, not of the settings tried before. "
    "Large squares, joined: no other method takes as little time and has as good an accuracy.\n",
)


@dataclass(frozen=True)
class Spot:
    name: str
    cost: float  # megabytes, or seconds
    percent: float
    tip: str


def best_of(spots: Sequence[Spot]) -> list[str]:
    """The names on the front: no other spot costs as little and has as good an accuracy, and one of both better.

    >>> best_of([Spot("a", 1, 90, ""), Spot("b", 2, 95, ""), Spot("c", 3, 94, "")])
    ['a', 'b']
    """

    def beaten(spot: Spot) -> bool:
        own = spot.cost, -spot.percent
        others = ((other.cost, -other.percent) for other in spots)
        return any(o[0] <= own[0] and o[1] <= own[1] and o != own for o in others)

    return [spot.name for spot in spots if not beaten(spot)]


def draw_spots(spots: Sequence[Spot], of: Cost = MEGABYTES) -> Drawing:
    """The spots over a logarithmic axis of what they cost; the caller adds its table."""
    front = best_of(spots)
    wide, gap = (SMALL, 16.0) if len(spots) <= FEW else (WIDE, GAP)
    low, high = log_range(spot.cost for spot in spots)
    floor, roof = percent_range(_near_the_best([spot.percent for spot in spots]))
    panel = Panel(Axis(low, high, LEFT, LEFT + wide, log=True), Axis(floor, roof, TOP + HIGH, TOP))
    marks = heading(f"Accuracy against {of.name}", of.under)
    marks += panel.levels(percent_levels(floor, roof), "{:g}%")
    marks += panel.ticks(log_ticks(low, high), room=0, lines=True)
    marks.append(panel.below(of.axis, 13))
    places = {spot.name: (panel.x(spot.cost), panel.y.clip(spot.percent)) for spot in spots}
    best = sorted((spot for spot in spots if spot.name in front), key=lambda spot: spot.cost)
    joins = [(*places[a.name], *places[b.name]) for a, b in pairwise(best)]
    marks += [Line(*join, RULE, 1.5) for join in joins]
    sizes = {spot.name: 11.0 if spot.name in front else 7.0 for spot in spots}
    ordered = sorted(spots, key=lambda spot: (spot.name not in front, -spot.percent))
    labels = {s.name: s.name if s.percent >= floor else f"{s.name}, {s.percent:.1f}% ↓" for s in ordered}
    points = {name: Point(*places[name], sizes[name], *_extent(text)) for name, text in labels.items()}
    marks += _names(points, labels, joins, front, LEFT + wide + gap)
    for number, spot in enumerate(spots):
        name, *numbers = spot.tip.split("\n")
        tip = "\n".join([f"{name}, on the front" if spot.name in front else name, *numbers])
        marks.append(dot(*places[spot.name], sizes[spot.name], SERIES[number % len(SERIES)], tip))
    top, light = max(best, key=lambda spot: spot.percent), best[0]
    so = f"Most accurate is {top.name}, {top.percent:.1f} % at {top.cost:.3g} {of.unit}"
    if light is not top:
        so += f"; smallest on the front is {light.name}, {light.percent:.1f} % at {light.cost:.3g} {of.unit}"
    size = LEFT + wide + gap, TOP + HIGH + 56
    return Drawing(f"Accuracy against {of.name}", *size, tuple(marks), f"{of.about}{so}.")


def _near_the_best(percents: Sequence[float]) -> list[float]:
    """Without values so far below that they would press all others together; those are drawn on the lower edge.

    >>> _near_the_best([95, 94, 93, 88, 32]), _near_the_best([90, 60, 30])
    ([95, 94, 93, 88], [90, 60, 30])
    """
    best = max(percents)
    room = max(10.0, 4 * (best - median(percents)))
    return [value for value in percents if best - value <= room]


def _names(
    points: Mapping[str, Point], labels: Mapping[str, str], lines: Sequence[Segment], front: Sequence[str], right: float
) -> list[Mark]:
    """Names beside their spots, those on the front first; where no place is free near by, the tip and the table tell."""
    frame = (LEFT, TOP - 14, right, TOP + HIGH)
    marks: list[Mark] = []
    for name, label in place_labels(points, frame, lines, first=front).items():
        if label.line:
            marks.append(Line(*label.line, RULE, 0.8))
        for k, line in enumerate(_two_lines(labels[name])):
            marks.append(Text(label.x, label.y + 13 * k, line, 12, label.anchor))
    return marks


def _extent(name: str) -> tuple[float, int]:
    """How wide a name is, and on how many lines it stands."""
    lines = _two_lines(name)
    return max(text_width(line, 12) for line in lines), len(lines)


def _two_lines(name: str) -> list[str]:
    """A name on one line or two, broken between words; what is longer loses its middle.

    >>> _two_lines("one network"), _two_lines("pool: weight search, free for 60 % of the run")
    (['one network'], ['pool: weight search,', 'free for 60 % of the run'])
    """
    if text_width(name, 12) <= LONGEST:
        return [name]
    words = name.split(" ")
    breaks = [(" ".join(words[:k]), " ".join(words[k:])) for k in range(1, len(words))] or [(name, "")]
    best = min(breaks, key=lambda lines: max(text_width(line, 12) for line in lines))
    return [shortened(line, 12, LONGEST) for line in best if line]
