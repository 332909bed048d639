"""The picture of a dependency map: one page with the graph, small multiples, a scatter and a table (paper 5)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from brickwork.dependencies import DependencyMap, LogitGram
from brickwork.errors import BadData, RequestError
from brickwork.report.book import page, write_page
from brickwork.report.dependency_graph import LEGEND, MOST_TARGETS, Graph, best, choose_graph, draw_graph
from brickwork.report.drawing import Drawing, suffix_of
from brickwork.words import counted

SUFFIXES = (".html", ".svg")
MULTIPLES = 12  # classes with bars of their coefficients
BINS = 24  # of the classes with coefficient 0, by correlation
TERMS = 6  # of an equation in a report's table; the map has all of them
MAP_HEAD = ("class", "is about", "relative error")  # of a map in a report
FOR = "To find classes that say what others say already: such a class can be left out, or its label is tied to theirs."
READING = (
    "A logit is the network's raw score for a class. A thick line is a class that counts for much in another's logit, blue "
    "added, orange subtracted; the legend has the coefficients. A relative error of 0 says that a class follows from the "
    "others wholly, 1 not at all."
)


def draw_dependencies(
    result: DependencyMap, *, classes: Sequence[str | int] = (), moments: LogitGram | None = None
) -> DependencyPage:
    """A map as a page (.html) or as its graph alone (.svg).

    classes: the targets inside the graph, at most 16; the page opens at one if it is the only one. Otherwise all of a
    few classes, or the ten with the smallest relative error. moments: of the logits (`logit_gram`), for the scatter
    of correlation against coefficient (Figure 3); a map does not hold them.

    >>> rng = np.random.default_rng(0)
    >>> f = rng.normal(size=(300, 4)); f[:, 3] = f[:, 0] - f[:, 1]
    >>> result = DependencyMap.fit(f, f.argmax(1), names=["cat", "dog", "owl", "fox"], max_dependencies=2)
    >>> page = draw_dependencies(result, classes=["fox"])
    >>> page.html()[:15], page.svg()[:4], page.data["names"][page.data["links"][3][0]]
    ('<!doctype html>', '<svg', 'cat')
    """
    if not isinstance(result, DependencyMap):
        raise RequestError(f"a DependencyMap can be drawn, not a {type(result).__name__}.")
    chosen = tuple(result.row_of(name) for name in classes)
    if len(set(chosen)) > MOST_TARGETS:
        raise RequestError(f"{len(set(chosen))} classes are too many inside the graph; {MOST_TARGETS} fit.")
    if moments is not None and moments.cross.shape != result.coef.shape:
        have, want = (f"{s[1]} classes for {s[0]} targets" for s in (moments.cross.shape, result.coef.shape))
        raise BadData(f"the logits have {have}; the map has {want}. Give the logits it was fitted on.")
    return DependencyPage(result, chosen, moments)


def map_figure(result: DependencyMap, command: str = "") -> Drawing:
    """A map as one figure of a report: its graph, and the equation of every class as a table."""
    shown = DependencyPage(result)
    closest = int(result.columns["rel_error"].argmin())
    so = (
        f"{result.targets[closest]} follows most from the others, with a relative error of "
        f"{result.columns['rel_error'][closest]:.2f}{_replaced(result)}"
    )
    rows = tuple(
        (name, _equation(result, t), f"{result.columns['rel_error'][t]:.3f}") for t, name in enumerate(result.targets)
    )
    drawing = draw_graph(
        result, shown.graph, f"Which of {counted(len(result.targets), 'class')} follow from others", headed=True
    )
    return replace(
        drawing,
        about=f"{FOR}\n{shown.caption(clickable=False)} {READING}\n{so}",
        head=MAP_HEAD,
        rows=rows,
        command=command,
    )


def _replaced(result: DependencyMap) -> str:
    """What it costs to do without one class, where it was measured."""
    told = result.summary()
    if "positive_after" not in told:
        return "."
    before, after = told["positive_before"], told["positive_after"]
    worth = "none should be left out here" if after < before - 0.05 else "such a class can be left out"
    return (
        f". With one class's logit computed from the others' instead of its own, {after:.1%} of its images are right instead "
        f"of {before:.1%} (mean over the classes): {worth}."
    )


def _equation(result: DependencyMap, target: int) -> str:
    order = result._order(target)
    terms = [f"{result.coef[target, j]:+.2f}·{result.names[j]}" for j in order[:TERMS]]
    return " ".join([*terms, *(["…"] if len(order) > TERMS else [])]) or "0"


@dataclass(frozen=True)
class DependencyPage:
    """What `draw_dependencies` made; the same map gives the same bytes."""

    result: DependencyMap
    classes: tuple[int, ...] = ()
    moments: LogitGram | None = field(default=None, repr=False)

    @cached_property
    def graph(self) -> Graph:
        return choose_graph(self.result, self.classes)

    @cached_property
    def drawing(self) -> Drawing:
        kind = "within one network" if self.result.facts.get("within") else "between two networks"
        title = f"Neural dependencies of {counted(len(self.result.targets), 'class')} {kind}"
        return draw_graph(self.result, self.graph, title)

    @cached_property
    def data(self) -> dict[str, Any]:
        """What the page's scripts read: JSON values, numbers to six digits. links: [class, coefficient, class, …]."""
        result = self.result
        order = [result._order(t) for t in range(len(result.targets))]
        often = result.frequency
        return {
            "within": bool(result.facts.get("within")),
            "names": list(result.names),
            "targets": list(result.targets),
            "links": [[x for j in row for x in (int(j), _short(result.coef[t, j]))] for t, row in enumerate(order)],
            "often": None if often is None else [_list(often[t, row], 3) for t, row in enumerate(order)],
            "columns": {key: _list(column) for key, column in sorted(result.columns.items())},
            "plain": result.facts.get("screening") is not None,
            "best": best(result, MULTIPLES),
            "start": self.classes[0] if len(set(self.classes)) == 1 else None,
            "scatter": None if self.moments is None else _scatter(result, self.moments, order),
        }

    def svg(self) -> str:
        """The graph alone, without scripts."""
        return self.drawing.svg()

    def html(self) -> str:
        """One page that needs nothing else and opens from a file."""
        return page(
            "map.html",
            title=self.drawing.title,
            about=self.result._lines(),
            caption=self.caption(),
            graph=self.drawing.svg(inline=True),
            least=math.ceil(self.drawing.width * 11 / LEGEND) + 1,  # letters of 11 pixels; a browser rounds heights
            data=_for_script(self.data),
        )

    def save(self, path: str | Path, *, force: bool = True) -> Path:
        """Write .html or .svg, whole or not at all."""
        text = self.svg() if check_suffix(path) == ".svg" else self.html()
        return write_page(Path(path), text, force=force)

    def _repr_svg_(self) -> str:
        return self.svg()

    def caption(self, *, clickable: bool = True) -> str:
        """What stands where in the graph."""
        inside, each = len(self.graph.targets), self.graph.each
        if self.classes:
            what = "The class asked for is" if inside == 1 else f"The {inside} classes asked for are"
        elif inside == len(self.result.targets):
            what = "Every class is" if inside > 1 else "The class is"
        else:
            what = f"The {inside} of {len(self.result.targets)} classes with the smallest relative error are"
        longest = int((self.result.coef != 0).sum(1).max(initial=0))
        most = f", at most the {each} strongest each" if longest > each else ""
        click = " Click a class for its equation." if clickable else ""
        return f"{what} inside, around are the classes it takes to write them{most}.{click}"


