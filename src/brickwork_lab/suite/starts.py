"""What every task is fine-tuned from: a network without its head.

A start is named by an architecture (pretrained here, on Tiny-ImageNet; needs a GPU), a public network, or a model folder.
"""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from brickwork import store, zoo
from brickwork.algebra import repair
from brickwork.algebra.alignment import has_statistics
from brickwork.errors import BadModel, RequestError
from brickwork.origin import Preprocessing, attach, origin_of
from brickwork_lab import public_networks
from brickwork_lab.lab import Lab
from brickwork_lab.suite.tasks import SIDE, refuse_missing

#: the starts of a full run, and what they are built with
STARTS: dict[str, dict[str, Any]] = {
    "resnet18": {"stem": "cifar"},
    "vit_small": {"image_size": SIDE, "patch_size": 8, "dim": 384, "depth": 12, "heads": 6, "mlp_ratio": 4.0},
}
PRETRAINING = "tiny_imagenet"
#: how they are pretrained; not yet run: it needs a GPU
RECIPES: dict[str, dict[str, Any]] = {
    "resnet18": {"epochs": 60, "batch_size": 256, "lr": 0.1, "weight_decay": 5e-4, "label_smoothing": 0.1},
    "vit_small": {"epochs": 200, "batch_size": 512, "lr": 1e-3, "optimizer": "adamw", "weight_decay": 0.05},
}
SMOKE: dict[str, Any] = {"arch": "resnet8", "width": 4}


@dataclass(frozen=True)
class Start:
    """A trunk, which answers with features, and how many those are."""

    name: str
    trunk: nn.Module
    features: int

    @property
    def digest(self) -> str:
        return state_digest(self.trunk)


def load_start(lab: Lab, name: str, *, side: int = SIDE) -> Start:
    """By the name of a public network or an architecture, or from a model folder."""
    if not lab.full:
        model = _digits(lab)
    elif name in public_networks.NETWORKS:
        model = public_networks.load(name, lab.networks)
    elif (Path(name) / "config.json").is_file():
        model = store.load(name)
    elif name in STARTS:
        model = _pretrained(lab, name)
    else:
        known = ", ".join([*STARTS, *public_networks.NETWORKS])
        raise RequestError(f"start is {name!r}; it must be {known}, or a model folder (one with a config.json).")
    prepared = origin_of(model).preprocessing
    if prepared is None:
        raise BadModel(f"the start {name} does not say how it prepares images; save it with a preprocessing.")
    if lab.full:
        prepared = replace(prepared, size=(side, side))
    trunk, features = without_head(model)
    attach(trunk, replace(origin_of(model), preprocessing=prepared, classes=None))
    return Start(name, trunk.to(lab.where).eval(), features)


def without_head(model: nn.Module) -> tuple[nn.Module, int]:
    """A copy that answers with what its last linear layer reads, and how many numbers that are."""
    trunk = copy.deepcopy(model)
    linear = [(path, m) for path, m in trunk.named_modules() if isinstance(m, nn.Linear)]
    if not linear:
        raise BadModel("the start has no linear layer that could be its head.")
    path, head = linear[-1]
    trunk.set_submodule(path, nn.Identity())
    return trunk, head.in_features


def with_statistics(trunk: nn.Module, images: np.ndarray) -> nn.Module:
    """Batch-norm statistics of these images; the network itself where it has none."""
    return repair(trunk, images).eval() if has_statistics(trunk) else trunk


def state_digest(model: nn.Module) -> str:
    """Of all numbers of a network."""
    state = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        state.update(name.encode())
        state.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return state.hexdigest()


def _pretrained(lab: Lab, name: str) -> nn.Module:
    refuse_missing([PRETRAINING])
    if lab.where.type != "cuda":
        raise RequestError(
            f"pretraining {name} on {PRETRAINING} takes hours on a GPU and days without; give `device` cuda, a model "
            "folder as `start`, or a public network."
        )

    def make() -> nn.Module:
        lab64 = replace(lab, shape=(SIDE, 3), _sets={}, _networks={})
        images = lab64.data(PRETRAINING)
        model = zoo.build(name, num_classes=len(images.classes), seed=lab.seed, **STARTS[name])
        return lab64.taught(model, images, PRETRAINING, augment="crop+flip", **RECIPES[name])

    return lab.kept(f"{name}-{PRETRAINING}-{lab.seed}", make, study="eight-tasks", seed=lab.seed)


def _digits(lab: Lab) -> nn.Module:
    """Half trained on all digits, as they stand."""
    images = lab.data("digits@40")
    arguments = {n: v for n, v in SMOKE.items() if n != "arch"}
    model = zoo.build(SMOKE["arch"], num_classes=10, in_channels=1, seed=lab.seed, **arguments)
    return lab.taught(model, images, "digits", epochs=2, batch_size=32, lr=0.05, augment="none")


def prepared_of(start: Start) -> Preprocessing:
    prepared = origin_of(start.trunk).preprocessing
    assert prepared is not None
    return prepared
