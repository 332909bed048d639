"""Paper 1's Figures 1 to 4: accuracy of θ_i + αg and θ_i + αθ_A over α, its printed numbers and ours."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from brickwork.report.chart import BLUE, ORANGE, Axis, Panel, heading, legend
from brickwork.report.drawing import PALE, Drawing, Line, Mark, Text

Row = dict[str, Any]
STARTS = "#a9c8e4"  # one curve for each θ_i, behind their mean
#: figure: (study, how its rows begin behind the scale)
FIGURES = {
    "Figure 1: g on random θ_i": ("gradient-assignment", "random θ_i + αg"),
    "Figure 2: g on trained θ_i": ("gradient-assignment", "trained θ_i + αg"),
    "Figure 3: θ_A and random θ_i": ("fusion", "random θ_i + αθ_A"),
    "Figure 4: θ_A and trained θ_i": ("fusion", "trained θ_i + αθ_A"),
}
SCALES = ("small, train", "medium, train", "large, train", "large, test")
WIDE, HIGH, LEFT, TOP = 258.0, 236.0, 52.0, 176.0


def draw_scaling(results: Path) -> Drawing:
    """Four figures, one below the other, each of four panels: the scales on training images, the largest on test images."""
    rows: dict[str, list[Row]] = {
        study: json.loads((results / f"{study}.json").read_text(encoding="utf-8"))["rows"]
        for study in dict.fromkeys(study for study, _ in FIGURES.values())
    }
    title = "What was learned, added to other networks"
    note = "accuracy over α; the paper prints one panel of each figure as a table, the others as curves without numbers"
    marks: list[Mark] = heading(title, note)
    words = (("ours, mean of all θ_i and three seeds", BLUE), ("ours, one θ_i", STARTS), ("the paper's table", ORANGE))
    marks += legend(words, 24, 84, 24 + WIDE * len(SCALES), longest=300)[0]
    for line, (figure, (study, what)) in enumerate(FIGURES.items()):
        marks.append(Text(24, TOP + HIGH * line - 40, figure, 14, bold=True))
        for column, scale in enumerate(SCALES):
            left, top = LEFT + WIDE * column, TOP + HIGH * line
            panel = Panel(Axis(0.1, 40, left, left + WIDE - 62, log=True), Axis(0, 1, top + HIGH - 104, top))
            marks += [
                panel.title(scale, 12),
                *panel.levels((0, 0.5, 1), "{:g}"),
                *panel.ticks((0.1, 1, 10, 40), "α = {:g}"),
            ]
            marks += _curves(panel, _points(rows[study], f"{scale}: {what}, α="))
    return Drawing(title, LEFT + WIDE * len(SCALES), TOP + HIGH * len(FIGURES), tuple(marks), note)


def _points(rows: list[Row], begins: str) -> list[tuple[float, Row]]:
    """The rows of one curve by their α, those that the axis shows."""
    found = [
        (float(re.sub(r"[^0-9.]", "", row["what"][len(begins) :])), row)
        for row in rows
        if row["what"].startswith(begins)
    ]
    return sorted((point for point in found if 0.1 <= point[0] <= 40), key=lambda point: point[0])


def _curves(panel: Panel, points: list[tuple[float, Row]]) -> list[Mark]:
    if not points:
        return [Text((panel.x.start + panel.x.end) / 2, panel.y(0.5), "not measured", 12, "middle", colour=PALE)]
    marks: list[Mark] = []
    for k in range(min(len(row["each"]) for _, row in points)):
        line = [(panel.x(alpha), panel.y.clip(row["each"][k])) for alpha, row in points]
        marks += [Line(*a, *b, STARTS) for a, b in pairwise(line)]
    marks += panel.curve(
        [(alpha, row["ours"], f"α = {alpha:g}: {row['ours']:.3f}") for alpha, row in points], BLUE, size=5
    )
    printed = [
        (alpha, row["paper"], f"paper, α = {alpha:g}: {row['paper']:g}") for alpha, row in points if row["paper"]
    ]
    return marks + panel.curve(printed, ORANGE, size=5)
