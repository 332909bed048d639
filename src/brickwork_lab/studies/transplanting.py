"""What the studies of paper 3 share: single-category data, teachers cut in two, and adapters learned between the halves."""

import copy
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork import zoo
from brickwork.blueprint.splitting import Split, split
from brickwork.data.images import ImageData, hold_out
from brickwork.data.pixels import as_input
from brickwork.origin import Origin, Preprocessing, attach, origin_of
from brickwork.transplant import Adapter, balance, learn_adapter
from brickwork.transplant.views import blends_of, views_of
from brickwork_lab.lab import Lab
from brickwork_lab.studies.transplant_ways import ALL, Way

#: five mammals stand for the paper's cat, cow, dog, horse and sheep; the first has the generic task module, as its dog
MAMMALS = ("wolf", "fox", "leopard", "cattle", "rabbit")
DISSIMILAR = ("rocket", "bicycle", "rose", "castle")
HELD = 0.1  # of every class's training images: nothing learns from them, and ways are chosen by them


def held_apart(images: ImageData) -> tuple[ImageData, ImageData]:
    """A set without its held-out training images, and the same judged by these."""
    seen, held = hold_out(images.train_labels, HELD)
    arrays = dict(zip(("images", "labels", "masks"), images.split("train"), strict=True))

    def part(split: str, rows: np.ndarray) -> dict[str, Any]:
        return {f"{split}_{name}": None if array is None else array[rows] for name, array in arrays.items()}

    rest = replace(images, **part("train", seen))
    return rest, replace(rest, **part("test", held))


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


