"""Paper 2, Tables 4, 6 and 7: drop what no class needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from brickwork.bricks.compression import compress as shrink
from brickwork_lab.judging import accuracy, facts_of
from brickwork_lab.lab import Lab
from brickwork_lab.studies.disassemble import PAPERS_WAY
from brickwork_lab.studies.registry import Names, Row, study

#: (set, network): the original, compressed, after one epoch of fine-tuning, share of parameters and FLOPs that went
PAPER = {
    ("cifar10", "simplenetv1"): (95.02, 67.82, 93.66, 14.87, 32.33),
    ("cifar10", "vgg16"): (94.68, 89.76, 94.36, 23.04, 13.36),
    ("cifar10", "resnet50"): (94.76, 49.40, 89.58, 30.05, 34.74),
    ("cifar100", "vgg16"): (77.76, 77.54, 77.52, 2.85, 0.67),
}


@study("compress", paper="2, Tables 4, 6, 7")
def compress(
    lab: Lab, *, archs: Names = None, sets: Names = None, budgets: tuple[float, ...] = (0.5, 0.4, 0.25, 0.1)
) -> Iterator[Row]:
    """Drop what no class needs, without training: accuracy against what is left."""
    ways: dict[str, dict[str, Any]] = {"the paper's way": PAPERS_WAY, "within 0.5 points": {"tolerance": 0.005}}
    ways |= {f"{b:.0%} of the parameters": {"budget": b} for b in budgets}
    for source, arch in lab.cases(sets, archs, ("simplenetv1", "vgg16", "resnet50")):
        half, net = lab.data(f"{source}:A"), lab.network(arch, f"{source}:A")
        whole = accuracy(net, half)
        original, paper, tuned, gone, faster = PAPER.get((source, arch), (None,) * 5)
        for what, options in ways.items():
            brick = shrink(net, half, seed=lab.seed, progress=lab.progress, **options)
            yield {
                "what": f"{source} {arch}, {what}",
                "paper": paper,
                "ours": accuracy(brick.model, half),
                "whole": whole,
                "paper_original": original,
                "paper_tuned": tuned,
                "ours_tuned": accuracy(lab.fine_tuned(brick.model, half, lr=1e-3), half),
                **facts_of(brick),
                "latency": lab.latency_ratio(brick.model, [net], half),
                "gone": round(100 * (1 - brick.parameters), 2),
                "paper_gone": gone,
                "paper_flops_gone": faster,
                "note": brick.note,
                "arch": arch,
                "classes": len(half.classes),
                "seed": lab.seed,
            }
