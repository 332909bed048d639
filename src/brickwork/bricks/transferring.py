"""`transfer`: to images of another kind, colour to grey, training only what belongs to no class (paper 2, §A.5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.plan import CLASSES, Blueprint
from brickwork.bricks.provenance import renewed
from brickwork.bricks.samples import Data
from brickwork.bricks.subject import take_up
from brickwork.errors import RequestError
from brickwork.prediction import device_of
from brickwork.training import TrainingResult, train

WHAT = ("independent", "all")


@dataclass(frozen=True)
class Transferred:
    """A trained copy, and the share of its parameters that were free to change."""

    model: nn.Module = field(repr=False)
    free: float
    training: TrainingResult = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        return {"free": self.free, **self.training.to_dict()}


def transfer(
    model: nn.Module,
    data: Data,
    *,
    what: str = "independent",
    routes: Data | None = None,
    threshold: float = 1.0,
    attribution: str = "frat",
    scored: int = 1000,
    epochs: int = 5,
    lr: float = 0.01,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: bool = True,
    **training: Any,
) -> Transferred:
    """A copy of `model` trained on images of another kind; the model itself is left unchanged.

    what: "independent" trains the channels on no class's route and holds the others, and the last layer, exactly as
    they are (batch-norm statistics follow the new images in both); "all" trains everything.
    routes: the images the network knows, to find the routes on; `data` itself by default.
    """
    if what not in WHAT:
        raise RequestError(f"what is {what!r}; it must be {' or '.join(WHAT)}.")
    if not threshold >= 0:
        raise RequestError(f"threshold is {threshold}; it must be 0 or more.")
    if what == "all" and routes is not None:
        raise RequestError("routes find what to hold, and what='all' holds nothing; leave one out.")
    subject = take_up(model, None, data if routes is None else routes, device=device, output=None, seed=seed)
    target = subject if routes is None else take_up(model, None, data, device=device, output=None, seed=seed)
    pupil, handles, free = subject.whole, [], 1.0
    options = {
        "optimizer": "sgd",
        "batch_size": 128,
        "schedule": "cosine",
        "augment": "none",
        "weight_decay": 5e-4,
        **training,
    }
    if what == "independent":
        routes_of = subject.score(attribution, scored, seed, progress).routes(threshold)
        held = {name: np.asarray(mask.any(0)) for name, mask in routes_of.items()}
        masks = free_entries(subject.bp, held, dict(pupil.named_parameters()))
        free = float(sum(m.sum() for m in masks.values()) / sum(m.numel() for m in masks.values()))
        if free == 0:
            raise RequestError("every channel is on the route of a class; give a larger threshold.")
        handles = [p.register_hook(_Hold(masks[name])) for name, p in pupil.named_parameters() if name in masks]
        options["weight_decay"] = 0.0  # decay would move what is held
    try:
        result = train(
            pupil,
            target.samples.images,
            target.samples.labels,
            epochs=epochs,
            lr=lr,
            seed=seed,
            device=subject.samples.device,
            progress=progress,
            **options,
        )
    finally:
        for handle in handles:
            handle.remove()
    renewed(pupil, "transfer", {"what": what, "threshold": threshold, "free": free, "epochs": epochs, "lr": lr})
    return Transferred(pupil.eval().to(device_of(model)), free, result)


def free_entries(
    bp: Blueprint, on_route: dict[str, np.ndarray], parameters: dict[str, nn.Parameter]
) -> dict[str, Tensor]:
    """For every parameter a mask: 1 where the channel it makes is on no route, 0 where it is held."""
    masks = {}
    for name, parameter in parameters.items():
        layout = bp.axes[name][0] if bp.axes.get(name) else None
        free = torch.zeros(parameter.shape[:1])
        for k, unit in enumerate(() if layout is None else layout.units):
            space, place = bp.place(int(unit)) if bp.has_place(int(unit)) else (CLASSES, 0)
            free[k] = float(space in on_route and not on_route[space][place])
        shaped = free.reshape(-1, *[1] * (parameter.dim() - 1)) if parameter.dim() else free
        masks[name] = shaped.expand(parameter.shape).to(parameter).clone()
    return masks


class _Hold:
    """Gradients of what is held become zero; follows the parameter to its device."""

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def __call__(self, gradient: Tensor) -> Tensor:
        self.mask = self.mask.to(gradient.device)
        return gradient * self.mask
