"""What the studies of paper 1 share: tasks, starts, networks trained from them (kept in a folder, if wanted)."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork import data, zoo
from brickwork.data.images import ImageData
from brickwork.origin import Preprocessing, attach, origin_of
from brickwork.training import train
from brickwork_lab.studies.kept import kept
from brickwork_lab.studies.registry import Run

#: the ten classes of CIFAR-100 that the paper names (appendix A.1)
NAMED = ("seal", "man", "palm_tree", "woman", "wardrobe", "beaver", "plain", "pickup_truck", "skyscraper", "possum")
#: images a class that are trained on; None: all
SCALES: dict[str, int | None] = {"small": 4, "medium": 100, "large": None}


@dataclass
class Family(Run):
    """Networks of one architecture. Smoke: digits of 16×16 pixels; full: 32×32 colour images."""

    outputs: int = 10
    _sets: dict[str, ImageData] = field(default_factory=dict)
    _nets: dict[str, nn.Module] = field(default_factory=dict)

    def again(self, number: int) -> Family:
        """The same with another seed: other starts, other draws of images; sets that are loaded stay loaded."""
        return replace(self, seed=self.seed + number, _nets={})

    def data(self, spec: str) -> ImageData:
        if spec not in self._sets:
            size, channels = (32, 3) if self.full else (16, 1)
            self._sets[spec] = data.load(spec, size=size, channels=channels, progress=self.progress)
        return self._sets[spec]

    def scaled(self, spec: str, scale: str) -> ImageData:
        """A task at a scale; the images of a smaller scale are among those of a larger one."""
        amount = SCALES[scale]
        return self.data(spec) if amount is None else self.data(spec).take(amount, seed=self.seed)

    def start(
        self, arch: str, number: int, prepared: Preprocessing, *, outputs: int | None = None, **args: Any
    ) -> nn.Module:
        """A network as it is born; number 0 is θ₀, and other numbers are other starts."""
        seed, channels = 100 * self.seed + number, 3 if self.full else 1
        model = zoo.build(arch, num_classes=outputs or self.outputs, in_channels=channels, seed=seed, **args)
        attach(model, replace(origin_of(model), preprocessing=prepared))
        return model.to(self.where)

    def trained(
        self,
        name: str,
        start: nn.Module,
        images: ImageData,
        recipe: dict[str, Any],
        *,
        hold: tuple[str, ...] = (),
        **options: Any,
    ) -> nn.Module:
        """A copy of `start` trained on these images; parameters whose names begin with one of `hold` stay as they are.

        `name` and the recipe are what it is kept under.
        """
        settings = {"weight_decay": 0.0, "label_smoothing": 0.0, "augment": "none", **recipe, "seed": self.seed}
        settings["batch_size"] = min(settings["batch_size"], len(images.train_labels))

        def make() -> nn.Module:
            model = copy.deepcopy(start)
            for parameter, value in model.named_parameters():
                value.requires_grad_(not parameter.startswith(hold) if hold else True)
            train(
                model,
                images.train_images,
                images.train_labels,
                classes=images.classes,
                preprocessing=origin_of(start).preprocessing,
                device=self.where,
                progress=self.progress,
                **settings,
                **options,
            )
            model.requires_grad_(True)
            return model.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

        facts = {**settings, "images": images.name, "of": len(images.train_labels)}
        return self.kept(name, facts | ({"hold": list(hold)} if hold else {}), make)

    def kept(self, name: str, facts: dict[str, Any], make: Callable[[], nn.Module]) -> nn.Module:
        """The network of this name, made now or found in the folder of networks; other facts, another folder."""
        sign = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
        key = f"{name}-{self.seed}-{sign}"
        if key not in self._nets:
            self._nets[key] = kept(self.networks, key, self.where, make, study=facts)
        return self._nets[key]


def plain_pixels(images: ImageData) -> Preprocessing:
    """Pixels from 0 to 1, no mean taken off: what reproduces the paper's Table 1."""
    height, width, channels = images.shape
    return Preprocessing((height, width), channels, (0.0,) * channels, (1.0,) * channels)


def mean(values: list[float], digits: int = 4) -> float:
    return round(float(np.mean(values)), digits)