def check_suffix(path: str | Path) -> str:
    """The kind of picture a file name asks for."""
    return suffix_of(path, SUFFIXES, "a dependency map is drawn to .html (the page) or .svg (its graph).")


def _scatter(result: DependencyMap, moments: LogitGram, order: list[np.ndarray]) -> dict[str, Any]:
    """|E f_i f_j| of every link; the pairs without a coefficient are counted by correlation, or they would be 10⁶."""
    size, rest = np.abs(moments.cross), result.coef == 0
    if result.facts.get("within") or (result.names == result.targets and not result.facts["options"].get("own")):
        np.fill_diagonal(rest, False)  # a class is no candidate for itself
    candidates = rest | (result.coef != 0)
    top = float(size[candidates].max(initial=0)) or 1.0
    tops = [float(row[own].max(initial=0)) or 1.0 for row, own in zip(size, candidates, strict=True)]
    return {
        "rows": moments.rows,
        "links": [_list(size[t, row], 4) for t, row in enumerate(order)],
        "tops": list(map(_short, tops)),
        "zeros": [_counts(size[t][rest[t]], tops[t]) for t in range(len(size))],
        "top": _short(top),
        "zero": _counts(size[rest], top),
    }


def _counts(values: np.ndarray, top: float) -> list[int]:
    return [int(n) for n in np.histogram(values, BINS, (0.0, top))[0]]


def _short(value: float, digits: int = 6) -> float | None:
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def _list(values: np.ndarray, digits: int = 6) -> list[float | None]:
    return [_short(float(value), digits) for value in values]


def _for_script(value: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever the classes are called."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
