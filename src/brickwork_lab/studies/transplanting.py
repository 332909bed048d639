"""What the studies of paper 3 share: single-category data, teachers cut in two, and adapters learned between the halves."""

import zlib
from collections.abc import Sequence
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
from brickwork.origin import Preprocessing, origin_of
from brickwork.transplant import Adapter, balance, learn_adapter
from brickwork.transplant.views import blends_of, views_of
from brickwork_lab.lab import Lab

#: five mammals stand for the paper's cat, cow, dog, horse and sheep; the first has the generic task module, as its dog
MAMMALS = ("wolf", "fox", "leopard", "cattle", "rabbit")
DISSIMILAR = ("rocket", "bicycle", "rose", "castle")
SAMPLES = (10, 20, 50, 100)


def rows_asked(rows: Sequence[str], picks: tuple[str, ...] | None) -> set[str]:
    """The rows that hold all words of one of the picks, "10 samples" or "10 samples, distill"; all of them without picks.

    >>> rows = ["10 samples, distill", "100 samples, distill", "10 samples, direct"]
    >>> sorted(rows_asked(rows, ("10 samples",))), sorted(rows_asked(rows, ("100 samples, distill",)))
    (['10 samples, direct', '10 samples, distill'], ['100 samples, distill'])
    """
    chosen: set[str] = set() if picks else set(rows)
    for pick in picks or ():
        matching = {row for row in rows if set(pick.split(", ")) <= set(row.split(", "))}
        if not matching:
            raise UnknownName("row", pick, dict.fromkeys(word for row in rows for word in row.split(", ")))
        chosen |= matching
    return chosen


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


def adapter_words(layers: int, kernel: int) -> str:
    """How large an adapter is.

    >>> adapter_words(3, 1), adapter_words(1, 3)
    ('3 of 1×1', '1 of 3×3')
    """
    return f"{layers} of {kernel}×{kernel}"


