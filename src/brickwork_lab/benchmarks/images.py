"""Memory against the number of images in a folder of JPEGs: evaluate, and choose, cut and repair a part.

Brickwork as it is (up to 128 MB of decoded images are kept, the rest is decoded when wanted) against all kept in memory.
Each size runs in a process of its own. The folder holds `distinct` different pictures of mixed sizes under as many names
as are asked for: a file is decoded wherever it stands.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork_lab.benchmarks.measure import Row, Work
from brickwork_lab.benchmarks.registry import Contest, Outcome, benchmark

CLASSES = 10
SIDE = 96  # pixels that the network reads


@benchmark(
    "images",
    help="Memory of eval and disassemble against the images in a folder of JPEGs.",
    common=("repeat", "separate"),
    repeat=1,
)
def images(contest: Contest, *, count: int = 20_000, distinct: int = 500) -> Outcome:
    """count: images of the largest folder; the smaller one has a tenth."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="brickwork-bench-") as folder:
        for size in (max(CLASSES * 10, count // 10), count):
            own = Path(folder) / str(size)
            paint(own, size, min(distinct, size))
            for who, whole in (("streamed", False), ("in memory", True)):
                for what, work in (("eval", evaluate_folder), ("disassemble", disassemble_folder)):
                    given: dict[str, Any] = {"folder": str(own), "whole": whole}
                    (row,) = contest.measure({f"{what}, {who}: {size} images": (work, given)})
                    rows.append({**row, "images": size})
    ratios = {}
    for few, many in zip(rows[:4], rows[4:], strict=True):
        label = many["who"].partition(":")[0]
        ratios[f"{label}, 10 times the images: peak_mb"] = round(many["peak_mb"] / few["peak_mb"], 3)
    return Outcome(rows, ratios)


def paint(folder: Path, count: int, distinct: int) -> None:
    """A folder of JPEGs in classes, of mixed sizes, smooth enough to be stored as photographs are."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for label in range(CLASSES):
        (folder / f"class {label}").mkdir(parents=True)
    first: dict[int, Path] = {}
    for k in range(count):
        path = folder / f"class {k % CLASSES}" / f"{k}.jpg"
        if k < distinct:
            coarse = draw.integers(0, 256, (9, 12, 3), dtype=np.uint8)
            sides = (int(draw.integers(120, 300)), int(draw.integers(120, 300)))
            Image.fromarray(coarse).resize(sides, Image.Resampling.BICUBIC).save(path, quality=90)
            first[k] = path
        else:
            os.link(first[k % distinct], path)


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


def _prepared(folder: str, whole: bool) -> tuple[nn.Module, Any]:
    from brickwork import data
    from brickwork.data import folders, streamed
    from brickwork.origin import Origin, Preprocessing, attach

    torch.manual_seed(0)
    net = _Net().eval()
    prepared = Preprocessing((SIDE, SIDE), 3, (0.5,) * 3, (0.25,) * 3)
    attach(net, Origin(preprocessing=prepared, classes=tuple(f"class {k}" for k in range(CLASSES))))
    for module in (folders, streamed):
        module.HELD = 2**60 if whole else module.HELD  # type: ignore[attr-defined]
    return net, lambda: data.load(folder, size=SIDE)


def evaluate_folder(folder: str, whole: bool) -> Work:
    from brickwork.evaluation import evaluate

    net, load = _prepared(folder, whole)

    def work() -> dict[str, float]:
        images = load()
        result = evaluate(net, images, batch_size=256)
        return {"judged": float(result.images)}

    return work


def disassemble_folder(folder: str, whole: bool) -> Work:
    import brickwork

    net, load = _prepared(folder, whole)

    def work() -> dict[str, float]:
        brick = brickwork.disassemble(net, [0, 1], load(), budget=0.5, progress=False)
        return {"judged": float(brick.used["judged"]["images"])}

    return work
