"""A network as a folder of the library it came from: transformers' `from_pretrained` or timm's `create_model` loads it."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brickwork import zoo
from brickwork.errors import BadModel, BrickworkError, RequestError
from brickwork.origin import Origin, Preprocessing, origin_of
from brickwork.ownership import write_record
from brickwork.store.foreign import RESAMPLE
from brickwork.store.valueless import shapes_of, valueless
from brickwork.store.weights import write_safetensors

LIBRARIES = {"transformers": "hf", "timm": "timm"}  # by the word of `to`: the prefix of its architectures
WORDS = {"in_channels": "in_chans", "image_size": "img_size"}  # what timm calls them

Runner = Callable[[Tensor], Tensor]


def check_library(model: nn.Module, to: str) -> dict[str, Any]:
    """The arguments by which the library builds this network; refused where it cannot."""
    origin = origin_of(model)
    prefix = LIBRARIES[to]
    if origin.arch is None or not origin.arch.startswith(f"{prefix}:"):
        what = origin.arch or type(model).__name__
        raise RequestError(
            f"`to` {to} takes networks of {to} ({prefix}:NAME), and this is {what}; give onnx, pt2 or torch."
        )
    args = dict(origin.args)
    if origin.classes is not None:
        args = {k: v for k, v in args.items() if k not in ("num_classes", "num_labels")}
        args["num_classes"] = len(origin.classes)
    state = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    shapes: dict[str, tuple[int, ...]] = {}
    if not origin.parts:
        try:
            shapes = shapes_of(origin.arch, args)
        except BrickworkError as error:
            raise BadModel(f"{origin.arch} cannot be built again: {error}") from error
    other = next((name for name in {**state, **shapes} if state.get(name) != shapes.get(name)), None)
    if other is not None:
        raise RequestError(
            f"no configuration of {to} says these widths ({other} is {state.get(other, 'absent')}, and {origin.arch} has "
            f"{shapes.get(other, 'none')}); cut with `uniform`, or give onnx, pt2 or torch."
        )
    return args


def write_library(model: nn.Module, draft: Path, to: str, args: dict[str, Any]) -> Runner:
    """Write the folder, and read it again by the library's own function."""
    origin = origin_of(model)
    write = _write_transformers if to == "transformers" else _write_timm
    run = write(model, origin, draft, args)
    (draft / "README.md").write_text(_card(origin, to), encoding="utf-8")
    write_record(draft, "exported", {"arch": origin.arch, "args": args})
    return run


