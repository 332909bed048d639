"""New classes from a branch that is trained beside a frozen network: the known logits stay, to the bit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.data.pixels import as_input, check_raw, fitted
from brickwork.data.streamed import tensor_of
from brickwork.dependencies.branching import BranchedClasses, branched_classes, branching_place
from brickwork.devices import device_of
from brickwork.errors import BadData, BadModel
from brickwork.origin import Preprocessing, attach, origin_of
from brickwork.prediction import input_of
from brickwork.training import TrainOptions, resolve, train

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
    settings: Mapping[str, Any] | None = None,
) -> BranchedClasses:
    """A copy of `model` with a branch for further classes, trained by the cross-entropy over all classes.

    head: its last linear layer. images, labels: of the known classes and of the new ones, each numbered from 0. names: of
    all classes. at: the layer to branch off behind, by default the deepest that leaves something to learn. settings: of
    brickwork.training.train; what is not given comes from the network's recipe. All of the branch learns, also where the
    model is frozen.
    """
    asked = TrainOptions.from_dict(settings or {}, "option of training")
    odd = next((n for n, p in model.named_parameters() if p.is_floating_point() and p.dtype != torch.float32), None)
    if odd is not None:
        raise BadModel(
            f"{odd} is {model.get_parameter(odd).dtype}; a branch is trained in float32, so take model.float()."
        )
    known = int(model.get_submodule(head).out_features)  # type: ignore[arg-type]
    origin = origin_of(model)
    at = at or branching_place(model, input_of(model, images[1][:2]), head)
    grown = branched_classes(model, at, head, len(names) - known, names)
    saved = origin_of(grown)
    pixels = _one_array(images, origin.preprocessing)
    # a network without preprocessing reads raw images on the 0..1 scale
    prepared = origin.preprocessing or Preprocessing(channels=pixels.shape[3])
    usual = resolve(asked, origin.arch, len(pixels))
    few = math.ceil(STEPS * usual.batch_size / len(pixels))
    epochs = asked.epochs or max(LEAST, math.ceil(usual.epochs / SHARE), few)
    targets = torch.cat([torch.as_tensor(labels[0]).long(), torch.as_tensor(labels[1]).long() + known])
    wanted = [(p, p.requires_grad) for p in grown.parameters()]
    for part, learns in ((grown.model, False), (grown.branch, True)):
        for p in part.parameters():
            p.requires_grad_(learns and p.is_floating_point())
    try:
        train(
            grown,
            pixels,
            targets,
            device=device_of(model),
            preprocessing=prepared,
            progress=progress,
            record=True,
            options=replace(usual, epochs=epochs, seed=seed),
        )
    finally:
        for p, was in wanted:
            p.requires_grad_(was)
    attach(grown, saved)
    return grown.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def _one_array(images: Sequence[Any], preprocessing: Preprocessing | None) -> Tensor:
    """Images of known and of new classes as one array: raw ones as the network reads them but for mean and spread."""
    parts = [tensor_of(part).cpu() for part in images]
    if any(part.is_floating_point() for part in parts):
        parts = [as_input(part, preprocessing) for part in parts]
    else:
        for part in parts:
            check_raw(part)
        if preprocessing is not None:
            parts = [fitted(part.permute(0, 3, 1, 2), preprocessing).permute(0, 2, 3, 1) for part in parts]
    if parts[0].shape[1:] != parts[1].shape[1:]:
        known, new = (tuple(part.shape[1:]) for part in parts)
        raise BadData(f"images of known classes are {known} and of new ones {new}; a branch is trained on one shape.")
    return torch.cat(parts)
