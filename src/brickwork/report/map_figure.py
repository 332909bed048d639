"""A dependency map as one figure of a report: its graph, and the equation of every class as a table."""

from __future__ import annotations

from dataclasses import dataclass

from brickwork.dependencies import DependencyMap
from brickwork.report.dependencies import DependencyPage

READING = (
    "A thick line is a class that counts for much. The smaller the relative error, the more of a class follows from the "
    "others (0: all of it, 1: nothing)."
)
TERMS = 6  # of an equation; the map has all of them


@dataclass(frozen=True)
class MapFigure:
    """The graph of a map, as a chapter shows it."""

    found: DependencyMap
    command: str = ""
    cards: tuple[tuple[str, str], ...] = ()

    @property
    def width(self) -> float:
        return DependencyPage(self.found).width

    @property
    def title(self) -> str:
        return DependencyPage(self.found).title()

    @property
    def about(self) -> str:
        page = DependencyPage(self.found)
        found = " ".join(f"{line[0].upper()}{line[1:]}." for line in self.found._lines())
        return f"{page.caption(clickable=False)} {READING} {found}"

    @property
    def head(self) -> tuple[str, ...]:
        return ("class", "is about", "relative error")

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        errors = self.found.columns["rel_error"]
        return tuple((name, self._equation(t), f"{errors[t]:.3f}") for t, name in enumerate(self.found.targets))

    def svg(self, *, inline: bool = False) -> str:
        return DependencyPage(self.found).svg(inline=inline)

    def _equation(self, target: int) -> str:
        found, order = self.found, list(self.found._order(target))
        terms = [f"{found.coef[target, j]:+.2f}·{found.names[j]}" for j in order[:TERMS]]
        return " ".join([*terms, *(["…"] if len(order) > TERMS else [])]) or "0"
