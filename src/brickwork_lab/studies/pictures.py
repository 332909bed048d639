"""The pictures of the README and of docs, from the files in studies/results: rows that are named here, and nothing else.

    python -m brickwork_lab.studies.pictures studies/results docs/images

writes one SVG per picture (`make results`).
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from brickwork.report.bars import Bar, draw_bars
from brickwork.report.chart import heading
from brickwork.report.drawing import PALE, Drawing, Mark, Picture, Text
from brickwork.report.heat import shade, shade_bar
from brickwork.report.image_grid import png_of
from brickwork_lab.studies.route_sharing import LEVELS
from brickwork_lab.studies.scaling_curves import draw_scaling

VGG, HALF = "public-vgg16, 50% of the multiply-adds", "head held: "
LONG = "lenet, 1000 steps of 0.1: the first task, added up − in sequence"
RATES = ("1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1")
#: file: title, study, bars: (words, row, its column, colour)
PICTURES: dict[str, tuple[str, str, tuple[tuple[str, str, str, int], ...]]] = {
    "smaller": (
        "Half of the multiply-adds",
        "prune",
        (
            ("the whole network", f"{VGG}, rebuild", "whole", 2),
            ("half, nothing trained", f"{VGG}, rebuild", "ours", 0),
            ("half, two minutes of polish", f"{VGG}, rebuild, polished 2 min on 40000 images", "ours", 0),
            (
                "half, Torch-Pruning, not trained",
                f"{VGG}, Torch-Pruning l2, the same ratio in every layer, new statistics",
                "ours",
                1,
            ),
        ),
    ),
    "joined": (
        "Parts of two networks as one",
        "assemble",
        (
            ("whole networks side by side", "cifar10 resnet50 all, 25% of the parameters", "whole", 2),
            ("a half of each, joined", "cifar10 resnet50 all, 50% of the parameters", "ours", 0),
            ("a quarter of each, joined", "cifar10 resnet50 all, 25% of the parameters", "ours", 0),
        ),
    ),
    "merged": (
        "Two tasks in one network",
        "forgetting",
        (
            ("a network for each", f"{HALF}B alone", "ours", 2),
            ("merged, a head for each", f"{HALF}responses matched, own heads", "ours", 0),
            ("merged by match", f"{HALF}responses matched", "ours", 0),
            ("averaged", f"{HALF}mean, new statistics", "ours", 1),
        ),
    ),
    "cancelled": (
        "A first task, kept or lost",
        "cancel",
        (
            ("trained on it alone", LONG, "alone", 2),
            ("then on the second task", LONG, "in_sequence", 1),
            ("from one start, added up", LONG, "added_up", 0),
        ),
    ),
    "cancelled-step": (
        "The term's error, one step",
        "cancel",
        tuple((f"rate {r}", f"lenet, one step of {r}: error of the paper's term", "ours", 0) for r in RATES),
    ),
}
#: file: title, a line below it, study; of its rows those with a heat map are drawn, one below the other
HEAT_MAPS: dict[str, tuple[str, str, str]] = {
    "route-heat": (
        "Channels and classes of a public VGG-16",
        "score of every channel, 1 is the class's highest; channels in the order of the class they score highest for",
        "route-sharing",
    )
}
#: file: title, a line below it, study; its rows with a grid are drawn beside the paper's
GRIDS: dict[str, tuple[str, str, str]] = {
    "grids": (
        "Paper 1's grids: the paper's, and ours",
        "left the paper, right ours: αθ_A + βθ_B (fuse), θ₀ + αg_A + βg_B (assign), α to the right, β downwards; three seeds",
        "forgetting",
    )
}


def pictures(results: Path) -> dict[str, str]:
    """Every picture as SVG text."""
    made = {}
    for name, (title, study, wanted) in PICTURES.items():
        rows: dict[str, dict[str, Any]] = {
            row["what"]: row for row in json.loads((results / f"{study}.json").read_text(encoding="utf-8"))["rows"]
        }
        values = [(words, float(rows[what][column]), kind) for words, what, column, kind in wanted]
        bars = [Bar(words, value / 100, f"{value:.1f} %", kind) for words, value, kind in values]
        made[name] = draw_bars(title, bars).svg()
    for name, (title, note, study) in HEAT_MAPS.items():
        rows = {row["what"]: row for row in json.loads((results / f"{study}.json").read_text(encoding="utf-8"))["rows"]}
        made[name] = draw_heat(title, note, {what: row["heat"] for what, row in rows.items() if "heat" in row}).svg()
    for name, (title, note, study) in GRIDS.items():
        every = json.loads((results / f"{study}.json").read_text(encoding="utf-8"))["rows"]
        made[name] = draw_grids(title, note, [row for row in every if "paper_grid" in row]).svg()
    made["scaling"] = draw_scaling(results).svg()
    return made


def draw_heat(title: str, note: str, maps: dict[str, dict[str, str]]) -> Drawing:
    """maps: a name, and for each class a letter of LEVELS per channel.

    >>> draw_heat("t", "", {"a: b": {"cat": "aj", "dog": "ja"}}).title
    't'
    """
    marks: list[Mark] = heading(title, note)
    left, line, wide, top = 100.0, 14.0, 720.0, 96.0
    for name, lines in maps.items():
        levels = np.array([[LEVELS.index(letter) for letter in text] for text in lines.values()])
        first = levels.argmax(0)
        ordered = levels[:, np.lexsort((-levels.max(0), first))]
        colours = np.array([_rgb(k / 9) for k in range(len(LEVELS))])
        marks.append(Text(left, top - 8, name.partition(": ")[0], 13, bold=True))
        marks.append(Picture(left, top, wide, line * len(lines), png_of(colours[ordered])))
        marks += [Text(left - 8, top + line * k + 11, who, 12, "end") for k, who in enumerate(lines)]
        top += line * len(lines) + 44
    return Drawing(title, left + wide + 16, top + 34, (*marks, *shade_bar(left, top - 16, ("0", "0.5", "1"))), note)


def _rgb(value: float) -> list[int]:
    return [int(shade(value)[c : c + 2], 16) for c in (1, 3, 5)]


def draw_grids(title: str, note: str, rows: Sequence[dict[str, Any]]) -> Drawing:
    """rows: `what` is "…: table, …", with a `grid` and a `paper_grid` (β, α) in per cent over `values`.

    >>> draw_grids("t", "", [{"what": "a: b, c", "grid": [[1.0]], "paper_grid": [[2.0]], "values": [0.5]}]).title
    't'
    """
    marks: list[Mark] = heading(title, note)
    side, wide, high, across = 104.0, 252.0, 168.0, 4
    for number, row in enumerate(rows):
        x, y = 24 + wide * (number % across), 104 + high * (number // across)
        table, _, words = row["what"].partition(": ")[2].partition(", ")
        marks += [Text(x, y, table, 12, bold=True), Text(x, y + 15, words, 11, colour=PALE)]
        for k, grid in enumerate((row["paper_grid"], row["grid"])):
            cells = np.array([[_rgb(value / 100) for value in line] for line in grid])
            marks.append(Picture(x + k * (side + 8), y + 22, side, side, png_of(cells)))
    bottom = 104 + high * -(-len(rows) // across)
    return Drawing(
        title, 24 + wide * across, bottom + 50, (*marks, *shade_bar(24, bottom, ("0 %", "50 %", "100 %"))), note
    )


if __name__ == "__main__":
    for name, text in pictures(Path(sys.argv[1])).items():
        (Path(sys.argv[2]) / f"{name}.svg").write_text(text, encoding="utf-8")
