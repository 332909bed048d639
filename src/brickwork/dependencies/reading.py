"""Logits to fit a map on: from files, or of a model folder on images."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from brickwork import store
from brickwork.data import load_for
from brickwork.dependencies.gram import LogitGram, logit_gram, open_npy
from brickwork.dependencies.map import DependencyMap
from brickwork.dependencies.options import MapOptions
from brickwork.dependencies.sources import read_logits
from brickwork.errors import BadData, BadFile, RequestError
from brickwork.evaluation import images_of_split, judged_split, made_from
from brickwork.origin import origin_of
from brickwork.prediction import predict
from brickwork.words import some_of

Read = tuple[tuple[Any, Any], tuple[Any, ...] | None, list[str] | None]  # (fit rows), (test rows) or None, names


HELD_OUT = 0.3  # of the images of a split, which measure what was fitted on the others


class LogitReader:
    """Logits, labels and names of what was given."""

    def __init__(
        self,
        sources: Sequence[Path],
        data: Any,
        labels: Path | None,
        names: Path | None,
        *,
        split: str | None,
        holdout: float | None,
        arch: Any,
        device: str,
        seed: int,
    ) -> None:
        """data: the images that networks are run on, as a request. split: of them; None: that which none was trained on."""
        self.sources, self.data, self.labels, self.names, self.split = sources, data, labels, names, split
        self.arch, self.device, self.seed = arch, device, seed
        self.measured_apart = holdout is None  # else rows of the same images measure
        self.networks: dict[Path, Any] = {}
        self.notes: list[str] = []

    def check(self) -> None:
        models = [s for s in self.sources if s.is_dir()]
        if models and self.data is None:
            raise RequestError(f"{models[0]} is a model folder; give `data`, the images whose logits are wanted.")
        if self.data is not None and not models:
            raise RequestError("`data` is for model folders; files of logits need none.")
        if models and (self.labels or self.names):
            raise RequestError("`labels` and `names` are for files of logits; `data` brings its own.")
        if self.split is not None and not models:
            raise RequestError("`split` is for model folders; files of logits have none, and `holdout` keeps rows out.")
        if models and len(models) < len(self.sources):
            raise RequestError("give two files of logits or two model folders, not one of each.")

    def __call__(self, source: Path) -> Read:
        return self._run(source) if source.is_dir() else self._read(source)

    def _read(self, source: Path) -> Read:
        file = read_logits(source)
        names = list(file.names) if file.names else None
        if self.names is not None:
            try:
                names = self.names.read_text(encoding="utf-8").split("\n")
            except (OSError, UnicodeDecodeError) as error:
                raise BadFile(f"{self.names} cannot be read as a text of class names: {error}.") from error
            names = names[:-1] if names[-1] == "" else names
        return (file.logits, file.labels if self.labels is None else open_npy(self.labels)), None, names

    def _run(self, folder: Path) -> Read:
        """A model's logits on a split, and where that is the training images, on the test images, to measure on."""
        if not self.networks:
            self.networks = {s: store.load(s, arch=self.arch, device=self.device) for s in self.sources}
        model = self.networks[folder]
        known = origin_of(model).classes
        images = load_for(origin_of(model).preprocessing, replace(self.data, amount=None), seed=self.seed)
        if self.split is None:  # the rows of two networks are of the same images
            splits = {judged_split(network, images) for network in self.networks.values()}
            self.split = "test" if "test" in splits else "all"
        if self.split != "test" and made_from(model, images):
            self.notes.append(
                f"{folder} was trained on such images, whose logits look like no others'; --split test fits on others."
            )
        images, where = images_of_split(images, self.split, self.data.amount, self.seed)
        if not len(images.split(where)[1]):
            raise BadData(f"{self.data} has no {where} images; choose another `split`.")
        foreign = [repr(name) for name in images.classes if known is not None and name not in known]
        if foreign:
            its = ", ".join((known or ())[:40])
            raise BadData(f"{folder} does not know {some_of(foreign, 5)} of {self.data}; its classes are {its}.")
        order = np.arange(len(images.classes)) if known is None else [known.index(c) for c in images.classes]
        parts = []
        for split in ("train", "test") if where == "train" and self.measured_apart else (where,):
            raw, labels, _ = images.split(split)
            if len(labels):
                parts.append((predict(model, raw).numpy(), np.asarray(order)[labels]))
        return parts[0], parts[1] if len(parts) > 1 else None, list(known) if known is not None else None

    def options(self, options: MapOptions, test: Any) -> MapOptions:
        """With rows to measure on, where a network's images give none and nothing else was asked for."""
        alone = self.data is not None and test is None and options.holdout is None
        return replace(options, holdout=HELD_OUT) if alone else options

    def with_source(self, result: DependencyMap) -> DependencyMap:
        """The map with the images that it was fitted on."""
        if self.data is None:
            return result
        return result.of_images(str(self.data), str(self.split), list(dict.fromkeys(self.notes)))


def moments_of(result: DependencyMap, logits: Path, targets: Path | None) -> LogitGram:
    """The second moments of the logits that a map was fitted on, and of the other network's where it was fitted to one."""
    within = result.facts.get("within")
    if within != (targets is None):
        needed = "takes no `targets`" if within else "needs the `targets` it was fitted to"
        raise RequestError(f"`logits` of this map {needed}.")
    others = None if targets is None else read_logits(targets).logits
    return logit_gram(read_logits(logits).logits, others)
