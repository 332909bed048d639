"""Networks that nobody here wrote: of every family of timm, torchvision and transformers one that is small, from cut to file.

Half of the channels go, for two of four classes; the part is proved exact and repaired, saved, loaded again and written as
ONNX. Weights are as they are built, images are noise: what is looked at is whether each step can be done, how much of the
network is left, and what had to stay whole. Families whose smallest network is large are left out.
"""

import importlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import brickwork
from brickwork import zoo
from brickwork.blueprint import CLASSES
from brickwork.bricks.brick import Brick
from brickwork.errors import BrickworkError, RequestError
from brickwork.export import export_model
from brickwork.origin import origin_of
from brickwork.zoo.summary import parameters_of
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, some_of, study

TINY = ("timm:test_resnet", "timm:test_vit", "timm:test_nfnet")
LARGEST = 60_000_000  # parameters
#: parts of names, the smallest networks' first
SMALL = "test zepto atto femto pico nano tiny xxt xt _t small xxs xs _s mini micro lite0 18 10 b0 26 34 m0 s0 0"
#: what transformers' configurations call their sizes, where one number says a size
SMALLER = {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 192}


@study("timm-families", paper="2 (not in the paper)", trains=False)
def families(lab: Lab, *, sets: Names = None, picks: Names = None) -> Iterator[Row]:
    """Of every family in timm, torchvision, transformers a small network, from cut to file: per cent of the parameters left."""
    libraries = some_of(LIBRARIES, sets, "library")
    if lab.full or picks:
        known = {f"{name}: {family}": arch for name, find in libraries.items() for family, arch in find().items()}
        unknown = [pick for pick in picks or () if not any(pick in (name, name.split(": ")[1]) for name in known)]
        if unknown:
            raise RequestError(f"no library has a family {unknown[0]!r}; there are {', '.join(known)}.")
        chosen = {name: known[name] for name in known if not picks or name in picks or name.split(": ")[1] in picks}
    else:
        chosen = {f"timm: {name.split(':')[1]}": name for name in TINY}
    for family, arch in chosen.items():
        row = _through(lab, arch)
        if row is not None:
            yield {"what": family, "paper": None, **row, "model": arch, "seed": lab.seed}


def _smallest(names: list[str], family_of: Callable[[str], str]) -> dict[str, str]:
    """For every family the network whose name sounds smallest."""
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(family_of(name), []).append(name)
    sizes = SMALL.split()

    def rank(name: str) -> tuple[int, int, str]:
        return next((k for k, part in enumerate(sizes) if part in name), len(sizes)), len(name), name

    return {family: min(names, key=rank) for family, names in sorted(families.items())}


def _of_timm() -> dict[str, str]:
    from brickwork.zoo.torchvision_shim import import_torchvision

    import_torchvision()
    timm = importlib.import_module("timm")
    found = _smallest(timm.list_models(), lambda name: timm.model_entrypoint(name).__module__.rpartition(".")[2])
    return {family: f"timm:{name}" for family, name in found.items()}


def _of_torchvision() -> dict[str, str]:
    from brickwork.zoo.torchvision_shim import import_torchvision

    models = import_torchvision().models
    found = _smallest(
        models.list_models(module=models), lambda name: models.get_model_builder(name).__module__.rpartition(".")[2]
    )
    return {family: f"torchvision:{name}" for family, name in found.items()}


def _of_transformers() -> dict[str, str]:
    """Its types of image classifiers are its families."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    return {name: f"hf:{name}" for name in sorted(auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES)}


#: what `--set` names
LIBRARIES: dict[str, Callable[[], dict[str, str]]] = {
    "timm": _of_timm,
    "torchvision": _of_torchvision,
    "transformers": _of_transformers,
}


def _through(lab: Lab, arch: str) -> Row | None:
    """One network from cut to file. None: it is too large."""
    began = time.perf_counter()
    facts: Row = {"ours": None, "repaired": False, "loaded": False, "onnx": False}
    try:
        model = _built(arch, lab.seed)
        if parameters_of(model) > LARGEST:
            return None
        images, labels = _images(model), torch.arange(40) % 4
        given: dict[str, Any] = {"keep": 0.5, "seed": lab.seed, "device": lab.where, "progress": False}
        brick, facts["unrepaired"] = _cut(model, images, labels, given)
        spaces = brickwork.trace(model, images[:2]).spaces
        facts |= {"ours": round(100 * brick.parameters, 1), "macs": round(100 * brick.macs, 1)}
        facts |= {"pixels": images.shape[-1], "spaces": len(spaces), "repaired": not facts["unrepaired"]}
        cut = {name for name, kept in brick.kept.items() if len(kept) < spaces.get(name, math.inf)}
        facts |= {"left_whole": len(set(spaces) - cut - {CLASSES}), "note": brick.note}
        facts |= _kept(brick, images)
    except BrickworkError as error:
        facts["refused"] = str(error)[:300]
    except Exception as error:  # a fault of ours is a row of the table, too
        facts["fault"] = f"{type(error).__name__}: {error}"[:300]
    return {**facts, "seconds": round(time.perf_counter() - began, 1)}


def _cut(model: nn.Module, images: Tensor, labels: Tensor, given: dict[str, Any]) -> tuple[Brick, str]:
    """The part, and why it is not repaired ("": it is)."""
    try:
        return brickwork.disassemble(model, [0, 1], (images, labels), **given), ""
    except BrickworkError as error:
        return brickwork.disassemble(model, [0, 1], (images, labels), repair="bn", **given), str(error)[:300]


def _kept(brick: Brick, images: Tensor) -> Row:
    """Whether the part comes back from its folder with the same answers, and is written as ONNX, which compares by itself."""
    facts: Row = {}
    with tempfile.TemporaryDirectory() as folder:
        brickwork.save(brick.model, f"{folder}/part")
        again = brickwork.load(f"{folder}/part")
        with torch.no_grad():
            facts["loaded"] = torch.equal(again.eval()(images[:2]), brick.model.eval()(images[:2]))
        try:
            export_model(again, Path(folder) / "part.onnx", to="onnx")
            facts["onnx"] = True
        except BrickworkError as error:
            facts["no_onnx"] = str(error)[:300]
    return facts


def _built(arch: str, seed: int) -> nn.Module:
    given: dict[str, Any] = {}
    if arch.startswith("hf:"):
        config = importlib.import_module("transformers").AutoConfig.for_model(arch[3:])
        stages = any(name.endswith("hidden_sizes") or name == "depths" for name in config.to_dict())
        given = (
            {}
            if stages
            else {name: size for name, size in SMALLER.items() if isinstance(getattr(config, name, None), int)}
        )
    return zoo.build(arch, num_classes=4, seed=seed, **given).eval()


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
