"""How cost grows: with images, classes, models, depth. Each size in a process of its own; fitted exponents beside the rows.

An exponent of 1 is linear, 0 flat. Processor seconds and the memory above what was held before are fitted as a power of the
size, over all sizes but the smallest, in which what is done once weighs most.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork_lab.benchmarks.measure import Row, Work
from brickwork_lab.benchmarks.registry import Contest, Outcome, benchmark

SIZES = {
    "images": (125, 250, 500, 1000),
    "classes": (250, 500, 1000, 2000),
    "models": (2, 4, 8, 16),
    "depth": (8, 16, 32, 64),
}


@benchmark(
    "growth",
    help="Cost against images, classes, models and depth, with fitted exponents.",
    common=("repeat", "separate"),
    repeat=1,
)
def growth(contest: Contest, *, times: int = 1) -> Outcome:
    """times: all sizes as many times as large."""
    works: dict[str, tuple[str, Any]] = {
        "images": ("disassemble, choose and match", disassemble_images),
        "classes": ("dependency map", fit_classes),
        "models": ("merge of files, ties", merge_models),
        "depth": ("trace and cut", cut_depth),
    }
    rows: list[Row] = []
    exponents: list[Row] = []
    for of, (what, work) in works.items():
        own: list[Row] = []
        for size in (times * n for n in SIZES[of]):
            (row,) = contest.measure({f"{what}: {size} {of}": work}, size=size)
            own.append({**row, "size": size})
        rows += own
        fitted = {f"{column} exponent": _exponent(own[1:], column) for column in ("cpu_s", "grown_mb")}
        exponents.append({"what": what, "against": of, **fitted})
    return Outcome(rows, {}, {"exponents": exponents})


def _exponent(rows: list[Row], column: str) -> float:
    """The power of the size that a column follows.

    >>> _exponent([{"size": n, "cpu_s": 3.0 * n**2} for n in (1, 2, 4)], "cpu_s")
    2.0
    """
    costs = [max(float(row[column]), 1e-3) for row in rows]
    return round(float(np.polyfit(np.log([row["size"] for row in rows]), np.log(costs), 1)[0]), 2)


class _Chain(nn.Module):
    def __init__(self, blocks: int, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 1)
            )
            for _ in range(blocks)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = (x + block(x)).relu()
        return self.head(x.mean((2, 3)))


def disassemble_images(size: int) -> Work:
    import brickwork

    torch.manual_seed(0)
    net = _Chain(4).eval()
    raw = np.random.default_rng(0).integers(0, 256, (size * 5 // 4, 64, 64, 3), dtype=np.uint8)
    labels = np.arange(len(raw)) % 10

    def work() -> None:
        brickwork.compress(net, (raw, labels), budget=0.5, images=size, scored=size, progress=False, device="cpu")

    return work


def fit_classes(size: int) -> Work:
    from brickwork.dependencies.mapping import fit_map

    rng = np.random.default_rng(0)
    logits = (
        rng.standard_normal((2000, 40)) @ rng.standard_normal((40, size)) + rng.standard_normal((2000, size))
    ).astype(np.float32)

    def work() -> None:
        fit_map(logits, progress=False)

    return work


def merge_models(size: int) -> Work:
    from safetensors.numpy import save_file

    from brickwork.algebra.recipe import make_recipe
    from brickwork.algebra.streaming import merge_files

    folder = Path(tempfile.mkdtemp(prefix="brickwork-growth-"))
    rng = np.random.default_rng(0)
    for number in range(size + 1):
        (folder / str(number)).mkdir()
        tensors = {f"layer.{k}.weight": rng.standard_normal((512, 512), np.float32) for k in range(12)}
        save_file(tensors, folder / str(number) / "model.safetensors")
    models = [str(folder / str(k)) for k in range(1, size + 1)]
    recipe = make_recipe({"method": "ties", "models": models, "base": str(folder / "0")})

    def work() -> None:
        merge_files(recipe, folder / "out", progress=False)

    return work


def cut_depth(size: int) -> Work:
    import brickwork

    torch.manual_seed(0)
    net = _Chain(size).eval()
    example = torch.zeros(2, 3, 16, 16)

    def work() -> None:
        bp = brickwork.trace(net, example)
        bp.select(net, {name: range(width // 2) for name, width in bp.spaces.items() if name != "classes"})

    return work