def single_output(model: nn.Module) -> nn.Module:
    """A network of two outputs with their difference as its only one: the same decisions, above 0 for the second class.

    So the gradient at the output is the paper's, a single number; cross-entropies of both kinds are equal.

    >>> net = nn.Sequential(nn.Linear(3, 2))
    >>> x, single = torch.rand(4, 3), single_output(net)
    >>> torch.allclose(single(x)[:, 0], net(x)[:, 1] - net(x)[:, 0], atol=1e-6)
    True
    """
    new = copy.deepcopy(model)
    name, last = [(n, m) for n, m in new.named_modules() if isinstance(m, nn.Linear)][-1]
    single = nn.Linear(last.in_features, 1).to(last.weight)
    with torch.no_grad():
        single.weight.copy_(last.weight[1:] - last.weight[:1])
        single.bias.copy_(last.bias[1:] - last.bias[:1])
    new.set_submodule(name, single)
    # two networks of one output each have nothing to pair by name, so the classes stay behind
    attach(new, Origin(preprocessing=origin_of(model).preprocessing))
    return new


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
        self.whole, self.held = held_apart(self.lab.data(self.source))
        taken = {*self.names, *self.dissimilar}
        self.rest = [name for name in self.whole.classes if name not in taken]  # classes that are no category

    def against_others(self, names: Sequence[str], *, held: bool = False) -> ImageData:
        """Images of some categories (1) and as many of classes that are in none of them (0); held: judged by held-out ones."""
        rest, own = ([self.whole.classes.index(name) for name in some] for some in (self.rest, names))
        arrays: dict[str, Any] = {}
        for part in ("train", "test"):
            images, labels, _ = (self.held if held else self.whole).split(part)
            draw = np.random.default_rng([self.lab.seed, zlib.crc32(" ".join(names).encode()), part == "test"])
            positive = np.flatnonzero(np.isin(labels, own))
            negative = draw.permutation(np.flatnonzero(np.isin(labels, rest)))[: len(positive)]
            order = draw.permutation(np.concatenate([positive, negative]))
            arrays |= {f"{part}_images": images[order], f"{part}_labels": np.isin(labels[order], own).astype(np.int64)}
        return ImageData(" ".join(names), ("other", "+".join(names)), **arrays)

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

        return self.lab.kept(f"held-transplant-{self.arch}-{'-'.join(names)}-{self.lab.seed}", make)

    def _start(self) -> nn.Module:
        """A network trained on the classes that are no category: a gap to a bad teacher means little."""

        def make() -> nn.Module:
            model = zoo.build(self.arch, num_classes=len(self.rest), seed=self.lab.seed)
            images = self.whole.select([self.whole.classes.index(name) for name in self.rest])
            return self.lab.taught(model, images, self.source, **self.lab.recipe(self.arch))

        return self.lab.kept(f"held-transplant-{self.arch}-rest-{self.lab.seed}", make)

    def halves(self, names: Sequence[str]) -> Split:
        """The network for some categories, of one output, in two halves."""
        key = "-".join(names)
        if key not in self._halves:
            self._halves[key] = split(single_output(self.teacher(names)), self.cut)
        return self._halves[key]

    def features(self, names: Sequence[str], images: np.ndarray) -> Tensor:
        """What a category module gives for raw images."""
        below = self.halves(names).below
        return features_of(self.lab, below, images, origin_of(below).preprocessing)

    def error(self, name: str, adapter: nn.Module | None, task: nn.Module, *, held: bool = False) -> float:
        """Per cent of a category's test images wrong; held: of its held-out training images."""
        images = self.against_others([name], held=held)
        features = self.features([name], images.test_images)
        with torch.no_grad():
            outputs = [task(part if adapter is None else adapter(part)) for part in features.split(250)]
        wrong = (torch.cat(outputs)[:, 0] > 0).cpu().numpy() != images.test_labels
        return 100 * float(wrong.mean())

    def own_errors(self, names: Sequence[str]) -> list[float]:
        return [self.error(name, None, self.halves([name]).above) for name in names]

    def errors_after(
        self, name: str, served: Sequence[str], way: Way, amount: int, *, layers: int, kernel: int, **options: Any
    ) -> tuple[float, float]:
        """Per cent wrong of a category on a task module, after learning an adapter: of test images, of held-out ones.

        served: the categories that the task module was trained for.
        """
        student = self.halves(served)
        # β is of both sets of images: the category's, and those of the categories that are served already
        given = self.features([name], self.against_others([name]).train_images[:200])
        wanted = self.features(served, self.against_others(served).train_images[:200])
        adapter = new_adapter(self.lab, given, wanted, layers=layers, kernel=kernel, start=way.start)
        adapter = self.learned(name, adapter, student.above, way, amount, **options)
        test, held = (self.error(name, adapter, student.above, held=held) for held in (False, True))
        return test, held

    def looked_at(self, way: Way, amount: int, names: Sequence[str]) -> dict[str, int]:
        """How many labelled images of a category an adapter learns from, and how many without labels, in the mean."""
        count = round(np.mean([len(self.against_others([name]).train_labels) for name in names]))
        return {"labels": count if amount == ALL else amount, "unlabelled": min(way.unlabelled, count)}

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
        **options: Any,
    ) -> Adapter:
        """The adapter after learning from so many labelled images, and further ones without labels; in so many views.

        blends: of every image without a label.
        """
        images, seed = self.against_others([name]), self.lab.seed
        given: dict[str, Any] = {}
        if amount:
            few = images if amount == ALL else images.take(amount // 2, seed=seed)  # half of them of the category
            seen, labels = views_of(few.train_images, few.train_labels, count=views, seed=seed)
            given = {"features": self.features([name], seen), "labels": torch.from_numpy(labels)}
        if way.unlabelled:
            plain = images.train_images[: way.unlabelled]
            looks = [views_of(plain, count=views, seed=seed)[0], blends_of(plain, count=blends, seed=seed)]
            given["unlabelled"] = self.features([name], np.concatenate(looks))
        given.setdefault("example", self.features([name], images.train_images[:1]))
        given = {"steps": self.steps, "batch_size": 50 if self.lab.full else 16, **given, **options, **way.options}
        above: Any = task
        teacher = self.halves([name]).above
        done = learn_adapter(adapter, above, way=way.way, teacher=teacher, seed=seed, progress=False, **given)
        assert isinstance(done.adapter, Adapter)
        return done.adapter
