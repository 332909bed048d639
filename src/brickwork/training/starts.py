"""What training starts from: an architecture with fresh weights, or a model folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brickwork import data, store, zoo
from brickwork.data import DataSpec, ImageData
from brickwork.errors import BadFile, RequestError
from brickwork.origin import Framing, origin_of
from brickwork.words import counted


@dataclass(frozen=True)
class Start:
    arch: str | None  # for the recipe; None: a network that Brickwork did not build
    args: dict[str, Any]
    shape: tuple[int, int, int]  # channels, height, width of the images
    folder: Path | None = None
    framing: Framing | None = None  # how a folder's network is shown images of another size

    @property
    def segments(self) -> bool:
        return self.arch in zoo.REGISTRY and zoo.REGISTRY[self.arch].task == "segment"

    def check_arch(self, arch: Any) -> None:
        """What builds a folder's network is asked for where a folder is begun with, and nowhere else."""
        if arch is not None and self.folder is None:
            raise RequestError(f"`arch` is for a model folder, and {self.arch} is an architecture; leave it out.")

    def images(self, spec: str | DataSpec, seed: int) -> ImageData:
        """The images a spec names, in the size and channels of the network."""
        return data.load(spec, seed=seed, size=self.shape[1:], channels=self.shape[0], framing=self.framing)

    def network(self, classes: int | None, seed: int, *, arch: Any = None) -> nn.Module:
        """The network to train, with so many outputs; None: a folder's with as many as it has."""
        if self.folder is None:
            return zoo.build(str(self.arch), seed=seed, **self.args, num_classes=classes)
        model = store.load(self.folder, arch=arch)
        known = origin_of(model).classes
        if classes is not None and known is not None and len(known) != classes:
            raise RequestError(
                f"{self.folder} has {counted(len(known), 'class')} and the data {classes}; training goes on with as "
                "many as there are. Select classes, as in digits:0-4, or begin with the architecture."
            )
        return model


def find_start(text: str, args: dict[str, Any], size: int | None) -> Start:
    """ARCH or a model folder; no weights are made or read yet."""
    if (Path(text) / "config.json").is_file():
        if args or size is not None:
            raise RequestError(
                f"{text} is a model folder, which has its size and arguments; leave out `arg` and `size`."
            )
        origin = store.read_config(text).origin()
        shape = origin.input_shape or (3, 32, 32)
        framing = origin.preprocessing.framing if origin.preprocessing else None
        return Start(origin.arch, {}, (shape[0], shape[1], shape[2]), Path(text), framing)
    if Path(text).is_dir() or ("/" in text and ":" not in text):
        raise BadFile(f"{text} is no model folder (it has no config.json) and no architecture.")
    if "num_classes" in args:
        raise RequestError("num_classes comes from the data; select classes there, as in digits:0-4.")
    if text in zoo.REGISTRY and size is not None and "image_size" in zoo.REGISTRY[text].defaults:
        args = {"image_size": size, **args}
    with torch.device("meta"):
        shape = origin_of(zoo.build(text, **args)).input_shape or (3, 32, 32)
    return Start(text, args, (shape[0], size or shape[1], size or shape[2]))
