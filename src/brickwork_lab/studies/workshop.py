"""What the studies of paper 2 share: data, trained networks (kept in a folder, if wanted), and how results are read."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork import data, zoo
from brickwork.bricks.brick import Brick
from brickwork.data.images import ImageData
from brickwork.data.pixels import as_input
from brickwork.errors import UnknownName
from brickwork.evaluation import auroc, evaluate_data
from brickwork.latency import latency
from brickwork.origin import origin_of
from brickwork.prediction import predict
from brickwork.training import settings_for, train
from brickwork_lab.studies.kept import kept
from brickwork_lab.studies.registry import Run

#: How the networks of these studies are trained. Parts are compared across networks that never saw each other's
#: classes, and over-trained networks are sure of everything: two VGG-16 on the halves of CIFAR-10, side by side on
#: A0-2,B3-4, have 89.3 % after 80 epochs of batches of 1024, 89.6 % after 40 of 512, 90.2 % after 30 of 128 (and
#: 87.4 % with twice the weight decay), though the first are the better ones on their own halves (H200, 2026-11-15).
#: ResNet-50: 89.7 % after 40 epochs of 512, 89.9 % after 25 of 256 at a rate of 0.1, 88.3 % after 30 of 256 at 0.05;
#: 89.5 % after 30 of 128 at 0.05, 90.9 % after 30 of 128 at 0.1. One seed each, judged on test images.
RECIPES: dict[str, dict[str, Any]] = {
    "vgg16": {"epochs": 30, "batch_size": 128, "lr": 0.05},
    "simplenetv1": {"epochs": 30, "batch_size": 128, "lr": 0.05},
    "resnet50": {"epochs": 30, "batch_size": 128, "lr": 0.1},
    "resnet18": {"epochs": 20, "batch_size": 512, "lr": 0.2},
}
SMOKE = {"epochs": 8, "batch_size": 32, "lr": 5e-3}


@dataclass
class Workshop(Run):
    """One run's place of work."""

    _sets: dict[str, ImageData] = field(default_factory=dict)
    _nets: dict[tuple[str, str, int], nn.Module] = field(default_factory=dict)

    def archs(self, asked: tuple[str, ...] | None, default: tuple[str, ...]) -> tuple[str, ...]:
        return asked or (default if self.full else ("lenet",))

    def data(self, spec: str) -> ImageData:
        if spec not in self._sets:
            size: dict[str, Any] = {} if self.full else {"size": 16, "channels": 1}
            self._sets[spec] = data.load(spec, **size)
        return self._sets[spec]

    def chosen(self, source: str, names: tuple[str, ...]) -> ImageData:
        """Images of some classes of a set, by name."""
        whole = self.data(source)
        return whole.select([whole.classes.index(name) for name in names])

    def network(self, arch: str, spec: str) -> nn.Module:
        """A network trained on a half of a set; both halves prepare images alike, so that parts can be interleaved."""
        number = 2 * self.seed + spec.endswith("B")  # halves never start from the same weights
        key = (arch, spec, number)
        if key not in self._nets:
            name = f"{arch}-{spec.replace(':', '-')}-{number}"
            self._nets[key] = kept(
                self.networks, name, self.where, lambda: self._trained(arch, spec, number), study=spec, seed=number
            )
        return self._nets[key]

    def recipe(self, arch: str) -> dict[str, Any]:
        """What these studies train with, beside the architecture's own settings."""
        return RECIPES.get(arch, {}) if self.full else SMOKE

    def _trained(self, arch: str, spec: str, seed: int) -> nn.Module:
        images = self.data(spec)
        source = data.parse(spec).source
        model = zoo.build(arch, num_classes=len(images.classes), seed=seed, in_channels=images.shape[2])
        recipe = self.recipe(arch)
        settings = settings_for(arch, len(images.train_labels), source, seed=seed, label_smoothing=0.0, **recipe)
        train(
            model,
            images.train_images,
            images.train_labels,
            classes=images.classes,
            preprocessing=self.data(source).preprocessing(),
            device=self.where,
            progress=self.progress,
            record=True,
            **settings.to_dict(),
        )
        return model.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def latency_ratio(self, part: nn.Module, wholes: Sequence[nn.Module], images: ImageData) -> float:
        """Time of a forward pass, part ÷ whole networks one after another; 256 images on a GPU, 16 elsewhere.

        Measured in turns, the fastest of each counting: other work on the machine slows both alike.
        """
        count = 256 if self.where.type == "cuda" else 16
        batch = as_input(images.test_images[:count], origin_of(wholes[0]).preprocessing, self.where)
        times: dict[int, list[float]] = {}
        for _ in range(5):
            for k, model in enumerate((part, *wholes)):
                times.setdefault(k, []).append(latency(model, batch, repeat=3, warm_up=1))
        best = [min(found) for found in times.values()]
        return round(best[0] / sum(best[1:]), 4)

    def fine_tuned(self, model: nn.Module, images: ImageData, *, epochs: int = 1, lr: float = 0.01) -> nn.Module:
        """A copy trained for an epoch more, with labels: the paper's `ep.+1`.

        Parts that never stood side by side have something to learn; a part of one network has only to lose: at a rate of
        0.01, 0.003, 0.001 half a VGG-16 on half of CIFAR-100 goes from 74.84 to 73.64, 74.48, 74.76 %.
        """
        pupil = copy.deepcopy(model)
        names = origin_of(model).classes or images.classes
        order = images.select([images.classes.index(name) for name in names])
        augment = "crop+flip" if self.full else "none"
        train(
            pupil,
            order.train_images,
            order.train_labels,
            epochs=epochs,
            batch_size=128 if self.full else 16,
            lr=lr,
            schedule="cosine",
            weight_decay=5e-4,
            augment=augment,
            seed=self.seed,
            device=self.where,
            record=True,
            progress=self.progress,
        )
        return pupil.eval()


