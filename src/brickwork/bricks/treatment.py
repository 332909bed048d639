"""`treat`: fine-tune with the route of each class as a constraint (paper 2, §6.4).

A class's probability should depend on the channels of its own route alone. The share of the derivative that lies
outside the route, averaged over the layers, is added to the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.plan import Blueprint
from brickwork.bricks.depth import spaces_above
from brickwork.bricks.options import TreatOptions
from brickwork.bricks.samples import Data
from brickwork.bricks.subject import Subject, prepare
from brickwork.devices import DeviceLike, device_of
from brickwork.errors import RequestError
from brickwork.moments.layers import find_layers
from brickwork.options import takes
from brickwork.origin import origin_of, record_step
from brickwork.training import TrainingResult, train


@dataclass(frozen=True)
class TreatmentRule:
    """Which derivative of which layers is held to the routes."""

    name: str
    about: str
    measure: Callable[[Tensor], Tensor]
    layers: str  # "all", "last" (convolution) or "none"


RULES = {
    rule.name: rule
    for rule in (
        TreatmentRule("route", "paper 2: positive derivatives, every layer", lambda g: g.clamp(min=0), "all"),
        TreatmentRule("doctor", "Model Doctor: absolute derivatives, the last convolution", torch.abs, "last"),
        TreatmentRule("plain", "fine-tuning alone", torch.abs, "none"),
    )
}


@dataclass(frozen=True)
class Treated:
    """A fine-tuned copy and how its training went."""

    model: nn.Module = field(repr=False)
    options: TreatOptions
    on_route: dict[str, float]  # of each layer, the share of channels on the route of a class, averaged over classes
    training: TrainingResult = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        return {"rule": self.options.rule, "on_route": self.on_route, **self.training.to_dict()}

    def __str__(self) -> str:
        return f"treated by {self.options.rule}: {self.training}"


@takes(TreatOptions)
def treat(
    model: nn.Module, data: Data, *, device: DeviceLike | None = None, progress: bool = True, options: TreatOptions
) -> Treated:
    """A fine-tuned copy of `model`; the model itself is left unchanged.

    rule: "route" (paper 2: the positive derivative of the class's probability, every layer down to `depth`), "doctor"
    (Model Doctor: the absolute one, the last convolution only) or "plain" (no constraint).
    threshold: a channel is on a class's route if its score exceeds this × the layer's mean.

    >>> from brickwork import data, zoo
    >>> digits = data.load("digits:0-2@20", size=8, channels=1)
    >>> net = zoo.build("lenet", num_classes=3, in_channels=1, seed=0)
    >>> better = treat(net, digits, epochs=1, attribution="taylor", progress=False)
    >>> better.model is not net, len(better.training.history)
    (True, 1)
    """
    strength = 0.1 if options.strength is None else options.strength
    subject = prepare(model, None, data, device=device, output=None, seed=options.seed)
    chosen = RULES[options.rule]
    patient = subject.whole
    routes: dict[str, np.ndarray] = {}
    points: dict[str, tuple[int, Tensor]] = {}
    if chosen.layers != "none":
        cuttable = spaces_above(subject.bp, options.depth)
        scores = subject.score(options.attribution, options.scored, options.seed, progress)
        routes = scores.within(cuttable).routes(options.threshold)
        points = _points(subject, routes)
    if chosen.layers == "last":
        points = dict([max(points.items(), key=lambda item: item[1][0])])
    watch = _Watch(patient, {path: mask for path, (_, mask) in points.items()}, chosen, strength)
    where, training = subject.samples.device, options.training(patient)
    try:
        result = train(
            patient,
            subject.samples.images,
            subject.samples.labels,
            device=where,
            penalty=watch.penalty if points and strength > 0 else None,
            progress=progress,
            **training,
        )
    finally:
        watch.remove()
    patient.eval().to(device_of(model))
    record_step(
        patient,
        "treat",
        options.to_dict() | training | {"strength": None if chosen.layers == "none" else strength},
        before=origin_of(model).provenance,
    )
    shares = {name: round(float(mask.mean()), 4) for name, mask in routes.items()}
    return Treated(patient, options, shares, result)


def _points(subject: Subject, routes: dict[str, np.ndarray]) -> dict[str, tuple[int, Tensor]]:
    """For every layer (behind its batch norm, if it has one) its number and which channels are on whose route."""
    result = {}
    for number, layer in enumerate(find_layers(subject.bp.graph, subject.whole)):
        mask = _mask(subject.bp, layer.output, routes)
        if mask is not None and layer.op is not None:
            result[layer.norm or layer.path] = number, mask.to(subject.samples.device)
    if not result:
        raise RequestError("no convolution of the network has a route; choose a smaller depth.")
    return result


def _mask(bp: Blueprint, value: Any, routes: dict[str, np.ndarray]) -> Tensor | None:
    channels = bp.channels(value)
    if channels is None or channels[1] != 1:
        return None
    columns = []
    for unit in channels[0]:
        space, place = bp.place(int(unit)) if bp.has_place(int(unit)) else ("", 0)
        if space not in routes:
            return None
        columns.append(routes[space][:, place])
    return torch.from_numpy(np.stack(columns, 1)).float()


class _Watch:
    """Keeps what the watched layers answered in the last forward pass, and weighs the derivatives there."""

    def __init__(self, model: nn.Module, masks: dict[str, Tensor], rule: TreatmentRule, strength: float) -> None:
        self.masks, self.rule, self.strength = masks, rule, strength
        self.seen: dict[str, Tensor] = {}
        self.hooks = [model.get_submodule(path).register_forward_hook(self._keep(path)) for path in masks]

    def _keep(self, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
            self.seen[path] = output

        return hook

    def penalty(self, images: Tensor, logits: Tensor, target: Tensor) -> Tensor:
        """strength × the share of the derivative outside the image's own class's route."""
        probability = logits.float().softmax(1).gather(1, target[:, None]).sum()
        features = [self.seen[path] for path in self.masks]
        gradients = torch.autograd.grad(probability, features, create_graph=True)
        total = logits.new_zeros((), dtype=torch.float32)
        for gradient, mask in zip(gradients, self.masks.values(), strict=True):
            size = self.rule.measure(gradient.float()).flatten(2).sum(2)
            total = total + (size * (1 - mask[target])).sum() / size.sum().clamp(min=1e-12)
        return self.strength * total / len(features)

    def remove(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.seen.clear()
