"""What a card says of a network beyond its record: parameters, time, accuracy, some images; each found once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from brickwork import data
from brickwork.data.images import ImageData
from brickwork.errors import BrickworkError
from brickwork.latency import latency
from brickwork.origin import origin_of
from brickwork.prediction import input_of
from brickwork.studio.compare import judged, thumbnail
from brickwork.studio.shelf import Shelf, sources

PER_CLASS, PICTURES = 100, 6  # test images that a card's accuracy is measured on, and images it shows


@dataclass
class Cards:
    """The cards of a shelf; a network that was saved again has another."""

    shelf: Shelf
    _known: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def known(self, name: str) -> dict[str, Any] | None:
        """The card of a network, if it was asked for before."""
        return self._known.get(self.shelf.key(name))

    def card(self, name: str) -> dict[str, Any]:
        """parameters as `brickwork info` counts; ms of one image; accuracy, on how many images (0: as its
        record says); pictures of classes."""
        key = self.shelf.key(name)
        if key not in self._known:
            with self.shelf.free(patient=True):
                self._known[key] = self._measured(name)
        return self._known[key]

    def _measured(self, name: str) -> dict[str, Any]:
        model = self.shelf.load(name)
        known = origin_of(model).classes or ()
        sets = []
        for spec in dict.fromkeys(one for specs in sources(origin_of(model).provenance).values() for one in specs):
            try:
                images = data.load_for(origin_of(model).preprocessing, str(self.shelf.at_hand(spec)))
            except BrickworkError:  # gone, elsewhere, or not to be read unasked: the network is there all the same
                continue
            own = [k for k, one in enumerate(images.classes) if one in known]
            sets += [_some(images.select(own))] if own else []
        recorded = origin_of(model).provenance.get("test_accuracy")
        return {
            "parameters": self.shelf.parameters(name, model),
            "accuracy": recorded if isinstance(recorded, float) and 0 <= recorded <= 1 else None,
            **_seen(model, [one for one in sets if len(one.test_labels)]),
        }


def _seen(model: nn.Module, sets: Sequence[ImageData]) -> dict[str, Any]:
    if not sets:
        return {"ms": None, "of": 0, "pictures": []}
    seconds = latency(model, input_of(model, sets[0].test_images[:1]), repeat=7, warm_up=2)
    pictures = [
        [images.classes[k], thumbnail(images.test_images[int(np.flatnonzero(images.test_labels == k)[0])], side=40)]
        for images in sets
        for k in np.unique(images.test_labels)[:PICTURES]
    ]
    right = judged(model, sets, origin_of(model).classes or ())
    return {"ms": 1000 * seconds, "accuracy": right["accuracy"], "of": right["images"], "pictures": pictures[:PICTURES]}


def _some(images: ImageData) -> ImageData:
    """At most so many test images of each class, the same ones every time."""
    every = [np.flatnonzero(images.test_labels == k)[:PER_CLASS] for k in range(len(images.classes))]
    index = np.sort(np.concatenate(every))
    if len(index) == len(images.test_labels):
        return images
    return ImageData(
        images.name,
        images.classes,
        images.train_images[:0],
        images.train_labels[:0],
        images.test_images[index],
        images.test_labels[index],
    )
