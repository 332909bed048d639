"""What other libraries write beside weights: how images are prepared, and what classes are called."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brickwork.errors import BadFile

RESAMPLE = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers, which transformers writes


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a file."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadFile(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(facts, dict):
        raise BadFile(f"{path} must hold a JSON object, not a {type(facts).__name__}.")
    return facts


def from_timm(facts: Mapping[str, Any]) -> dict[str, Any]:
    """mean, std, size, resize and interpolation as timm's `pretrained_cfg` says them.

    >>> from_timm({"input_size": [3, 224, 224], "crop_pct": 0.875, "interpolation": "bicubic", "mean": [0.5] * 3})
    {'mean': [0.5, 0.5, 0.5], 'size': [224, 224], 'interpolation': 'bicubic', 'resize': [256]}
    """
    result = {name: facts[name] for name in ("mean", "std") if facts.get(name) is not None}
    if facts.get("input_size"):
        result["size"] = list(facts["input_size"][-2:])
    if facts.get("interpolation"):
        result["interpolation"] = facts["interpolation"]
    if facts.get("crop_pct") and facts.get("input_size"):
        sides = [math.floor(side / facts["crop_pct"]) for side in facts["input_size"][-2:]]
        squashed = facts.get("crop_mode") == "squash"
        result["resize"] = sides if squashed or sides[0] != sides[1] else sides[:1]
    return result


def from_processor(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The same as transformers' preprocessor_config.json says it; scales of its own are put into mean and std.

    >>> from_processor({"size": {"shortest_edge": 256}, "crop_size": 224, "do_center_crop": True, "resample": 3})
    {'mean': [0.0], 'std': [1.0], 'interpolation': 'bicubic', 'size': [224, 224], 'resize': [256]}
    """
    factor = 255 * float(facts.get("rescale_factor") or 1 / 255) if facts.get("do_rescale", True) else 255.0
    normal = facts.get("do_normalize", True)
    mean = facts.get("image_mean") if normal else None
    std = facts.get("image_std") if normal else None
    result: dict[str, Any] = {
        "mean": [float(m) / factor for m in mean or [0.0]],
        "std": [float(s) / factor for s in std or [1.0]],
    }
    if facts.get("resample") is not None:
        result["interpolation"] = RESAMPLE.get(facts["resample"], f"resample {facts['resample']}")
    size, crop = facts.get("size"), facts.get("crop_size") if facts.get("do_center_crop") else None
    scaled = _sides(size)
    result["size"] = _both(_sides(crop) or scaled)
    if scaled is not None and facts.get("do_resize", True):
        share = facts.get("crop_pct")
        if share and crop is None and len(scaled) == 1 and scaled[0] < 384:  # ConvNeXt: scaled beyond, then cut out
            result["resize"] = [int(scaled[0] / share)]
        elif crop is not None or len(scaled) == 2:
            result["resize"] = scaled
    return {name: value for name, value in result.items() if value is not None}


def _sides(size: Any) -> list[int] | None:
    """One number for the shorter side, two for height and width."""
    if isinstance(size, int):
        return [size]
    if isinstance(size, Mapping) and "shortest_edge" in size:
        return [int(size["shortest_edge"])]
    if isinstance(size, Mapping) and {"height", "width"} <= set(size):
        return [int(size["height"]), int(size["width"])]
    return None


def _both(sides: list[int] | None) -> list[int] | None:
    return None if sides is None else [sides[0], sides[-1]]


def names_of(table: Mapping[Any, Any]) -> tuple[list[str], list[str]]:
    """The class names of transformers' `id2label` in the order of the outputs, and those that were there twice.

    >>> names_of({"1": "crane", "0": "crane", "2": "owl"})
    (['crane', 'crane (1)', 'owl'], ['crane'])
    """
    ordered = [str(name) for _, name in sorted(table.items(), key=lambda item: int(item[0]))]
    twice = [name for name in dict.fromkeys(ordered) if ordered.count(name) > 1]
    return [n if n not in ordered[:k] else f"{n} ({k})" for k, n in enumerate(ordered)], twice
