"""Networks that nobody here wrote: of every family in timm one that is small, cut to half of its channels.

Weights are as they are built, images are noise: what is looked at is whether a part can be cut out and is proved exact, how
much of the network is left, and what had to stay whole. Families whose smallest network is large are left out.
"""

import importlib
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import brickwork
from brickwork import zoo
from brickwork.errors import BrickworkError, RequestError
from brickwork.origin import origin_of
from brickwork.zoo.summary import parameters_of
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, study

TINY = ("test_resnet", "test_vit", "test_nfnet")
LARGEST = 60_000_000  # parameters
#: parts of names, the smallest networks' first
SMALL = "test zepto atto femto pico nano tiny xxt xt _t small xxs xs _s mini micro lite0 18 10 b0 26 34 m0 s0 0"


@study("timm-families", paper="2 (not in the paper)", trains=False)
def families(lab: Lab, *, picks: Names = None) -> Iterator[Row]:
    """Of every family in timm a small network, cut to half of its channels: what is left of the parameters, in per cent."""
    known = smallest()
    unknown = [pick for pick in picks or () if pick not in known]
    if unknown:
        raise RequestError(f"timm has no family {unknown[0]!r}; it has {', '.join(known)}.")
    chosen = {f: known[f] for f in picks} if picks else known if lab.full else {n: n for n in TINY}
    for family, name in chosen.items():
        row = _cut(lab, name)
        if row is not None:
            yield {"what": family, "paper": None, **row, "model": name, "seed": lab.seed}


def smallest() -> dict[str, str]:
    """For every family (a module of timm) the network whose name sounds smallest."""
    from brickwork.zoo.torchvision_shim import import_torchvision

    import_torchvision()
    timm = importlib.import_module("timm")
    families: dict[str, list[str]] = {}
    for name in timm.list_models():
        families.setdefault(timm.model_entrypoint(name).__module__.rpartition(".")[2], []).append(name)

    sizes = SMALL.split()

    def rank(name: str) -> tuple[int, int, str]:
        return next((k for k, part in enumerate(sizes) if part in name), len(sizes)), len(name), name

    return {family: min(names, key=rank) for family, names in sorted(families.items())}


def _cut(lab: Lab, name: str) -> Row | None:
    torch.manual_seed(lab.seed)
    model = zoo.build(f"timm:{name}", num_classes=4, seed=lab.seed).eval()
    if parameters_of(model) > LARGEST:
        return None
    began = time.perf_counter()
    facts: Row = {"ours": None}
    try:
        images, labels = _images(model), torch.arange(40) % 4
        brick = brickwork.disassemble(
            model, [0, 1], (images, labels), keep=0.5, repair="bn", seed=lab.seed, device=lab.where, progress=False
        )
        spaces = brickwork.trace(model, images[:2]).spaces
        facts = {"ours": round(100 * brick.parameters, 1), "macs": round(100 * brick.macs, 1)}
        facts |= {"pixels": images.shape[-1], "spaces": len(spaces)}
        facts |= {"left_whole": len(set(spaces) - set(brick.kept)), "note": brick.note}
    except BrickworkError as error:
        facts["refused"] = str(error)[:200]
    return {**facts, "seconds": round(time.perf_counter() - began, 1)}


def _images(model: nn.Module) -> Tensor:
    """Noise of 96 pixels, or of the size that the network insists on."""
    shape = origin_of(model).input_shape
    for size in (96, shape[-1] if shape else 224):
        images = torch.randn(40, 3, size, size, generator=torch.Generator().manual_seed(0))
        try:
            brickwork.trace(model, images[:2])
        except BrickworkError:
            continue
        break
    return images
