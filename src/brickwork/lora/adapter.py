"""An adapter folder of peft: adapter_config.json and adapter_model.safetensors. numpy alone; no code of peft is needed.

The change of a layer's weight is scale · B·A, with scale = alpha / r (alpha / √r for rsLoRA). Two adapters' A and B must
not be averaged: (A₁ + A₂)(B₁ + B₂) is not A₁B₁ + A₂B₂. Here only products are added.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from brickwork.algebra.files import Tensors, Writer
from brickwork.atomic import write_folder
from brickwork.errors import BadFile
from brickwork.ownership import RECORD, write_record
from brickwork.store.foreign import read_json
from brickwork.tensor_file import inside

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
FACTOR = re.compile(r"^(.+)\.lora_([AB])\.(?:default\.)?weight$")
KNOWN_ENDINGS = (".weight", ".bias")
MOVED = ("pissa", "olora", "corda", "loftq", "lora_ga")  # ways of peft to begin that change the base as well


@dataclass(frozen=True)
class Factors:
    """B (out, r) times A (r, in) is what is added to a weight; the scale is in B already."""

    a: np.ndarray
    b: np.ndarray

    @property
    def rank(self) -> int:
        return len(self.a)

    def product(self) -> np.ndarray:
        return self.b @ self.a

    def shortened(self, rank: int) -> Factors:
        """The best of a rank, by the singular values of the product; as they are, where the rank is not smaller."""
        if rank >= self.rank:
            return self
        q, upper = np.linalg.qr(self.b)
        p, lower = np.linalg.qr(self.a.T)
        left, values, right = np.linalg.svd(upper @ lower.T)
        root = np.sqrt(values[:rank])
        return Factors((p @ right[:rank].T * root).T, q @ left[:, :rank] * root)


@dataclass(frozen=True)
class Adapter:
    """What an adapter folder holds: factors by the name of a layer of the base, and whole tensors by theirs."""

    layers: dict[str, Factors]
    config: dict[str, Any] = field(repr=False)
    whole: dict[str, np.ndarray] = field(default_factory=dict)  # heads and biases that were trained along
    path: Path = Path()
    transposed: bool = False  # the base keeps these weights as (in, out)

    def change(self, layer: str) -> np.ndarray:
        """What the adapter adds to the weight of a layer, as the base stores it."""
        product = self.layers[layer].product()
        return product.T if self.transposed else product

    def shape(self, layer: str) -> tuple[int, ...]:
        """The shape of `change`."""
        pair = self.layers[layer]
        shape = len(pair.b), pair.a.shape[1]
        return shape[::-1] if self.transposed else shape

    @classmethod
    def load(cls, folder: str | Path) -> Adapter:
        """Read an adapter folder; what is no plain LoRA of linear layers is refused by name."""
        folder = Path(folder)
        if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
            raise BadFile(f"{folder} is no LoRA adapter of peft; it must hold {CONFIG} and {WEIGHTS}.")
        config = read_json(inside(folder / CONFIG))
        if config.get("peft_type") != "LORA":
            raise BadFile(f"{folder} holds a {config.get('peft_type')} adapter; only LORA is known.")
        for name in ("use_dora", "use_qalora", "trainable_token_indices", "layer_replication"):
            if config.get(name):
                raise BadFile(f"{folder} uses {name}, which is no product B·A; bake it with peft.")
        begun = config.get("init_lora_weights")
        if isinstance(begun, str) and begun.lower().startswith(MOVED):
            raise BadFile(
                f"{folder} was begun with {begun}, which takes from the base's weights what the factors begin with, so that "
                "B·A is not what it adds; convert it to a plain LoRA with peft first."
            )
        tensors = Tensors(inside(folder / WEIGHTS))
        tensors.verify()
        factors: dict[str, dict[str, np.ndarray]] = {}
        whole = {}
        for name in tensors:
            short = name.removeprefix(PREFIX)
            match = FACTOR.match(short)
            if match is not None:
                value = tensors[name]
                if value.ndim != 2:
                    raise BadFile(f"{folder}: {name} is {value.shape}; only LoRA of linear layers is known.")
                if not np.isfinite(value).all():
                    raise BadFile(f"{folder}: {name} holds NaN or infinite values.")
                factors.setdefault(match[1], {})[match[2]] = value.astype(np.float32)
            elif "lora_" in short or not short.endswith(KNOWN_ENDINGS):
                raise BadFile(f"{folder}: {name} is no factor of a linear layer's LoRA, and cannot be read.")
            else:
                whole[short.replace(".modules_to_save.default.", ".").replace(".modules_to_save.", ".")] = tensors[name]
        layers = {layer: _scaled(layer, pair, config, folder) for layer, pair in factors.items()}
        if not layers:
            raise BadFile(f"{folder} holds no LoRA factors.")
        return cls(layers, config, whole, folder, bool(config.get("fan_in_fan_out")))

    def write(self, draft: Path, facts: dict[str, Any]) -> None:
        """The folder as peft reads it: one rank for all layers, the scale inside B."""
        rank = max(pair.rank for pair in self.layers.values())
        config = {
            "peft_type": "LORA",
            "task_type": self.config.get("task_type"),
            "base_model_name_or_path": self.config.get("base_model_name_or_path"),
            "r": rank,
            "lora_alpha": rank,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": self.transposed,
            "target_modules": sorted(self.layers),
            "inference_mode": True,
        }
        (draft / CONFIG).write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        tensors: dict[str, np.ndarray] = {}
        for layer, pair in sorted(self.layers.items()):
            missing = rank - pair.rank  # zeros change no product, and every reader knows one rank for all
            tensors[f"{PREFIX}{layer}.lora_A.weight"] = np.pad(pair.a, ((0, missing), (0, 0)))
            tensors[f"{PREFIX}{layer}.lora_B.weight"] = np.pad(pair.b, ((0, 0), (0, missing)))
        with open(draft / WEIGHTS, "wb") as file:
            entries = [(name, "F32", value.shape) for name, value in tensors.items()]
            writer = Writer(file, entries, {"format": "pt", "recipe": json.dumps(facts)}, sealed=True)
            for name, value in tensors.items():
                writer.put(name, value.astype(np.float32))
        text = json.dumps(facts, indent=1, ensure_ascii=False)
        head = "---\nlibrary_name: peft\ntags:\n- brickwork\n- lora\n---"
        (draft / "README.md").write_text(f"{head}\n\n# A LoRA adapter\n\n```json\n{text}\n```\n", encoding="utf-8")

    def save(self, folder: str | Path, facts: dict[str, Any], *, force: bool = False) -> Path:
        """Write the folder, whole or not at all."""
        with write_folder(folder, force=force, owns=(RECORD,)) as draft:
            self.write(draft, facts)
            write_record(draft, "merged", facts)
        return Path(folder)


def _scaled(layer: str, pair: dict[str, np.ndarray], config: dict[str, Any], folder: Path) -> Factors:
    if set(pair) != {"A", "B"} or pair["A"].shape[0] != pair["B"].shape[1]:
        raise BadFile(f"{folder}: the factors of {layer} do not belong together.")
    try:
        rank = int(_for_layer(layer, config.get("rank_pattern"), config["r"]))
        alpha = float(_for_layer(layer, config.get("alpha_pattern"), config["lora_alpha"]))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, re.error) as error:
        raise BadFile(f"{folder / CONFIG} does not say r and lora_alpha as numbers ({error}).") from error
    if rank < 1 or not math.isfinite(alpha):
        raise BadFile(
            f"{folder / CONFIG} says r {rank} and lora_alpha {alpha:g} of {layer}; both must be numbers, r from 1."
        )
    if rank != pair["A"].shape[0]:
        raise BadFile(f"{folder}: the factors of {layer} have rank {pair['A'].shape[0]}, and {CONFIG} says {rank}.")
    scale = alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
    return Factors(pair["A"], pair["B"] * np.float32(scale))


def _for_layer(layer: str, pattern: Any, otherwise: Any) -> Any:
    """What a pattern of peft says of a layer: the first whose end of a name, or expression, fits."""
    for key, value in (pattern or {}).items():
        if re.match(rf"(.*\.)?({key})$", layer):
            return value
    return otherwise
