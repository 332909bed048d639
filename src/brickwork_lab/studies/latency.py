"""Latency of cut networks beside their share of multiply-adds: a share of every width, weights as they are built.

Weights do not change how long a forward pass takes. The rows of `disassemble` and `compress` carry the ratio of their own.
Both networks are timed as they are, and as one would run them: norms folded into the layers, and on a GPU recorded as a
CUDA graph, in exact float32 and in half precision.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from brickwork import disassemble, zoo
from brickwork.blueprint.plan import CLASSES, Blueprint, trace
from brickwork.data.pixels import as_input
from brickwork.latency import latency
from brickwork.moments import fold_batch_norm
from brickwork.origin import origin_of
from brickwork_lab.lab import Lab
from brickwork_lab.studies.pruning import judge_of, network_and_images
from brickwork_lab.studies.registry import Names, Row, study

ARCHS = ("simplenetv1", "vgg16", "resnet50")


@study("latency", paper="2 (not in the paper)", trains=False)
def cut_latency(
    lab: Lab,
    *,
    archs: Names = None,
    keeps: Sequence[float] = (0.75, 0.5, 0.35, 0.25),
    round_to: Sequence[int] = (8, 64),
) -> Iterator[Row]:
    """Time of a forward pass of a cut network against the whole, beside its share of the multiply-adds."""
    where = lab.where
    batch = (256 if where.type == "cuda" else 16) if lab.full else 2
    for arch in archs or (ARCHS if lab.full else ("lenet",)):
        whole = zoo.build(arch, num_classes=5, seed=lab.seed).eval().to(where)
        shape = zoo.input_shape(arch)
        images = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(lab.seed)).to(where)
        bp = trace(whole, images[:2])
        for keep in keeps:
            for multiple in round_to:
                widths = {n: _rounded(size * keep, multiple, size) for n, size in bp.spaces.items() if n != CLASSES}
                steps = "" if multiple == 8 else f" in multiples of {multiple}"
                for row in measure(whole, bp, widths, images, f"{arch}, {keep:g} of every width{steps}"):
                    yield {**row, "seed": lab.seed}


def _rounded(width: float, multiple: int, whole: int) -> int:
    """To the nearest multiple, one at least; a GPU's kernels work on tiles of 32 to 128 channels, filled or not.

    >>> [_rounded(width, 64, 512) for width in (32, 90, 96, 512)], _rounded(8, 64, 16)
    ([64, 64, 128, 512], 16)
    """
    return min(whole, max(multiple, multiple * int(width / multiple + 0.5))) if multiple < whole else whole


def measure(whole: nn.Module, bp: Blueprint, widths: dict[str, int], images: Tensor, what: str) -> Iterator[Row]:
    """A row for each way to run a network: time of the part ÷ time of the whole, and the same for FLOPs."""
    keep = {name: list(range(min(count, bp.spaces[name]))) for name, count in widths.items()}
    part = bp.select(whole, keep).eval()
    flops = bp.count(keep).macs / bp.count().macs
    for way in WAYS if images.is_cuda else WAYS[:2]:
        times = {name: fastest(net, images, way) for name, net in (("whole", whole), ("part", part))}
        ratio = times["part"] / times["whole"]
        row: Row = {"what": f"{what}{way.words}", "paper": None, "ours": round(ratio / flops, 3)}
        row |= {"latency": round(ratio, 4), "flops": round(flops, 4)}
        row |= {f"{name}_ms": round(1e3 * seconds, 3) for name, seconds in times.items()}
        yield {**row, "batch": len(images), "tf32": way.tf32, "widths": widths}


@dataclass(frozen=True)
class Way:
    """How a network is run: with its norms folded or not, as a CUDA graph of cuDNN's fastest kernels, in which numbers."""

    words: str  # what a row says of it
    fold: bool = False
    record: bool = False
    dtype: torch.dtype = torch.float32
    tf32: bool = True  # products of float32 rounded to 10 bits, which is torch's choice for convolutions


WAYS = (  # the last three make a difference on a GPU only
    Way(""),
    Way(", norms folded", fold=True),
    Way(", norms folded, recorded", fold=True, record=True),
    Way(", norms folded, recorded, exact float32", fold=True, record=True, tf32=False),
    Way(", norms folded, recorded, bfloat16", fold=True, record=True, dtype=torch.bfloat16),
)


def fastest(model: nn.Module, images: Tensor, way: Way) -> float:
    """The faster of the two memory orders: a user would take it."""
    net = (fold_batch_norm(model, images[:2]) if way.fold else copy.deepcopy(model)).to(way.dtype)
    times = []
    with _cudnn(search=way.record, tf32=way.tf32):
        for order in (torch.contiguous_format, torch.channels_last):
            placed = net.to(memory_format=order)  # type: ignore[call-overload]
            given = images.to(way.dtype).contiguous(memory_format=order)
            repeat = 30 if images.is_cuda else 5
            times.append(latency(placed, given, repeat=repeat, warm_up=3, record=way.record))
    return min(times)


@contextmanager
def _cudnn(*, search: bool, tf32: bool) -> Iterator[None]:
    """cuDNN's kernels chosen by trial or by rule, and how it multiplies float32; set back in the end."""
    chosen = torch.backends.cudnn
    before = chosen.benchmark, chosen.allow_tf32
    chosen.benchmark, chosen.allow_tf32 = search, tf32
    try:
        yield
    finally:
        chosen.benchmark, chosen.allow_tf32 = before


@study("latency-budget", paper="2 (not in the paper)")
def latency_budget(lab: Lab, *, archs: Names = None, shares: Sequence[float] = (0.67, 0.5)) -> Iterator[Row]:
    """Networks cut to a share of their time, by times of the layers on the device: accuracy, and the time that was won."""
    for arch in lab.archs(archs, ("public-resnet56", "public-vgg16", "vgg16", "resnet50")):
        net, images, classes, labels = network_and_images(lab, arch)
        tested = judge_of(lab, net, images, classes, labels)
        pair = images.train_images, labels[images.train_labels]
        batch = (256 if lab.where.type == "cuda" else 16) if lab.full else 256
        given = as_input(images.train_images[:batch], origin_of(net).preprocessing, lab.where)
        for share in shares if lab.full else (0.9,):
            brick = disassemble(
                net,
                classes,
                pair,
                budget=share,
                of="latency",
                batch=batch,
                seed=lab.seed,
                device=lab.where,
                progress=False,
            )
            row: Row = {"what": f"{arch}, {share:.0%} of the time of {batch} images", "paper": None}
            row |= {"ours": tested(brick.model), "whole": tested(net), "macs": round(brick.macs, 4), "steps": 0}
            row |= {
                "parameters": round(brick.parameters, 4),
                "asked": share,
                "by_the_clock": brick.used["latency"]["share"],
            }
            part = brick.model.to(lab.where)
            for way in WAYS if given.is_cuda else WAYS[:2]:
                times = [fastest(model, given, way) for model in (net, part)]
                row[f"faster{way.words}"] = round(times[0] / times[1], 3)
            yield {**row, "batch": batch, "threads": torch.get_num_threads(), "seed": lab.seed}
