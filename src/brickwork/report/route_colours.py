"""Which colour a channel has in a picture of routes, by the classes that use it."""

from collections import Counter
from dataclasses import dataclass

from brickwork.bricks.route_sets import MOST_CLASSES, RouteLayer, Routes
from brickwork.report.drawing import INK
from brickwork.words import counted

# Okabe and Ito's colours, told apart by colour-blind eyes; shared is darker and unused lighter than all of them.
OWN = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7")
SHARED, UNUSED = "#2f3542", "#e4e7eb"
KEPT = "#1b1f25"  # as good as the ink of the page, but a dark screen leaves it as it is
STEPS = ("#a3cdec", "#6aaede", "#3a8ac7", "#1a62a0", "#0a3560")  # by how many classes use a channel


@dataclass(frozen=True)
class Group:
    """Channels of one colour."""

    label: str
    colour: str

    @property
    def ink(self) -> str:
        """A text colour that reads on the group's own, on a light page and on a dark one."""
        if self.colour == UNUSED:
            return INK  # a dark screen exchanges both
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return "#fff" if 0.299 * red + 0.587 * green + 0.114 * blue < 130 else KEPT


class Scheme:
    """Groups in drawing order: for two classes only a, shared, only b, neither; for many, by the number of users."""

    def __init__(self, routes: Routes) -> None:
        self.classes = names = routes.classes
        none = Group({1: "not on it", 2: "neither"}.get(len(names), "on no route"), UNUSED)
        self.ranges: list[tuple[int, int]] = []
        if len(names) == 1:
            self.groups = [Group(f"on the route of {names[0]}", OWN[0]), none]
        elif len(names) == 2:
            a, b = (Group(f"only {name}", colour) for name, colour in zip(names, OWN, strict=False))
            self.groups = [a, Group("shared", SHARED), b, none]
        elif len(names) <= MOST_CLASSES:
            own = [Group(f"only {name}", colour) for name, colour in zip(names, OWN, strict=False)]
            self.groups = [*own, Group("shared by two or more", SHARED), none]
        else:
            count, half = len(names), len(names) // 2
            self.ranges = [(1, 1), (2, 2), (3, half), (half + 1, count - 1), (count, count)]
            middle = (f"of {a}–{b}" if a < b else f"of {a}" for a, b in self.ranges[2:4])
            labels = ["on the route of one class", "of two", *middle, f"of all {count}"]
            self.groups = [*(Group(*pair) for pair in zip(labels, STEPS, strict=True)), none]

    def of(self, users: tuple[str, ...]) -> int:
        """The group of a channel that is on the routes of these classes."""
        if not users:
            return len(self.groups) - 1
        if self.ranges:
            return next(i for i, (low, high) in enumerate(self.ranges) if low <= len(users) <= high)
        if len(users) > 1:
            return 1 if len(self.classes) == 2 else len(self.groups) - 2
        own = self.classes.index(users[0])
        return 2 * own if len(self.classes) == 2 else own

    def counts(self, layer: RouteLayer) -> list[int]:
        """How many channels of a layer each group has."""
        counts = Counter(map(self.of, layer.users()))
        return [counts[number] for number in range(len(self.groups))]


def footer(routes: Routes, layer: RouteLayer) -> str:
    """The percentage under a column: how much is shared; for a single class, how much is on its route."""
    one = len(routes.classes) == 1
    return percent(routes.share(layer.name, routes.classes[0]) if one else routes.sharing(layer.name))


def percent(share: float) -> str:
    """Two digits or so, and never 0 or 100 for what is not quite.

    >>> [percent(share) for share in (0, 0.0001, 0.048, 0.125, 0.996, 2047 / 2048, 1)]
    ['0%', '0.1%', '4.8%', '12%', '99.6%', '99.9%', '100%']
    """
    if share in (0, 1):
        return f"{share:.0%}"
    value = min(max(100 * share, 0.1), 99.9)
    return f"{value:.0f}%" if 10 <= value <= 99 else f"{value:.1f}%"


def layer_tip(routes: Routes, layer: RouteLayer) -> str:
    """What a column is, for a tooltip."""
    lines = [f"{layer.label}: {counted(layer.size, 'channel')}"]
    if len(layer.made_by) > 1:
        more = ", …" if len(layer.made_by) > 8 else ""
        lines.append(f"written by {', '.join(layer.made_by[:8])}{more}")
    for name in routes.classes[:MOST_CLASSES]:
        lines.append(f"{name}: {len(layer.on[name])} on its route ({routes.share(layer.name, name):.0%})")
    if len(routes.classes) > 1:
        shared, either = routes.shared(layer.name), routes.either(layer.name)
        lines.append(f"shared: {len(shared)} of {len(either)} on any route")
    if layer.fixed:
        lines.append(f"{layer.fixed} are on every route because no cut can remove them")
    return "\n".join(lines)
