"""Paper 3, Tables 3 and 4 (bottom): category modules transplanted to another network's segmentation module.

Groups of breeds of the pets set stand for the paper's categories. A teacher is an FCN-8s for one group, started from one
for the breeds in no group. The adapter, one 1×1 convolution or three of 3×3, lies behind the first pool.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
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
from brickwork_lab.judging import mean
from brickwork_lab.lab import Lab, contiguous
from brickwork_lab.studies.registry import Names, Row, study
from brickwork_lab.studies.transplant_ways import SAMPLES, Way, adapter_words, rows_asked
from brickwork_lab.studies.transplanting import features_of, new_adapter

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
#: samples: (direct-learn, distill, back-distill), the paper's mean pixel accuracy
PAPER = {100: (77.63, 78.35, 87.97), 50: (75.34, 76.01, 87.30), 20: (75.15, 75.04, 86.66), 10: (74.99, 75.09, 85.32)}
FIRST = {"dummy": "first"}
WAYS = (
    Way("direct-learn", "random", column=0),
    Way("distill", "random", column=1),
    Way("back-distill", "random", options={"weight": 1.0, **FIRST}, column=2),
    Way("back-distill", options={"weight": 1.0, **FIRST, "alpha": 1.0}),
    Way("closed-form", options=FIRST),
    Way("closed-form+distill", unlabelled=400, options=FIRST),
    Way("distill", more="3×3 and views"),
)
#: three layers of 3×3, every image also in the mirror, four times the steps with a falling rate
MORE: dict[str, Any] = {"lr": 3e-3, "schedule": "onecycle"}
LONGER = 4  # times the steps


def size_of(way: Way) -> tuple[int, int]:
    """Layers and kernel of its adapter."""
    return (3, 3) if way.more else (1, 1)


@study("transplant-segment", paper="3, Table 3")
def transplant_segment(lab: Lab, *, picks: Names = None) -> Iterator[Row]:
    """Groups of breeds brought to the segmentation module of another: pixels right and IoU after learning an adapter."""
    breeds = Breeds(lab)
    first, *others = breeds.groups
    amounts = SAMPLES if lab.full else (4,)
    trials = [(f"segment, {way.row(amount)}", amount, way) for amount in amounts for way in WAYS]
    wanted = rows_asked([what for what, _, _ in trials], picks)
    own_pixels, own_iou = np.mean([breeds.judged(name, None, breeds.halves(name).above) for name in others], 0)
    for what, amount, way in trials:
        if what not in wanted or (way.way == "closed-form" and amount != min(amounts)):
            continue  # the closed form uses no image: once is enough
        pixels, ious = np.array([breeds.after(name, first, way, amount) for name in others]).T
        paper = PAPER[amount][way.column] if lab.full and way.column is not None else None
        row: Row = {"what": what, "ours": mean(pixels), "paper": paper, "iou": mean(ious)}
        row |= {"whole": round(float(own_pixels), 2), "whole_iou": round(float(own_iou), 2)}
        row |= {"unlabelled": breeds.unlabelled(way, others), "adapter": adapter_words(*size_of(way))}
        row |= {"steps": 0 if way.way == "closed-form" else breeds.steps(way), "seed": lab.seed}
        yield {**row, "pixels": dict(zip(others, np.round(pixels, 2).tolist(), strict=True))}


@dataclass
class Breeds:
    """Groups of breeds, a teacher for each, and what a route gets right."""

    lab: Lab
    _halves: dict[str, Split] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.groups, self.source, self.cut = (GROUPS, "pets", "to_8.6") if self.lab.full else (SMALL, "digits", "2")

    def images(self, name: str) -> ImageData:
        """Images of a group; "rest": of the breeds in no group."""
        grouped = " ".join(self.groups.values()).split()
        rest = [c for c in self.lab.data(self.source).classes if c not in grouped]
        return self.lab.classes_of(self.source, rest if name == "rest" else self.groups[name].split())

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
            recipe = {"epochs": 40, "batch_size": 32, "lr": 0.02} if lab.full else SMOKE
            settings = resolve(
                TrainOptions(seed=lab.seed, **recipe), "fcn8s", len(images.train_labels), self.source
            ).to_dict()
            settings |= {"masks": images.train_masks, "device": lab.where, "progress": lab.progress}
            settings["preprocessing"] = lab.data(self.source).preprocessing()
            train(model, images.train_images, None, **settings)
            return contiguous(model)

        return lab.kept(f"segment-{name}-{lab.seed}", make)

    def unlabelled(self, way: Way, names: list[str]) -> int:
        """Images of a group without masks that are learned from, in the mean over the groups."""
        each = [len(self.images(name).train_images) for name in names]
        return round(float(np.mean([count if way.more else min(count, way.unlabelled) for count in each])))

    def steps(self, way: Way) -> int:
        return (400 * (LONGER if way.more else 1)) if self.lab.full else 40

    def after(self, name: str, first: str, way: Way, amount: int) -> tuple[float, float]:
        """Pixels right and IoU of a group on the first group's task module, after learning an adapter."""
        images, mine, student = self.images(name), self.halves(name), self.halves(first)
        few = images.take(max(1, amount // len(images.classes)), seed=self.lab.seed)
        features, wanted = (self.features(half.below, few.train_images) for half in (mine, student))
        given: dict[str, Any] = {}
        if way.way == "distill" and not way.more:
            given = {"unlabelled": features}
        elif way.way != "closed-form":
            assert few.train_masks is not None
            given = {"features": features, "labels": torch.from_numpy(few.train_masks)}
        if way.more:
            both = np.concatenate([images.train_images, images.train_images[:, :, ::-1]])
            given["unlabelled"] = self.features(mine.below, np.ascontiguousarray(both))
        elif way.unlabelled:
            given["unlabelled"] = self.features(mine.below, images.train_images[: way.unlabelled])
        layers, kernel = size_of(way)
        adapter = new_adapter(self.lab, features, wanted, start=way.start, layers=layers, kernel=kernel)
        given |= {"example": features[:1], "batch_size": 10, **way.options}
        given |= {**(MORE if way.more and self.lab.full else {}), "steps": self.steps(way)}
        given["input_shape"] = (1, images.shape[2], *images.shape[:2])
        common: dict[str, Any] = {"way": way.way, "teacher": mine.above, "seed": self.lab.seed, "progress": False}
        learned = learn_adapter(adapter, student.above, **common, **given).adapter
        return self.judged(name, learned, student.above)

    def features(self, below: nn.Module, images: np.ndarray) -> Tensor:
        return features_of(self.lab, below, images, origin_of(below).preprocessing, most=100)

    def judged(self, name: str, adapter: nn.Module | None, task: nn.Module) -> tuple[float, float]:
        """Per cent of the test images' pixels right, and the mean IoU of animal and background."""
        images = self.images(name)
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
