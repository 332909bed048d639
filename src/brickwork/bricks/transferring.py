"""`transfer`: to images of another kind, colour to grey, training only what belongs to no class (paper 2, §A.5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.plan import CLASSES, Blueprint
from brickwork.bricks.options import TransferOptions
from brickwork.bricks.samples import Data
from brickwork.bricks.subject import prepare
from brickwork.devices import DeviceLike, device_of
from brickwork.errors import RequestError
from brickwork.options import takes
from brickwork.origin import origin_of, record_step
from brickwork.training import TrainingResult, train


@dataclass(frozen=True)
class Transferred:
    """A trained copy, and the share of its parameters that were free to change."""

    model: nn.Module = field(repr=False)
    options: TransferOptions
    free: float
    training: TrainingResult = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        return {"free": self.free, **self.training.to_dict()}


@takes(TransferOptions)
def transfer(
    model: nn.Module,
    data: Data,
    *,
    routes: Data | None = None,
    validation: tuple[Any, ...] | None = None,
    device: DeviceLike | None = None,
    progress: bool = True,
    options: TransferOptions,
) -> Transferred:
    """A copy of `model` trained on images of another kind; the model itself is left unchanged.

    what: "independent" trains the channels on no class's route and holds the others, and the last layer, exactly as
    they are (batch-norm statistics follow the new images in both); "all" trains everything.
    routes: the images the network knows, to find the routes on; `data` itself by default. validation: (images, labels)
    to judge by after every epoch.

    >>> from brickwork import data, zoo
    >>> digits = data.load("digits:0-2@20", size=8, channels=1)
    >>> net = zoo.build("lenet", num_classes=3, in_channels=1, seed=0)
    >>> moved = transfer(net, digits, epochs=1, attribution="taylor", progress=False)
    >>> 0 < moved.free < 1  # the share of the parameters that may change
    True
    """
    seed = options.seed
    if options.what == "all" and routes is not None:
        raise RequestError("`routes` find what to hold, and `what` all holds nothing; leave one out.")
    subject = prepare(model, None, data if routes is None else routes, device=device, output=None, seed=seed)
    target = subject if routes is None else prepare(model, None, data, device=device, output=None, seed=seed)
    pupil, handles, free = subject.whole, [], 1.0
    training = options.training(pupil)
    if options.what == "independent":
        scores = subject.score(options.attribution, options.scored, seed, progress)
        routes_of = scores.routes(options.threshold)
        held = {name: np.asarray(mask.any(0)) for name, mask in routes_of.items()}
        masks = free_entries(subject.bp, held, dict(pupil.named_parameters()))
        free = float(sum(m.sum() for m in masks.values()) / sum(m.numel() for m in masks.values()))
        if free == 0:
            raise RequestError("every channel is on the route of a class; give a larger `threshold`.")
        handles = [p.register_hook(_Hold(masks[name])) for name, p in pupil.named_parameters() if name in masks]
        training["weight_decay"] = 0.0  # decay would move what is held
    try:
        result = train(
            pupil,
            target.samples.images,
            target.samples.labels,
            device=subject.samples.device,
            validation=validation,
            progress=progress,
            **training,
        )
    finally:
        for handle in handles:
            handle.remove()
    record_step(pupil, "transfer", options.to_dict() | training | {"free": free}, before=origin_of(model).provenance)
    return Transferred(pupil.eval().to(device_of(model)), options, free, result)


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
