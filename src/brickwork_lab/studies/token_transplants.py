"""Paper 3 beyond its networks: category modules of a convolutional network and of a vision transformer, exchanged."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import nn

from brickwork import zoo
from brickwork.data.images import ImageData
from brickwork.transplant import TransplantNet, add, connect
from brickwork_lab.judging import accuracy, mean
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, averaged, study
from brickwork_lab.studies.transplant_ways import rows_asked
from brickwork_lab.studies.transplanting import Categories

#: of the networks: how they are built, and the layer behind which they are cut
KINDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "CNN": ("resnet8", {"width": 16}, "conv2"),
    "ViT": ("vit_small", {"image_size": 16, "patch_size": 4, "dim": 64, "depth": 4, "heads": 4}, "blocks.0"),
}
DIRECTIONS = (("CNN", "ViT"), ("ViT", "ViT"), ("ViT", "CNN"))
#: what each row asks of `connect`
LONG: dict[str, Any] = {"way": "match+distill", "steps": 800, "lr": 3e-3, "schedule": "onecycle"}
WAYS: dict[str, dict[str, Any]] = {
    "direct-learn, 10 labels": {"way": "direct-learn", "labels": 5},
    "direct-learn, 100 labels": {"way": "direct-learn", "labels": 50},
    "distill": {"way": "distill"},
    "match": {"way": "match"},
    "match+distill": {"way": "match+distill"},
    "match+distill, longer": LONG,
    "match+distill, longer, 3×3 and views": {**LONG, "kernel": 3, "layers": 2, "views": 4, "temperature": 4.0},
}
#: compared on held-out training images, seed 0: what the defaults and the rows above were chosen by
CHOICES: dict[str, dict[str, Any]] = {
    "match, windows, features": {"way": "match"},
    "match, windows, constant": {"way": "match", "prefix": "constant"},
    "match, interpolate, features": {"way": "match", "resize": "interpolate"},
    "match, 3×3": {"way": "match", "kernel": 3},
    "match+distill, lr 0.001": {"way": "match+distill"},
    "match+distill, constant": {"way": "match+distill", "prefix": "constant"},
    "match+distill, interpolate": {"way": "match+distill", "resize": "interpolate"},
    "match+distill, lr 0.003": {"way": "match+distill", "lr": 3e-3},
    "match+distill, lr 0.0003": {"way": "match+distill", "lr": 3e-4},
    "match+distill, longer": LONG,
    "match+distill, longer, 3×3": {**LONG, "kernel": 3},
    "match+distill, longer, two layers": {**LONG, "layers": 2},
    "match+distill, longer, temperature 4": {**LONG, "temperature": 4.0},
    "match+distill, longer, 3×3 and views": {**LONG, "kernel": 3, "layers": 2, "views": 4, "temperature": 4.0},
}
HELD = 5  # one training image in so many is held out: networks and adapters never see it


@dataclass
class TokenCategories(Categories):
    """Categories against other images, each with a network of each kind; none starts where another did."""

    _nets: dict[tuple[str, str], nn.Module] = field(default_factory=dict)

    def __post_init__(self) -> None:
        full = self.lab.full
        if full:  # one thread of a CPU is enough for these
            self.lab = replace(self.lab, shape=(16, 3), _sets=self.lab._sets, _networks={})
        self.source = "cifar10" if full else "digits"
        self.task, *others = ("dog", "cat", "horse") if full else ("0", "6")
        self.names = tuple(others)
        self.whole = self.lab.data(self.source)
        self.rest = [name for name in self.whole.classes if name not in (self.task, *self.names)]

    def images(self, name: str, *, held: bool = False) -> ImageData:
        """Of a category against others; held: judged by training images that nothing was learned from."""
        whole = self.against_others([name])
        kept = np.arange(len(whole.train_labels)) % HELD != HELD - 1
        seen = replace(whole, train_images=whole.train_images[kept], train_labels=whole.train_labels[kept])
        if not held:
            return seen
        return replace(seen, test_images=whole.train_images[~kept], test_labels=whole.train_labels[~kept])

    def network(self, kind: str, name: str) -> nn.Module:
        """A network of a kind for a category; the one that lends its task module starts otherwise, too."""
        if (kind, name) not in self._nets:
            arch, args, _ = KINDS[kind]
            number = [*sorted(KINDS)].index(kind) + 10 * (self.task, *self.names).index(name) + 100 * self.lab.seed
            recipe: dict[str, Any] = (
                {"epochs": 20, "batch_size": 64} if self.lab.full else {"epochs": 8, "batch_size": 16}
            )

            def make() -> nn.Module:
                model = zoo.build(arch, num_classes=2, in_channels=self.whole.shape[2], seed=number, **args)
                return self.lab.taught(model, self.images(name), self.source, **recipe)

            self._nets[kind, name] = self.lab.kept(f"tokens-{kind}-{self.source}-{name}-{self.lab.seed}", make)
        return self._nets[kind, name]

    def net(self, source: str, target: str, name: str) -> TransplantNet:
        """The task's network of one kind and the category's of another, cut; nothing reaches across yet."""
        first = add(None, self.network(target, self.task), at=KINDS[target][2], category=self.task, task="classify")
        return add(first.net, self.network(source, name), at=KINDS[source][2], category=name, task=name).net

    def learned(self, source: str, target: str, held: bool, options: dict[str, Any]) -> dict[str, float]:  # type: ignore[override]
        """Per cent of each category's images right after learning an adapter to the task's module."""
        how = dict(options)
        if not self.lab.full:
            how["steps"] = min(how.get("steps", 400), 60) if how["way"] != "match" else None
            how = {k: v for k, v in how.items() if v is not None}
        scores = {}
        for name in self.names:
            net, data = self.net(source, target, name), self.images(name, held=held)
            done = connect(net, name, "classify", data=data, seed=self.lab.seed, progress=False, **how)
            scores[name] = round(100 * done.note["after"]["accuracy"], 2)
        return scores


@study("token-transplants", paper="3, beyond its networks")
def token_transplants(lab: Lab, *, picks: Names = None, seeds: int | None = None) -> Iterator[Row]:
    """Category modules between a CNN and a ViT: per cent right after learning an adapter between maps and tokens."""
    rows = [f"{a} → {b}, {name}" for a, b in DIRECTIONS for name in ("untouched network", *WAYS)]
    held = [f"{a} → {b}, held-out, {name}" for a, b in DIRECTIONS for name in CHOICES]
    wanted = rows_asked([*rows, *held], picks if picks or lab.full else ("match", "match+distill", "direct-learn"))
    runs = [TokenCategories(lab.reseeded(k)) for k in range(seeds or (3 if lab.full else 1))]
    for a, b in DIRECTIONS:
        for name in ("untouched network", *WAYS):
            if f"{a} → {b}, {name}" in wanted:
                yield next(averaged([[_row(run, a, b, name, WAYS.get(name))] for run in runs]))
        for name, options in CHOICES.items():
            if f"{a} → {b}, held-out, {name}" in wanted:
                yield _row(runs[0], a, b, f"held-out, {name}", options, held=True)


def _row(
    run: TokenCategories, source: str, target: str, name: str, options: dict[str, Any] | None, *, held: bool = False
) -> Row:
    """options: of connect; None: what the task's own network makes of the category's images."""
    whole = [accuracy(run.network(source, c), run.images(c, held=held)) for c in run.names]
    if options is None:
        task = run.network(target, run.task)
        scores = {}
        for c in run.names:
            data = run.images(c, held=held)
            scores[c] = accuracy(task, replace(data, classes=run.images(run.task).classes))
    else:
        scores = run.learned(source, target, held, options)
    images = 0 if options is None or "labels" in options else min(2000, len(run.images(run.names[0]).train_labels))
    labels = 0 if options is None else 2 * options.get("labels", 0)
    row: Row = {"what": f"{source} → {target}, {name}", "paper": None, "ours": mean(list(scores.values()))}
    return {**row, "whole": mean(whole), "labels": labels, "unlabelled": images, **scores, "seed": run.lab.seed}