def places(text: str, count: int) -> list[int]:
    """Classes by their number within a half, whatever they are called.

    >>> places("0-1,4", 5)
    [0, 1, 4]
    """
    return data.class_indices(text, [f"class {k}" for k in range(count)])


def some_of(known: dict[str, Any], asked: tuple[str, ...] | None) -> dict[str, Any]:
    """The picks that were asked for by name; all without."""
    for name in asked or ():
        if name not in known:
            raise UnknownName("pick of classes", name, known)
    return {name: pick for name, pick in known.items() if not asked or name in asked}


def accuracy(model: nn.Module, images: ImageData) -> float:
    """Percent of the test images, classes found by name."""
    return round(100 * evaluate_data(model, images).accuracy, 2)


def restricted(model: nn.Module, images: ImageData) -> float:
    """Percent of the test images that a network tells apart if it may answer these classes only."""
    known = origin_of(model).classes or ()
    logits = predict(model, images.test_images)[:, [known.index(name) for name in images.classes]]
    return percent(logits, images)


def side_by_side(models: list[nn.Module], images: ImageData) -> float:
    """The same for several whole networks, each class judged by the network that knows it."""
    names = [name for model in models for name in origin_of(model).classes or ()]
    logits = torch.cat([predict(model, images.test_images) for model in models], 1)
    return percent(logits[:, [names.index(name) for name in images.classes]], images)


def percent(logits: torch.Tensor, images: ImageData) -> float:
    return round(100 * float((logits.argmax(1).numpy() == images.test_labels).mean()), 2)


def one_against_rest(model: nn.Module, name: str, images: ImageData) -> float:
    """Percent AUROC of a class's logit on the test images of all classes: a part of one class is always `right`."""
    known = origin_of(model).classes or ()
    logits = predict(model, images.test_images)[:, known.index(name)]
    found = auroc(logits, torch.from_numpy(images.test_labels == images.classes.index(name)))
    return round(100 * float(found or 0), 2)


def facts_of(brick: Brick) -> dict[str, Any]:
    """What stands beside every accuracy: what was kept."""
    widths = {name: len(ids) for name, ids in brick.kept.items()}
    return {"parameters": round(brick.parameters, 4), "flops": round(brick.macs, 4), "widths": widths}


def mean_facts(bricks: list[Brick]) -> dict[str, float]:
    return {
        "parameters": round(float(np.mean([b.parameters for b in bricks])), 4),
        "flops": round(float(np.mean([b.macs for b in bricks])), 4),
    }
