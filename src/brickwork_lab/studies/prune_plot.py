"""The picture of study `prune`: accuracy against the share of multiply-adds that is left, a panel for each network.

python -m brickwork_lab.studies.prune_plot studies/results/prune.json docs/images/prune.png
"""

import json
import sys
from pathlib import Path
from typing import Any

STYLES = {
    "rebuild": ("#1b6ca8", "o", "chosen by rebuilding"),
    "polished": ("#2a9d8f", "^", "and polished, all images"),
    "polished on few": ("#7fc8bd", "^", "and polished, 3000 images"),
    "taylor": ("#8d8d8d", "s", "by Taylor score, repaired alike"),
    "Torch-Pruning taylor": ("#d1495b", "v", "Torch-Pruning, Taylor"),
    "Torch-Pruning l2": ("#edae49", "D", "Torch-Pruning, L2"),
    "Torch-Pruning taylor, the same ratio in every layer": ("#e8a0a7", "v", "Taylor, every layer alike"),
    "Torch-Pruning l2, the same ratio in every layer": ("#f3d49b", "D", "L2, every layer alike"),
}


def draw(rows: list[dict[str, Any]], out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    archs = list(dict.fromkeys(row["arch"] for row in rows))
    figure, axes = plt.subplots(2, -(-len(archs) // 2), figsize=(11, 6.4), squeeze=False)
    for axis, arch in zip(axes.flat, archs, strict=False):
        own = [row for row in rows if row["arch"] == arch and row["ours"] is not None]
        axis.axhline(own[0]["whole"], color="#444444", linewidth=0.8, linestyle=":")
        for key, (colour, marker, label) in STYLES.items():
            points = sorted((100 * row["macs"], row["ours"], _spread(row)) for row in own if _style(row) == key)
            if points:
                x, y, spread = zip(*points, strict=True)
                axis.errorbar(x, y, spread, color=colour, marker=marker, markersize=4, linewidth=1.3, label=label)
        axis.set_title(arch, fontsize=10)
        axis.grid(alpha=0.25)
        axis.set_xlim(0, 100)
        axis.set_ylim(min(min(row["ours"] for row in own), own[0]["whole"] - 10) - 1, own[0]["whole"] + 1.5)
    for axis in axes.flat[len(archs) :]:
        axis.axis("off")
    figure.supxlabel("multiply-adds left, %", fontsize=10)
    figure.supylabel("test accuracy, %; dotted: the whole", fontsize=10)
    shown = {label: line for a in axes.flat for line, label in zip(*a.get_legend_handles_labels(), strict=True)}
    figure.legend(shown.values(), shown.keys(), loc="upper center", ncol=4, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.93))
    figure.savefig(out, dpi=110)


def _spread(row: dict[str, Any]) -> float:
    """Half of the range over draws of the images, where there are several."""
    each = row.get("ours_each") or [0.0]
    return (max(each) - min(each)) / 2


def _style(row: dict[str, Any]) -> str:
    if "polished" in row["way"]:
        return (
            "polished"
            if row["unlabelled"] > 3000 or row["way"].startswith("rebuild, polished 2")
            else "polished on few"
        )
    return str(row["way"].removesuffix(", new statistics"))


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    draw(json.loads(source.read_text())["rows"], target)