def features_of(
    lab: Lab, below: nn.Module, images: np.ndarray, prepared: Preprocessing | None, most: int = 500
) -> Tensor:
    """What the part below the cut gives for raw images, at most so many at a time."""
    parts = np.array_split(images, -(-len(images) // most))
    with torch.no_grad():
        return torch.cat([below(as_input(part, prepared, lab.where)) for part in parts])


def new_adapter(lab: Lab, given: Tensor, wanted: Tensor, **options: Any) -> Adapter:
    """An untrained adapter, channels reordered at random, scaled by the paper's β."""
    channels = given.shape[1]
    order = torch.randperm(channels, generator=torch.Generator().manual_seed(lab.seed))
    scale = balance(wanted, given)
    return Adapter(channels, wanted.shape[1], order=order, scale=scale, seed=lab.seed, **options).to(lab.where)


@dataclass
class Categories:
    """Categories against other images, and a teacher for each. Teachers start from a network that knows other classes."""

    lab: Lab
    _halves: dict[str, Split] = field(default_factory=dict)

    def __post_init__(self) -> None:
        full = self.lab.full
        self.source = "cifar100" if full else "digits"
        self.names: tuple[str, ...] = MAMMALS if full else ("0", "6")
        self.dissimilar: tuple[str, ...] = DISSIMILAR if full else ("1",)
        # cut behind the paper's first five layers: two convolutions and a pool (LeNet: one and a pool)
        self.arch, self.cut = ("vgg16", "features.6") if full else ("lenet", "pool1")
        self.steps = 400 if full else 40
        self.whole = self.lab.data(self.source)
        taken = {*self.names, *self.dissimilar}
        self.rest = [name for name in self.whole.classes if name not in taken]  # classes that are no category

    def against_others(self, names: Sequence[str]) -> ImageData:
        """Images of some categories (1) and as many of classes that are in none of them (0)."""
        rest, own = ([self.whole.classes.index(name) for name in some] for some in (self.rest, names))
        arrays: dict[str, Any] = {}
        for part in ("train", "test"):
            images, labels, _ = self.whole.split(part)
            draw = np.random.default_rng([self.lab.seed, zlib.crc32(" ".join(names).encode()), part == "test"])
            positive = np.flatnonzero(np.isin(labels, own))
            negative = draw.permutation(np.flatnonzero(np.isin(labels, rest)))[: len(positive)]
            order = draw.permutation(np.concatenate([positive, negative]))
            arrays |= {f"{part}_images": images[order], f"{part}_labels": np.isin(labels[order], own).astype(np.int64)}
        return ImageData(" ".join(names), ("other", "+".join(names)), **arrays)

    def other_images(self, count: int) -> np.ndarray:
        """Training images of classes that are no category, as anyone has them."""
        rest = [self.whole.classes.index(name) for name in self.rest]
        free = np.flatnonzero(np.isin(self.whole.train_labels, rest))
        return self.whole.train_images[np.random.default_rng([self.lab.seed, 11]).permutation(free)[:count]]

    def teacher(self, names: Sequence[str]) -> nn.Module:
        """A network for some categories against others."""

        def make() -> nn.Module:
            model = zoo.build(self.arch, num_classes=2, seed=self.lab.seed, in_channels=self.whole.shape[2])
            recipe: dict[str, Any] = {"epochs": 6, "batch_size": 16}
            if self.lab.full:  # start from all but the last layer, which has other classes
                state, known = model.state_dict(), self._start().state_dict()
                model.load_state_dict({**state, **{k: v for k, v in known.items() if v.shape == state[k].shape}})
                recipe = {"epochs": 20, "batch_size": 64, "lr": 0.01}
            return self.lab.taught(model, self.against_others(names), self.source, **recipe)

        return self.lab.kept(f"transplant-{self.arch}-{'-'.join(names)}-{self.lab.seed}", make)

    def _start(self) -> nn.Module:
        """A network trained on the classes that are no category: a gap to a bad teacher means little."""

        def make() -> nn.Module:
            model = zoo.build(self.arch, num_classes=len(self.rest), seed=self.lab.seed)
            images = self.lab.classes_of(self.source, self.rest)
            return self.lab.taught(model, images, self.source, **self.lab.recipe(self.arch))

        return self.lab.kept(f"transplant-{self.arch}-rest-{self.lab.seed}", make)

    def halves(self, names: Sequence[str]) -> Split:
        key = "-".join(names)
        if key not in self._halves:
            self._halves[key] = split(self.teacher(names), self.cut)
        return self._halves[key]

    def features(self, names: Sequence[str], images: np.ndarray, below: nn.Module | None = None) -> Tensor:
        """What a category module gives for raw images; or another's part below, as prepared for it."""
        prepared = origin_of(self.teacher(names)).preprocessing
        return features_of(self.lab, below or self.halves(names).below, images, prepared)

    def error(self, name: str, adapter: nn.Module | None, task: nn.Module) -> float:
        """Per cent of a category's test images wrong."""
        images = self.against_others([name])
        features = self.features([name], images.test_images)
        with torch.no_grad():
            outputs = [task(part if adapter is None else adapter(part)) for part in features.split(250)]
        wrong = torch.cat(outputs).argmax(1).cpu().numpy() != images.test_labels
        return 100 * float(wrong.mean())

    def own_errors(self, names: Sequence[str]) -> list[float]:
        return [self.error(name, None, self.halves([name]).above) for name in names]

    def error_after(
        self, name: str, student: Split, way: Way, amount: int, *, layers: int, kernel: int, **options: Any
    ) -> float:
        """Per cent wrong of a category on a network's task module, after learning an adapter in this way."""
        images = self.against_others([name]).train_images[:200]
        given, wanted = self.features([name], images), self.features([name], images, student.below)
        adapter = new_adapter(self.lab, given, wanted, layers=layers, kernel=kernel, start=way.start)
        return self.error(name, self.learned(name, adapter, student.above, way, amount, **options), student.above)

    def learned(
        self,
        name: str,
        adapter: Adapter,
        task: nn.Module,
        way: Way,
        amount: int,
        *,
        views: int = 1,
        blends: int = 0,
        others: int = 0,
        **options: Any,
    ) -> Adapter:
        """The adapter after learning from so many labelled images, and further ones without labels; in so many views.

        blends: of every image without a label; others: so many more images, of classes that are no category.
        """
        images, seed = self.against_others([name]), self.lab.seed
        given: dict[str, Any] = {}
        if amount:
            few = images.take(amount // 2, seed=seed)  # half of them of the category
            seen, labels = views_of(few.train_images, few.train_labels, count=views, seed=seed)
            given = {"features": self.features([name], seen), "labels": torch.from_numpy(labels)}
        if way.unlabelled:
            plain = images.train_images[: way.unlabelled]
            looks = [views_of(plain, count=views, seed=seed)[0]]
            plain = np.concatenate([plain, self.other_images(others)]) if others else plain
            looks += [blends_of(plain, count=blends, seed=seed), plain[way.unlabelled :]]
            given["unlabelled"] = self.features([name], np.concatenate(looks))
        given.setdefault("example", self.features([name], images.train_images[:1]))
        given = {"steps": self.steps, "batch_size": 50 if self.lab.full else 16, **given, **options, **way.options}
        above: Any = task
        teacher = self.halves([name]).above
        done = learn_adapter(adapter, above, way=way.way, teacher=teacher, seed=seed, progress=False, **given)
        assert isinstance(done.adapter, Adapter)
        return done.adapter
