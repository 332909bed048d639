"""Latency of cut networks beside their share of multiply-adds: a share of every width, weights as they are built.

Weights do not change how long a forward pass takes. The rows of `disassemble` and `compress` carry the ratio of their own.
Both networks are timed as they are, and as one would run them: norms folded into the layers, and on a GPU recorded as a
CUDA graph, in half precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from brickwork import zoo
from brickwork.blueprint.plan import CLASSES, Blueprint, trace
from brickwork.latency import latency
from brickwork.moments import fold_batch_norm
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
            for row in measure(whole, bp, widths, images, f"{arch}, {keep:g} of every width"):
                yield {**row, "seed": run.seed}


def measure(
    whole: nn.Module, bp: Blueprint, widths: dict[str, int], images: Tensor, what: str
) -> Iterator[Row]:
    """A row for each way to run a network: time of the part ÷ time of the whole, and the same for FLOPs."""
    keep = {name: list(range(min(count, bp.spaces[name]))) for name, count in widths.items()}
    part = bp.select(whole, keep).eval()
    flops = bp.count(keep).macs / bp.count().macs
    for how, treat in ways(images).items():
        times = {name: fastest(*treat(net, images)) for name, net in (("whole", whole), ("part", part))}
        ratio = times["part"] / times["whole"]
        yield {
            "what": f"{what}{how}", "paper": None, "ours": round(ratio / flops, 3), "latency": round(ratio, 4),
            "flops": round(flops, 4), "whole_ms": round(1e3 * times["whole"], 3), "part_ms": round(1e3 * times["part"], 3),
            "batch": len(images), "tf32": torch.backends.cudnn.allow_tf32, "widths": widths,
        }  # fmt: skip


Timed = tuple[nn.Module, Tensor, bool]  # a network, its images, whether it is recorded


def ways(images: Tensor) -> dict[str, Callable[[nn.Module, Tensor], Timed]]:
    """How a network may be run, by the words that a row gets."""
    found: dict[str, Callable[[nn.Module, Tensor], Timed]] = {
        "": lambda net, x: (net, x, False),
        ", norms folded": lambda net, x: (fold_batch_norm(net, x[:2]), x, False),
    }
    if images.is_cuda:
        found[", norms folded, recorded"] = lambda net, x: (fold_batch_norm(net, x[:2]), x, True)
        found[", norms folded, recorded, bfloat16"] = lambda net, x: (
            fold_batch_norm(net, x[:2]).bfloat16(), x.bfloat16(), True,
        )  # fmt: skip
    return found


def fastest(model: nn.Module, images: Tensor, record: bool = False) -> float:
    """The faster of the two memory orders: a user would take it."""
    repeat = 30 if images.is_cuda else 5
    found = []
    for order in (torch.contiguous_format, torch.channels_last):
        placed = model.to(memory_format=order)  # type: ignore[call-overload]
        given = images.contiguous(memory_format=order)
        found.append(latency(placed, given, repeat=repeat, warm_up=3, record=record))
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return min(found)
