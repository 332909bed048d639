"""Logits to fit a map on: from files, or of a model folder on images."""

from pathlib import Path
from typing import Any

import numpy as np

from brickwork import store
from brickwork.data import load_for
from brickwork.dependencies.gram import LogitGram, logit_gram, open_npy
from brickwork.dependencies.map import DependencyMap
from brickwork.dependencies.sources import read_logits
from brickwork.errors import BadData, BadFile, RequestError
from brickwork.origin import origin_of
from brickwork.prediction import predict
from brickwork.words import some_of

Read = tuple[tuple[Any, Any], tuple[Any, ...] | None, list[str] | None]  # (fit rows), (test rows) or None, names


class LogitReader:
    """Logits, labels and names of what was given."""

    def __init__(self, data: Any, labels: Path | None, names: Path | None, arch: Any, device: str, seed: int) -> None:
        self.data, self.labels, self.names = data, labels, names
        self.arch, self.device, self.seed = arch, device, seed

    def check(self, *sources: Path | None) -> None:
        models = [s for s in sources if s is not None and s.is_dir()]
        if models and self.data is None:
            raise RequestError(f"{models[0]} is a model folder; give `data`, the images whose logits are wanted.")
        if self.data is not None and not models:
            raise RequestError("`data` is for model folders; files of logits need none.")
        if models and (self.labels or self.names):
            raise RequestError("`labels` and `names` are for files of logits; `data` brings its own.")
        if models and len(models) < len([s for s in sources if s is not None]):
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
        """A model's logits on the training images, to fit on, and on the test images, to measure on."""
        model = store.load(folder, arch=self.arch, device=self.device)
        known = origin_of(model).classes
        images = load_for(origin_of(model).preprocessing, self.data, seed=self.seed)
        foreign = [repr(name) for name in images.classes if known is not None and name not in known]
        if foreign:
            its = ", ".join((known or ())[:40])
            raise BadData(f"{folder} does not know {some_of(foreign, 5)} of {self.data}; its classes are {its}.")
        order = np.arange(len(images.classes)) if known is None else [known.index(c) for c in images.classes]
        parts = []
        for split in ("train", "test"):
            raw, labels, _ = images.split(split)
            parts.append((predict(model, raw).numpy(), np.asarray(order)[labels]))
        return parts[0], parts[1], list(known) if known is not None else None


def moments_of(result: DependencyMap, logits: Path, targets: Path | None) -> LogitGram:
    """The second moments of the logits that a map was fitted on, and of the other network's where it was fitted to one."""
    within = result.facts.get("within")
    if within != (targets is None):
        needed = "takes no `targets`" if within else "needs the `targets` it was fitted to"
        raise RequestError(f"`logits` of this map {needed}.")
    others = None if targets is None else read_logits(targets).logits
    return logit_gram(read_logits(logits).logits, others)
