"""New classes from a branch that is trained beside a frozen network: the known logits stay, to the bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork.blueprint.branching import BranchedClasses, branched_classes, branching_place
from brickwork.data.pixels import as_input
from brickwork.origin import attach, origin_of
from brickwork.prediction import device_of
from brickwork.training import settings_for, train

#: a branch learns for a tenth of the epochs of its network's recipe, three at least, and so many steps at least
SHARE, LEAST, STEPS = 10, 3, 250


def train_branch(
    model: nn.Module,
    head: str,
    images: Sequence[Any],
    labels: Sequence[Any],
    names: Sequence[str],
    *,
    at: str | None = None,
    seed: int = 0,
    progress: bool = False,
    **settings: Any,
) -> BranchedClasses:
    """A copy of `model` with a branch for further classes, trained by the cross-entropy over all classes.

    head: its last linear layer. images, labels: of the known classes and of the new ones, each numbered from 0. names: of
    all classes. at: the layer to branch off behind, by default the deepest that leaves something to learn. settings: of
    brickwork.training.train; what is not given comes from the network's recipe.
    """
    known = int(model.get_submodule(head).out_features)  # type: ignore[arg-type]
    origin, where = origin_of(model), device_of(model)
    at = at or branching_place(model, as_input(images[1][:2], origin.preprocessing, where), head)
    grown = branched_classes(model, at, head, len(names) - known, names)
    saved = origin_of(grown)
    pixels = np.concatenate([np.asarray(part) for part in images])
    usual = settings_for(origin.arch, len(pixels), **settings)
    few = math.ceil(STEPS * usual.batch_size / len(pixels))
    epochs = settings.get("epochs") or max(LEAST, math.ceil(usual.epochs / SHARE), few)
    wanted = [(p, p.requires_grad) for p in grown.parameters()]
    for p in grown.model.parameters():
        p.requires_grad_(False)
    try:
        train(
            grown, pixels, np.concatenate([np.asarray(labels[0]), np.asarray(labels[1]) + known]), device=where,
            progress=progress, record=True, **{**usual.to_dict(), "epochs": epochs, "seed": seed},
        )  # fmt: skip
    finally:
        for p, was in wanted:
            p.requires_grad_(was)
    attach(grown, saved)
    return grown.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
