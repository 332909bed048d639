"""Paper 3, Tables 3 and 4 (bottom): category modules transplanted to another network's segmentation module.

Groups of breeds of the pets set stand for the paper's categories. A teacher is an FCN-8s for one group, started from one
for the breeds in no group. The adapter, one 1×1 convolution or three of 3×3, lies behind the first pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork import zoo
from brickwork.blueprint.splitting import Split, split
from brickwork.data.images import IGNORE, ImageData
from brickwork.data.pixels import as_input
from brickwork.origin import origin_of
from brickwork.training import settings_for, train
from brickwork.transplant import Adapter, Dummy, balance, learn_adapter
from brickwork_lab.studies.greenhouse import SAMPLES, Way, asked
from brickwork_lab.studies.kept import kept
from brickwork_lab.studies.registry import Row, Run, study
from brickwork_lab.studies.workshop import Workshop

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
FIRST = {"dummy": Dummy("first")}
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
MORE: dict[str, Any] = {"steps": 1600, "lr": 3e-3, "schedule": "onecycle"}


@study("transplant-segment", paper="3, Table 3")
def transplant_segment(run: Run, *, picks: tuple[str, ...] | None = None) -> Iterator[Row]:
    """Groups of breeds brought to the segmentation module of another: pixels right and IoU after learning an adapter."""
    kennel = Kennel(Workshop.of(run))
    first, *others = kennel.groups
    amounts = SAMPLES if run.full else (4,)
    rows = [f"segment, {way.row(amount)}" for amount in amounts for way in WAYS]
    wanted = asked(rows, picks)
    own = [kennel.judged(name, None, kennel.halves(name).above) for name in others]
    for amount in amounts:
        for way in WAYS:
            what = f"segment, {way.row(amount)}"
            if what not in wanted or (way.way == "closed-form" and amount != min(amounts)):
                continue  # the closed form uses no image: once is enough
            found = [kennel.after(name, first, way, amount) for name in others]
            pixels, ious = np.array(found).T
            yield {
                "what": what,
                "ours": round(float(pixels.mean()), 2),
                "paper": PAPER[amount][way.column] if run.full and way.column is not None else None,
                "iou": round(float(ious.mean()), 2),
                "whole": round(float(np.mean(own, 0)[0]), 2),
                "whole_iou": round(float(np.mean(own, 0)[1]), 2),
                "seed": run.seed,
                "pixels": dict(zip(others, np.round(pixels, 2).tolist(), strict=True)),
            }


@dataclass
class Kennel:
    """Groups of breeds, a teacher for each, and what a route gets right."""

    shop: Workshop
    _made: dict[str, Any] = field(default_factory=dict)

    @property
    def groups(self) -> dict[str, str]:
        return GROUPS if self.shop.full else SMALL

    def images(self, name: str | None) -> ImageData:
        """Images of a group; None: of the breeds in no group."""
        whole = self.shop.data("pets" if self.shop.full else "digits")
        grouped = {breed for names in self.groups.values() for breed in names.split()}
        wanted = self.groups[name].split() if name else [c for c in whole.classes if c not in grouped]
        return whole.select([whole.classes.index(breed) for breed in wanted])

    def halves(self, name: str) -> Split:
        """The group's teacher, cut behind its first pool."""
        if name not in self._made:
            start = self._network("rest", self.images(None), None) if self.shop.full else None
            self._made[name] = split(self._network(name, self.images(name), start), self._cut())
        found: Split = self._made[name]
        return found

    def _cut(self) -> str:
        return "to_8.6" if self.shop.full else "2"

    def _blank(self, channels: int) -> nn.Module:
        """An untrained FCN-8s; at smoke size a network of its kind that trains in seconds."""
        if self.shop.full:
            return zoo.build("fcn8s", num_classes=2, seed=self.shop.seed, in_channels=channels, batch_norm=True)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.shop.seed)
            return nn.Sequential(
                nn.Conv2d(channels, 12, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(12, 24, 3, padding=1),
                nn.ReLU(),
                nn.ConvTranspose2d(24, 2, 4, stride=2, padding=1),
            )

    def _network(self, name: str, images: ImageData, start: nn.Module | None) -> nn.Module:
        key = f"segment-{name}-{self.shop.seed}"
        return kept(self.shop.networks, key, self.shop.where, lambda: self._trained(images, start))

    def _trained(self, images: ImageData, start: nn.Module | None) -> nn.Module:
        model = self._blank(images.shape[2])
        if start is not None:
            model.load_state_dict(start.state_dict())
        recipe = {"epochs": 40, "batch_size": 32, "lr": 0.02} if self.shop.full else SMOKE
        settings = settings_for(
            "fcn8s", len(images.train_labels), "pets" if self.shop.full else "digits", seed=self.shop.seed, **recipe
        )
        train(
            model,
            images.train_images,
            None,
            masks=images.train_masks,
            device=self.shop.where,
            progress=self.shop.progress,
            preprocessing=self.shop.data("pets" if self.shop.full else "digits").preprocessing(),
            **settings.to_dict(),
        )
        return model.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def after(self, name: str, first: str, way: Way, amount: int) -> tuple[float, float]:
        """Pixels right and IoU of a group on the first group's task module, after learning an adapter."""
        images, mine, student = self.images(name), self.halves(name), self.halves(first)
        few = replace(images).take(max(1, amount // len(images.classes)), seed=self.shop.seed)
        features, wanted = (self.features(mine.below, few.train_images), self.features(student.below, few.train_images))
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
        channels = features.shape[1]
        order = torch.randperm(channels, generator=torch.Generator().manual_seed(self.shop.seed))
        adapter = Adapter(
            channels,
            wanted.shape[1],
            order=order,
            scale=balance(wanted, features),
            start=way.start,
            layers=3 if way.more else 1,
            kernel=3 if way.more else 1,
            seed=self.shop.seed,
        )
        long = {"steps": 400 if self.shop.full else 40} if not (way.more and self.shop.full) else MORE
        learned = learn_adapter(
            adapter.to(self.shop.where),
            student.above,
            way=way.way,
            teacher=mine.above,
            image=(1, images.shape[2], *images.shape[:2]),
            seed=self.shop.seed,
            batch_size=10,
            example=features[:1],
            progress=False,
            **given,
            **way.options,
            **long,
        ).adapter
        return self.judged(name, learned, student.above)

    def features(self, below: nn.Module, images: np.ndarray) -> Tensor:
        prepared = origin_of(below).preprocessing
        with torch.no_grad():
            parts = np.array_split(images, -(-len(images) // 100))
            return torch.cat([below(as_input(part, prepared, self.shop.where)) for part in parts])

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
