"""What the segmentation studies of paper 3 work on: groups of breeds of the pets set, and a network for each.

Groups of breeds stand for the paper's categories. A teacher is an FCN-8s for one group, or several, started from one for the
breeds in no group.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork import zoo
from brickwork.blueprint.splitting import Split, split
from brickwork.data.images import IGNORE, ImageData
from brickwork.origin import origin_of
from brickwork.training import TrainOptions, resolve, train
from brickwork.transplant import learn_adapter
from brickwork_lab.lab import Lab, contiguous
from brickwork_lab.studies.transplant_ways import ALL, Way
from brickwork_lab.studies.transplanting import features_of, held_apart, new_adapter

#: the first group has the generic task module
GROUPS = {
    "hounds": "basset_hound beagle english_cocker_spaniel english_setter german_shorthaired",
    "shorthaired-cats": "Abyssinian Bengal Bombay British_Shorthair Egyptian_Mau Russian_Blue Siamese",
    "longhaired-cats": "Birman Maine_Coon Persian Ragdoll",
    "bulldogs": "american_bulldog american_pit_bull_terrier boxer pug staffordshire_bull_terrier",
    "spitzes": "keeshond pomeranian samoyed shiba_inu",
}
SMALL = {"zero": "0", "six": "6"}
SMOKE = {"epochs": 20, "batch_size": 16, "lr": 5e-3, "optimizer": "adamw"}
#: three layers of 3×3, every image also in the mirror, four times the steps with a falling rate
MORE: dict[str, Any] = {"lr": 3e-3, "schedule": "onecycle"}
LONGER = 4  # times the steps


@dataclass
class Breeds:
    """Groups of breeds, a teacher for each, and what a route gets right."""

    lab: Lab
    _halves: dict[str, Split] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.groups, self.source, self.cut = (GROUPS, "pets", "to_8.6") if self.lab.full else (SMALL, "digits", "2")
        if not self.lab.full:  # the small network has no architecture to be built anew by
            self.lab = replace(self.lab, networks=None)
        self.whole, self.held = held_apart(self.lab.data(self.source))

    def images(self, names: str, *, held: bool = False) -> ImageData:
        """Images of groups, as in "hounds+spitzes"; "rest": of the breeds in no group. held: judged by held-out ones."""
        whole = self.held if held else self.whole
        grouped = " ".join(self.groups.values()).split()
        rest = [c for c in whole.classes if c not in grouped]
        wanted = rest if names == "rest" else " ".join(self.groups[name] for name in names.split("+")).split()
        return whole.select([whole.classes.index(name) for name in wanted])

    def halves(self, name: str) -> Split:
        """The group's teacher, cut behind its first pool."""
        if name not in self._halves:
            self._halves[name] = split(self._network(name), self.cut)
        return self._halves[name]

    def _blank(self, channels: int) -> nn.Module:
        """An untrained FCN-8s; at smoke size a network of its kind that trains in seconds."""
        if self.lab.full:
            return zoo.build("fcn8s", num_classes=2, seed=self.lab.seed, in_channels=channels, batch_norm=True)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.lab.seed)
            below = nn.Conv2d(channels, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
            above = nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(24, 2, 4, stride=2, padding=1)
            return nn.Sequential(*below, *above)

    def _network(self, name: str) -> nn.Module:
        lab, images = self.lab, self.images(name)

        def make() -> nn.Module:
            model = self._blank(images.shape[2])
            if lab.full and name != "rest":
                model.load_state_dict(self._network("rest").state_dict())
            epochs = 20 if "+" in name else 40  # several groups have several times the images
            recipe = {"epochs": epochs, "batch_size": 32, "lr": 0.02} if lab.full else SMOKE
            settings = resolve(
                TrainOptions(seed=lab.seed, **recipe), "fcn8s", len(images.train_labels), self.source
            ).to_dict()
            settings |= {"masks": images.train_masks, "device": lab.where, "progress": lab.progress}
            settings["preprocessing"] = lab.data(self.source).preprocessing()
            train(model, images.train_images, None, **settings)
            return contiguous(model)

        return lab.kept(f"held-segment-{name}-{lab.seed}", make)

    def size_of(self, way: Way) -> tuple[int, int]:
        """Layers and kernel of its adapter."""
        return (3, 3) if way.more else (1, 1)

    def steps(self, way: Way) -> int:
        if way.way == "closed-form":
            return 0
        return (400 * (LONGER if way.more else 1)) if self.lab.full else 40

    def looked_at(self, way: Way, amount: int, names: list[str]) -> dict[str, int]:
        """How many images with masks an adapter learns from, and how many without, in the mean over groups."""
        each = [len(self.images(name).train_images) for name in names]
        given = [count if amount == ALL else min(amount, count) for count in each]
        further = [count if way.unlabelled == ALL else min(way.unlabelled, count) for count in each]
        numbers = (given, further) if way.uses_labels else ([0], np.add(given, further))
        return dict(zip(("labels", "unlabelled"), (round(float(np.mean(n))) for n in numbers), strict=True))

    def learned(self, name: str, served: str, way: Way, amount: int) -> nn.Module:
        """An adapter from a group to the task module of others, after learning from so many images."""
        images, mine, student = self.images(name), self.halves(name), self.halves(served)
        # β is of both sets of images: the group's, and those of the groups that are served already
        features = self.features(mine.below, images.train_images[:100])
        wanted = self.features(student.below, self.images(served).train_images[:100])
        layers, kernel = self.size_of(way)
        adapter = new_adapter(self.lab, features, wanted, start=way.start, layers=layers, kernel=kernel)
        given: dict[str, Any] = {"example": features[:1], "batch_size": 10, **way.options}
        if amount:
            seen, masks = self._some(images, amount, mirrored=bool(way.more))
            few = self.features(mine.below, seen)
            given |= {"features": few, "labels": torch.from_numpy(masks)} if way.uses_labels else {"unlabelled": few}
        if way.unlabelled:
            count = ALL if way.unlabelled == ALL else min(way.unlabelled, len(images.train_images))
            plain, _ = self._some(images, count, mirrored=bool(way.more))
            given["unlabelled"] = self.features(mine.below, plain)
        given |= MORE if way.more and self.lab.full else {}
        given |= {"steps": self.steps(way)} if self.steps(way) else {}
        given["input_shape"] = (1, images.shape[2], *images.shape[:2])
        common: dict[str, Any] = {"way": way.way, "teacher": mine.above, "seed": self.lab.seed, "progress": False}
        return learn_adapter(adapter, student.above, **common, **given).adapter

    def _some(self, images: ImageData, amount: int, *, mirrored: bool) -> tuple[np.ndarray, np.ndarray]:
        """So many training images with their masks, drawn by the seed; mirrored: and each in the mirror."""
        assert images.train_masks is not None
        order = np.random.default_rng([self.lab.seed, 5]).permutation(len(images.train_images))
        chosen = np.sort(order if amount == ALL else order[:amount])
        pair = images.train_images[chosen], images.train_masks[chosen]
        if not mirrored:
            return pair
        seen, masks = (np.concatenate([part, np.flip(part, 2)]) for part in pair)
        return seen, masks

    def own(self, name: str) -> tuple[float, float]:
        """Pixels right and IoU of a group's own network."""
        return self.judged(name, None, self.halves(name).above)

    def features(self, below: nn.Module, images: np.ndarray) -> Tensor:
        return features_of(self.lab, below, images, origin_of(below).preprocessing, most=100)

    def judged(
        self, name: str, adapter: nn.Module | None, task: nn.Module, *, held: bool = False
    ) -> tuple[float, float]:
        """Per cent of the test images' pixels right, and the mean IoU of animal and background; held: of held-out ones."""
        images = self.images(name, held=held)
        assert images.test_masks is not None
        right = total = 0
        overlap, union = np.zeros(2), np.zeros(2)
        count = len(images.test_images)
        for part in np.array_split(np.arange(count), max(1, count // 50)):
            features = self.features(self.halves(name).below, images.test_images[part])
            shape = (len(part), images.shape[2], *images.shape[:2])
            with torch.no_grad():
                output = task(features if adapter is None else adapter(features), image=shape)
            predicted, mask = output.argmax(1).cpu().numpy(), images.test_masks[part]
            valid = mask != IGNORE
            right += int((predicted == mask)[valid].sum())
            total += int(valid.sum())
            for k in (0, 1):
                one, two = (predicted == k) & valid, (mask == k) & valid
                overlap[k] += (one & two).sum()
                union[k] += (one | two).sum()
        return 100 * right / total, 100 * float((overlap / np.maximum(union, 1)).mean())
