"""The pictures of the README, from the files in studies/results: bars of rows that are named here, and nothing else.

    python -m brickwork_lab.studies.pictures studies/results docs/images

writes one SVG per picture (`make results`).
"""

import json
import sys
from pathlib import Path
from typing import Any

from brickwork.report.bars import Bar, draw_bars

VGG, HALF = "public-vgg16, 50% of the multiply-adds", "head held: "
#: file: title, study, bars: (words, row, its column, colour)
PICTURES: dict[str, tuple[str, str, tuple[tuple[str, str, str, int], ...]]] = {
    "smaller": (
        "Half of the multiply-adds",
        "prune",
        (
            ("the whole network", f"{VGG}, rebuild", "whole", 2),
            ("half, nothing trained", f"{VGG}, rebuild", "ours", 0),
            ("half, two minutes of polish", f"{VGG}, rebuild, polished 2 min on 40000 images", "ours", 0),
            ("half, Torch-Pruning, not trained", f"{VGG}, Torch-Pruning l2, new statistics", "ours", 1),
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
    return made


if __name__ == "__main__":
    for name, text in pictures(Path(sys.argv[1])).items():
        (Path(sys.argv[2]) / f"{name}.svg").write_text(text, encoding="utf-8")
