"""What the studies of paper 3 share: single-category data, teachers, few labelled images, and an adapter's error."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork import zoo
from brickwork.blueprint.splitting import Split, split
from brickwork.data.images import ImageData
from brickwork.data.pixels import as_input
from brickwork.errors import UnknownName
from brickwork.origin import origin_of
from brickwork.training import settings_for, train
from brickwork.transplant import Adapter, balance, learn_adapter
from brickwork.transplant.views import blends_of, views_of
from brickwork_lab.studies.kept import kept
from brickwork_lab.studies.workshop import Workshop

#: five mammals stand for the paper's cat, cow, dog, horse and sheep; the first has the generic task module, as its dog
MAMMALS = ("wolf", "fox", "leopard", "cattle", "rabbit")
DISSIMILAR = ("rocket", "bicycle", "rose", "castle")
SMALL, SMALL_DISSIMILAR = ("0", "6"), ("1",)
SAMPLES = (10, 20, 50, 100)


def asked(rows: Sequence[str], picks: tuple[str, ...] | None) -> set[str]:
    """The rows that hold all words of one of the picks, "10 samples" or "10 samples, distill"; all of them without picks.

    >>> rows = ["10 samples, distill", "100 samples, distill", "10 samples, direct"]
    >>> sorted(asked(rows, ("10 samples",))), sorted(asked(rows, ("100 samples, distill",)))
    (['10 samples, direct', '10 samples, distill'], ['100 samples, distill'])
    """
    found: set[str] = set() if picks else set(rows)
    for pick in picks or ():
        held = {row for row in rows if set(pick.split(", ")) <= set(row.split(", "))}
        if not held:
            words = dict.fromkeys(word for row in rows for word in row.split(", "))
            raise UnknownName("row", pick, words)
        found |= held
    return found


@dataclass(frozen=True)
class Way:
    """A way to learn an adapter: a row for every number of labelled images."""

    way: str
    start: str = "identity"
    unlabelled: int = 0  # further images without labels
    options: dict[str, Any] = field(default_factory=dict)
    column: int | None = None  # of the paper's numbers
    more: str = ""  # a larger adapter, more looks at every image, more steps: how the study calls it

    def row(self, amount: int) -> str:
        return ", ".join(filter(None, (f"{amount} samples", self.way, self.more, f"{self.start} start")))


@dataclass
class Greenhouse:
    """Categories against other images, and a teacher for each. Teachers start from a network that knows other classes."""

    shop: Workshop
    _made: dict[str, Any] = field(default_factory=dict)

    @property
    def categories(self) -> tuple[str, ...]:
        return MAMMALS if self.shop.full else SMALL

    @property
    def dissimilar(self) -> tuple[str, ...]:
        return DISSIMILAR if self.shop.full else SMALL_DISSIMILAR

    @property
    def arch(self) -> str:
        return "vgg16" if self.shop.full else "lenet"

    @property
    def cut(self) -> str:
        """Behind the paper's first five layers: two convolutions and a pool (LeNet: one and a pool)."""
        return "features.6" if self.shop.full else "pool1"

    @property
    def steps(self) -> int:
        return 400 if self.shop.full else 40

    def images(self) -> ImageData:
        return self.shop.data("cifar100" if self.shop.full else "digits")

    def against_others(self, names: Sequence[str]) -> ImageData:
        """Images of some categories (1) and as many of classes that are in none of them (0)."""
        whole = self.images()
        taken = {*self.categories, *self.dissimilar}
        rest = [k for k, name in enumerate(whole.classes) if name not in taken]
        own = [whole.classes.index(name) for name in names]
        arrays: dict[str, Any] = {}
        for part in ("train", "test"):
            images, labels, _ = whole.split(part)
            draw = np.random.default_rng([self.shop.seed, zlib.crc32(" ".join(names).encode()), part == "test"])
            positive = np.flatnonzero(np.isin(labels, own))
            negative = draw.permutation(np.flatnonzero(np.isin(labels, rest)))[: len(positive)]
            order = draw.permutation(np.concatenate([positive, negative]))
            arrays |= {f"{part}_images": images[order], f"{part}_labels": np.isin(labels[order], own).astype(np.int64)}
        return ImageData(" ".join(names), ("other", "+".join(names)), **arrays)

    def other_images(self, count: int) -> np.ndarray:
        """Training images of classes that are no category, as anyone has them."""
        whole = self.images()
        taken = [whole.classes.index(name) for name in (*self.categories, *self.dissimilar)]
        free = np.flatnonzero(~np.isin(whole.train_labels, taken))
        return whole.train_images[np.random.default_rng([self.shop.seed, 11]).permutation(free)[:count]]

    def teacher(self, names: Sequence[str]) -> nn.Module:
        """A network for some categories against others."""
        key = "-".join(names)
        if key not in self._made:
            self._made[key] = self._kept(f"{self.arch}-{key}", lambda: self._trained(self.against_others(names)))
        found: nn.Module = self._made[key]
        return found

    def halves(self, names: Sequence[str]) -> Split:
        key = f"halves {'-'.join(names)}"
        if key not in self._made:
            self._made[key] = split(self.teacher(names), self.cut)
        found: Split = self._made[key]
        return found

    def _trained(self, images: ImageData) -> nn.Module:
        model = zoo.build(self.arch, num_classes=2, seed=self.shop.seed, in_channels=images.shape[2])
        start = self._start()
        if start is not None:  # all but the last layer, which has other classes
            known = {k: v for k, v in start.state_dict().items() if v.shape == model.state_dict()[k].shape}
            model.load_state_dict({**model.state_dict(), **known})
        recipe = {"epochs": 20, "batch_size": 64, "lr": 0.01} if self.shop.full else {"epochs": 6, "batch_size": 16}
        settings = settings_for(
            self.arch,
            len(images.train_labels),
            "cifar100" if self.shop.full else "digits",
            seed=self.shop.seed,
            **recipe,
        )
        train(
            model,
            images.train_images,
            images.train_labels,
            classes=images.classes,
            device=self.shop.where,
            record=True,
            preprocessing=self.images().preprocessing(),
            progress=self.shop.progress,
            **settings.to_dict(),
        )
        return model.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def _start(self) -> nn.Module | None:
        """A network trained on the classes that are no category: a gap to a bad teacher means little."""
        if not self.shop.full:
            return None
        if "start" not in self._made:
            names = [n for n in self.images().classes if n not in {*self.categories, *self.dissimilar}]
            rest = self.images().select([self.images().classes.index(n) for n in names])

            def make() -> nn.Module:
                model = zoo.build(self.arch, num_classes=len(names), seed=self.shop.seed)
                settings = settings_for(
                    self.arch, len(rest.train_labels), "cifar100", seed=self.shop.seed, **self.shop.recipe(self.arch)
                )
                train(
                    model,
                    rest.train_images,
                    rest.train_labels,
                    classes=rest.classes,
                    device=self.shop.where,
                    record=True,
                    preprocessing=self.images().preprocessing(),
                    progress=self.shop.progress,
                    **settings.to_dict(),
                )
                return model.eval()

            self._made["start"] = self._kept(f"{self.arch}-rest", make)
        found: nn.Module = self._made["start"]
        return found

    def _kept(self, name: str, make: Callable[[], nn.Module]) -> nn.Module:
        return kept(self.shop.networks, f"transplant-{name}-{self.shop.seed}", self.shop.where, make)

    # features and errors

    def features(self, names: Sequence[str], images: np.ndarray, below: nn.Module | None = None) -> Tensor:
        """What a category module gives for raw images, all of them at once; or another's part below, as prepared for it."""
        module = below or self.halves(names).below
        prepared = origin_of(self.teacher(names)).preprocessing
        with torch.no_grad():
            found = [
                module(as_input(part, prepared, self.shop.where))
                for part in np.array_split(images, -(-len(images) // 500))
            ]
        return torch.cat(found)

    def error(self, names: Sequence[str], adapter: nn.Module | None, task: nn.Module, images: ImageData) -> float:
        """Per cent of the test images wrong."""
        features = self.features(names, images.test_images)
        with torch.no_grad():
            outputs = [task(part if adapter is None else adapter(part)) for part in features.split(250)]
        wrong = torch.cat(outputs).argmax(1).cpu().numpy() != images.test_labels
        return 100 * float(wrong.mean())

    def adapter_for(
        self, names: Sequence[str], student: Split, *, layers: int, kernel: int, start: str = "identity"
    ) -> Adapter:
        """An untrained adapter, channels reordered at random, scaled by the paper's β."""
        images = self.against_others(names).train_images[:200]
        given, wanted = self.features(names, images), self.features(names, images, student.below)
        channels, outputs = given.shape[1], wanted.shape[1]
        order = torch.randperm(channels, generator=torch.Generator().manual_seed(self.shop.seed))
        return Adapter(
            channels,
            outputs,
            layers=layers,
            kernel=kernel,
            order=order,
            scale=balance(wanted, given),
            start=start,
            seed=self.shop.seed,
        ).to(self.shop.where)

    def learned(
        self,
        names: Sequence[str],
        adapter: Adapter,
        task: nn.Module,
        way: str,
        amount: int,
        *,
        unlabelled: int = 0,
        views: int = 1,
        blends: int = 0,
        others: int = 0,
        **options: Any,
    ) -> Adapter:
        """The adapter after learning from so many labelled images, and further ones without labels; in so many views.

        blends: of every image without a label; others: so many more images, of classes that are no category.
        """
        images = self.against_others(names)
        given: dict[str, Any] = {}
        if amount:
            few = images.take(amount // 2, seed=self.shop.seed)  # half of them of the category
            seen, labels = views_of(few.train_images, few.train_labels, count=views, seed=self.shop.seed)
            given = {"features": self.features(names, seen), "labels": torch.from_numpy(labels)}
        if unlabelled:
            plain = images.train_images[:unlabelled]
            looks = [views_of(plain, count=views, seed=self.shop.seed)[0]]
            plain = np.concatenate([plain, self.other_images(others)]) if others else plain
            looks += [blends_of(plain, count=blends, seed=self.shop.seed), plain[unlabelled:]]
            given["unlabelled"] = self.features(names, np.concatenate(looks))
        given.setdefault("example", self.features(names, images.train_images[:1]))
        teacher: Any = self.halves(names).above
        found = learn_adapter(
            adapter,
            task,
            way=way,
            teacher=teacher,
            seed=self.shop.seed,
            progress=False,  # type: ignore[arg-type]
            **{"steps": self.steps, "batch_size": 50 if self.shop.full else 16, **given, **options},
        )
        return found.adapter