def _write_transformers(model: Any, origin: Origin, draft: Path, args: dict[str, Any]) -> Runner:
    import transformers

    with valueless():
        built: Any = zoo.build(str(origin.arch), **args)
    inner = copy.copy(model.model)  # its tensors are shared, its configuration is not
    inner.config = built.model.config
    if origin.classes is not None:
        inner.config.id2label = dict(enumerate(origin.classes))
        inner.config.label2id = {name: k for k, name in enumerate(origin.classes)}
    inner.save_pretrained(draft)
    if origin.preprocessing is not None:
        _write_json(draft / "preprocessor_config.json", processor_facts(origin.preprocessing))
    auto: Any = transformers.AutoModelForImageClassification
    again = auto.from_pretrained(str(draft), local_files_only=True, use_safetensors=True).eval()

    def run(images: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = again(pixel_values=images).logits
        return logits

    return run


def processor_facts(prepared: Preprocessing) -> dict[str, Any]:
    """The same in the words of transformers' image processors.

    >>> facts = processor_facts(Preprocessing((224, 224), 3, (0.5,) * 3, (0.5,) * 3, resize=256))
    >>> facts["image_processor_type"], facts["size"], facts["crop_size"]
    ('BitImageProcessor', {'shortest_edge': 256}, {'height': 224, 'width': 224})
    """
    facts: dict[str, Any] = {
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": bool(prepared.mean),
        "image_mean": list(prepared.mean),
        "image_std": list(prepared.std),
        "resample": next(k for k, name in RESAMPLE.items() if name == prepared.interpolation),
        "do_resize": prepared.size is not None,
    }
    if prepared.size is None:
        return {"image_processor_type": "ViTImageProcessor", **facts}
    cut = dict(zip(("height", "width"), prepared.size, strict=True))
    resize = prepared.resize
    if isinstance(resize, tuple) and resize == prepared.size:
        return {"image_processor_type": "ViTImageProcessor", "size": cut, **facts}
    if isinstance(resize, tuple):
        raise RequestError(
            f"transformers has no image processor that stretches images to {resize[0]}x{resize[1]} and then cuts "
            f"{prepared.size[0]}x{prepared.size[1]} out; give onnx, pt2 or torch."
        )
    if resize is None and prepared.size[0] != prepared.size[1]:
        raise RequestError(
            f"transformers has no image processor that scales images to cover {prepared.size[0]}x{prepared.size[1]}; give "
            "onnx, pt2 or torch."
        )
    scaled = {"size": {"shortest_edge": resize or prepared.size[0]}, "do_center_crop": True, "crop_size": cut}
    return {"image_processor_type": "BitImageProcessor", **scaled, **facts}


def _write_timm(model: Any, origin: Origin, draft: Path, args: dict[str, Any]) -> Runner:
    import timm

    name = str(origin.arch).partition(":")[2]
    given = {WORDS.get(k, k): v for k, v in args.items()}
    classes = given.pop("num_classes", model.num_classes)
    own = {
        k: v
        for k, v in model.pretrained_cfg.items()
        if k in ("pool_size", "first_conv", "classifier", "fixed_input_size")
    }
    shape = list(origin.input_shape or model.pretrained_cfg["input_size"])
    facts = {
        "architecture": name.split(".")[0],
        "num_classes": classes,
        "num_features": model.num_features,
        **({"label_names": list(origin.classes)} if origin.classes is not None else {}),
        "model_args": given,
        "pretrained_cfg": {
            "custom_load": False,
            **own,
            "num_classes": classes,
            "input_size": shape,
            **timm_facts(origin.preprocessing),
        },
    }
    write_safetensors(model.state_dict(), draft / "model.safetensors", {"format": "pt"})
    _write_json(draft / "config.json", facts)
    again = timm.create_model(f"local-dir:{draft}", pretrained=True).eval()

    def run(images: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = again(images)
        return logits

    return run


def timm_facts(prepared: Preprocessing | None) -> dict[str, Any]:
    """The same in the words of timm's `pretrained_cfg`.

    >>> facts = timm_facts(Preprocessing((224, 224), 3, (0.5,) * 3, (0.5,) * 3, resize=256))
    >>> facts["crop_pct"], facts["crop_mode"]
    (0.875, 'center')
    """
    if prepared is None:
        return {}
    facts: dict[str, Any] = {
        "interpolation": prepared.interpolation,
        "mean": list(prepared.mean) or [0.0] * prepared.channels,
        "std": list(prepared.std) or [1.0] * prepared.channels,
    }
    if prepared.size is None:
        return facts
    side, resize = prepared.size[0], prepared.resize or prepared.size[0]
    stretched = isinstance(resize, tuple)
    scaled = resize[0] if isinstance(resize, tuple) else resize
    share = side / scaled
    if math.floor(side / share) != scaled:  # timm divides again, and rounds down
        share = math.nextafter(share, 0)
    if isinstance(resize, tuple) and [math.floor(s / share) for s in prepared.size] != list(resize):
        raise RequestError(
            f"timm has no word for images that are stretched to {resize[0]}x{resize[1]} before {side}x{prepared.size[1]} is cut "
            "out; give onnx, pt2 or torch."
        )
    return {**facts, "crop_pct": share, "crop_mode": "squash" if stretched else "center"}


def _write_json(path: Path, facts: dict[str, Any]) -> None:
    path.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _card(origin: Origin, to: str) -> str:
    load = (
        "AutoModelForImageClassification.from_pretrained(FOLDER)"
        if to == "transformers"
        else 'timm.create_model("local-dir:FOLDER", pretrained=True)'
    )
    head = f"---\nlibrary_name: {to}\npipeline_tag: image-classification\ntags:\n- brickwork\n---\n"
    return f"{head}\n# {origin.arch}\n\nWritten by Brickwork; `{load}` loads it.\n"
