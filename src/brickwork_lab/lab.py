"""Where a study works: its data, its trained networks (kept in a folder, if wanted), fine-tuning and timing."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brickwork import data, store, zoo
from brickwork.data.images import ImageData
from brickwork.data.pixels import as_input
from brickwork.devices import pick
from brickwork.latency import latency
from brickwork.origin import Preprocessing, attach, origin_of
from brickwork.training import TrainOptions, resolve
from brickwork.training import train as train_model

#: How `network` trains. Parts are compared across networks that never saw each other's
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
#: of sets whose images are large: four times the pixels and twice the images of CIFAR-100
SHORTER: dict[str, dict[str, Any]] = {"tiny_imagenet": {"epochs": 20}}
#: paper 2's VGG-16, by its authors' code (models/vgg.py since its first commit): more than half of its weights are linear
HEADS: dict[str, dict[str, Any]] = {"vgg16": {"hidden": 4096, "dropout": 0.5}}
#: a stem for small images would cost ResNet-50 four times what it costs on CIFAR
STEMS: dict[tuple[str, str], dict[str, Any]] = {("resnet50", "tiny_imagenet"): {"stem": "imagenet"}}
#: of networks that are made for images of one size: the digits of 16 pixels
SMALLER: dict[str, dict[str, Any]] = {"vit_small": {"image_size": 16, "patch_size": 4, "depth": 2}}
SMOKE = {"epochs": 8, "batch_size": 32, "lr": 5e-3}
AUGMENTED: dict[str, Any] = {"augment": "crop+flip", "weight_decay": 5e-4, "schedule": "onecycle"}
#: training images per class; None: all
SCALES: dict[str, int | None] = {"small": 4, "medium": 100, "large": None}


@dataclass
class Lab:
    """One run of a study: on real image sets (`full`), or on digits of 16×16 pixels in seconds."""

    full: bool
    seed: int = 0
    device: str = "auto"
    progress: bool = True
    networks: str | None = None  # the folder where trained networks are kept and found again
    shape: tuple[int, int] | None = None  # side and channels of every image in a full run; None: as the set has them
    _sets: dict[str, ImageData] = field(default_factory=dict)
    _networks: dict[str, nn.Module] = field(default_factory=dict)

    @property
    def where(self) -> torch.device:
        return pick(self.device)

    def reseeded(self, number: int) -> Lab:
        """The same with another seed: other starts, other draws of images; sets that are loaded stay loaded."""
        return replace(self, seed=self.seed + number, _networks={})

    def in_colour(self) -> Lab:
        """The same where a full run has every set as 32×32 colour images."""
        return replace(self, shape=(32, 3), _sets={}, _networks={})

    def data(self, spec: str) -> ImageData:
        if spec not in self._sets:
            shape = self.shape if self.full else (16, 1)
            fit: dict[str, Any] = {} if shape is None else {"size": shape[0], "channels": shape[1]}
            self._sets[spec] = data.load(spec, progress=self.progress, **fit)
        return self._sets[spec]

    def classes_of(self, source: str, names: Sequence[str]) -> ImageData:
        """Images of some classes of a set, by name."""
        whole = self.data(source)
        return whole.select([whole.classes.index(name) for name in names])

    def scaled(self, spec: str, scale: str) -> ImageData:
        """A task at a scale; the images of a smaller scale are among those of a larger one."""
        amount = SCALES[scale]
        return self.data(spec) if amount is None else self.data(spec).take(amount, seed=self.seed)

    def archs(self, asked: tuple[str, ...] | None, default: tuple[str, ...]) -> tuple[str, ...]:
        return asked or (default if self.full else ("lenet",))

    def cases(
        self, sets: tuple[str, ...] | None, archs: tuple[str, ...] | None, default: tuple[str, ...]
    ) -> Iterator[tuple[str, str]]:
        """Every set with every network."""
        for source in sets or (("cifar10",) if self.full else ("digits",)):
            for arch in self.archs(archs, default):
                yield source, arch

    def kept(self, name: str, make: Callable[[], nn.Module], **provenance: Any) -> nn.Module:
        """The network of this name, made once; found again in the folder of networks, if there is one."""
        if name not in self._networks:
            folder = None if self.networks is None else Path(self.networks) / name
            if folder is not None and (folder / "config.json").exists():
                self._networks[name] = store.load(folder, device=self.where)
            else:
                self._networks[name] = make()
                if folder is not None:
                    store.save(self._networks[name], folder, force=True, provenance=provenance)
        return self._networks[name]

    def recipe(self, arch: str, source: str | None = None) -> dict[str, Any]:
        """What `network` trains with on a set, beside the architecture's own settings."""
        return {**RECIPES.get(arch, {}), **SHORTER.get(source or "", {})} if self.full else SMOKE

    def arguments(self, arch: str, source: str) -> dict[str, Any]:
        """What `network` builds an architecture with for a set."""
        return {**HEADS.get(arch, {}), **STEMS.get((arch, source), {})} if self.full else SMALLER.get(arch, {})

    def network(self, arch: str, spec: str) -> nn.Module:
        """A network trained on a half of a set; both halves prepare images alike, so that parts can be interleaved."""
        seed = 2 * self.seed + spec.endswith("B")  # halves never start from the same weights
        source = data.parse(spec).source
        arguments = self.arguments(arch, source)

        def make() -> nn.Module:
            images = self.data(spec)
            given = {"in_channels": images.shape[2], **arguments}
            model = zoo.build(arch, num_classes=len(images.classes), seed=seed, **given)
            return self.taught(model, images, source, seed=seed, label_smoothing=0.0, **self.recipe(arch, source))

        built = f"-{digest(arguments)[:8]}" if arguments else ""
        return self.kept(f"{arch}-{spec.replace(':', '-')}{built}-{seed}", make, study=spec, seed=seed)

    def taught(
        self, model: nn.Module, images: ImageData, source: str, *, record: bool = True, **recipe: Any
    ) -> nn.Module:
        """Trained by its architecture's settings and this recipe, images prepared as the whole set `source` is."""
        given = {"seed": self.seed, **recipe}
        settings = resolve(TrainOptions(**given), origin_of(model).arch, len(images.train_labels), source)
        options = {"classes": images.classes, "preprocessing": self.data(source).preprocessing(), "record": record}
        self.train(model, images, **options, **settings.to_dict())
        return contiguous(model)

    def start(
        self, arch: str, number: int, prepared: Preprocessing, *, outputs: int = 10, **arguments: Any
    ) -> nn.Module:
        """An untrained network; number 0 is θ₀, and other numbers are other starts."""
        seed, channels = 100 * self.seed + number, 3 if self.full else 1
        model = zoo.build(arch, num_classes=outputs, in_channels=channels, seed=seed, **arguments)
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

        It is kept under its name, the seed and a hash of the recipe.
        """
        settings = {"weight_decay": 0.0, "label_smoothing": 0.0, "augment": "none", **recipe, "seed": self.seed}
        settings["batch_size"] = min(settings["batch_size"], len(images.train_labels))

        def make() -> nn.Module:
            model = copy.deepcopy(start)
            for parameter, value in model.named_parameters():
                value.requires_grad_(not parameter.startswith(hold) if hold else True)
            prepared = origin_of(start).preprocessing
            self.train(model, images, classes=images.classes, preprocessing=prepared, **settings, **options)
            return contiguous(model.requires_grad_(True))

        facts = {**settings, "images": images.name, "of": len(images.train_labels)}
        facts |= {"hold": list(hold)} if hold else {}
        return self.kept(f"{name}-{self.seed}-{digest(facts)[:8]}", make, study=facts)

    def train(self, model: nn.Module, images: ImageData, **settings: Any) -> nn.Module:
        """Train this very model on the training images; it comes back ready to be judged."""
        settings = {"seed": self.seed, "device": self.where, "progress": self.progress, **settings}
        train_model(model, images.train_images, images.train_labels, **settings)
        return model.eval()

    @property
    def batches(self) -> dict[str, Any]:
        """How a network that exists is trained on."""
        return {"batch_size": 128, "augment": "crop+flip"} if self.full else {"batch_size": 16, "augment": "none"}

    def fine_tuned(self, model: nn.Module, images: ImageData, *, lr: float = 0.01) -> nn.Module:
        """A copy trained for an epoch more, with labels: the paper's `ep.+1`.

        Parts that never stood side by side have something to learn; a part of one network has only to lose: at a rate of
        0.01, 0.003, 0.001 half a VGG-16 on half of CIFAR-100 goes from 74.84 to 73.64, 74.48, 74.76 %.
        """
        names = origin_of(model).classes or images.classes
        ordered = images.select([images.classes.index(name) for name in names])
        settings = {"epochs": 1, "lr": lr, "schedule": "cosine", "weight_decay": 5e-4, **self.batches}
        return self.train(copy.deepcopy(model), ordered, record=True, **settings)

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
        best = [min(seconds) for seconds in times.values()]
        return round(best[0] / sum(best[1:]), 4)


def contiguous(model: nn.Module) -> nn.Module:
    """In the usual memory order, whatever order it was trained in."""
    return model.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def digest(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
