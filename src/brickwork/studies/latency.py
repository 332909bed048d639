"""Latency of cut networks beside their share of multiply-adds: a share of every width, weights as they are built.

Weights do not change how long a forward pass takes. The rows of `disassemble` and `compress` carry the ratio of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from brickwork import zoo
from brickwork.blueprint.plan import CLASSES, Blueprint, trace
from brickwork.latency import latency
from brickwork.studies.registry import Row, Run, study

ARCHS = ("simplenetv1", "vgg16", "resnet50")


@study("latency", paper="2 (not in the paper)", trains=False)
def cut_latency(
    run: Run, *, archs: tuple[str, ...] | None = None, keeps: Sequence[float] = (0.75, 0.5, 0.35, 0.25)
) -> Iterator[Row]:
    """Time of a forward pass of a cut network against the whole, beside its share of the multiply-adds."""
    where = run.where
    batch = (256 if where.type == "cuda" else 16) if run.full else 2
    for arch in archs or (ARCHS if run.full else ("lenet",)):
        whole = zoo.build(arch, num_classes=5, seed=run.seed).eval().to(where)
        shape = zoo.input_shape(arch)
        images = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(run.seed)).to(where)
        bp = trace(whole, images[:2])
        for keep in keeps:
            widths = {n: max(1, 8 * round(size * keep / 8)) for n, size in bp.spaces.items() if n != CLASSES}
            yield {**measure(whole, bp, widths, images, f"{arch}, {keep:g} of every width"), "seed": run.seed}


def measure(whole: nn.Module, bp: Blueprint, widths: dict[str, int], images: Tensor, what: str) -> Row:
    """A row: time of the part ÷ time of the whole, in the fastest memory format of each, and the same for FLOPs."""
    keep = {name: list(range(min(count, bp.spaces[name]))) for name, count in widths.items()}
    part = bp.select(whole, keep).eval()
    flops = bp.count(keep).macs / bp.count().macs
    times = {"whole": fastest(whole, images), "part": fastest(part, images)}
    ratio = times["part"] / times["whole"]
    return {
        "what": what, "paper": None, "ours": round(ratio / flops, 3), "latency": round(ratio, 4), "flops": round(flops, 4),
        "whole_ms": round(1e3 * times["whole"], 3), "part_ms": round(1e3 * times["part"], 3), "batch": len(images),
        "tf32": torch.backends.cudnn.allow_tf32, "widths": widths,
    }  # fmt: skip


def fastest(model: nn.Module, images: Tensor) -> float:
    """The faster of the two memory orders: a user would take it."""
    repeat = 30 if images.is_cuda else 5
    found = []
    for order in (torch.contiguous_format, torch.channels_last):
        placed = model.to(memory_format=order)  # type: ignore[call-overload]
        found.append(latency(placed, images.contiguous(memory_format=order), repeat=repeat, warm_up=3))
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return min(found)
