"""How an adapter is to be learned: every option with its default, checked without a tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from brickwork.errors import RequestError, UnknownName
from brickwork.training.settings import AUGMENTATIONS
from brickwork.transplant.adapter import STARTS
from brickwork.transplant.chain import DUMMIES
from brickwork.transplant.learning import SCHEDULES, WAYS

MOST_LOOKS = 200  # views, or blends, of one image: what is drawn for more would be drawn twice


@dataclass(frozen=True)
class How:
    """The same words on the command line, in a recipe and here."""

    way: str = "closed-form"
    labels: int = 0  # labelled images a class; 0: none
    images: int = 2000  # unlabelled images, at most, for the ways that look at some
    layers: int = 1
    kernel: int = 1
    reorder: int | None = None  # seed of the paper's reordering of the channels; None: as they come
    start: str = "identity"
    steps: int = 400
    batch_size: int = 50
    lr: float = 1e-3
    schedule: str = "constant"  # of lr: as it is, "cosine" down to nothing, "onecycle" up first
    temperature: float = 1.0  # of the answers; above 1, how sure the teacher is counts too
    views: int = 1  # of every image: itself, and so many less one shifted and mirrored
    blends: int = 0  # of every image without a label, with others: more looks for the teacher to answer
    augment: str = "crop+flip"  # how views and blends are made
    weight: float = 10.0
    alpha: float | None = None  # None: the paper's ratio of the mean norms
    dummy: str = "second"
    share: float = 0.5
    size: int | None = None  # of the enlarged gradients of a classifier; the paper's is 7
    seed: int = 0

    def problems(self, *, data: bool) -> list[str]:
        """All that is wrong, in the words of the options; data: whether images are given."""
        wrong = _types(self)
        if wrong:
            return wrong
        for name, low in (
            ("labels", 0),
            ("images", 1),
            ("layers", 1),
            ("kernel", 1),
            ("steps", 1),
            ("batch_size", 1),
            ("views", 1),
            ("blends", 0),
            ("seed", 0),
        ):
            if getattr(self, name) < low:
                wrong.append(f"{name} is {getattr(self, name)}; it must be {low} or more")
        for name in ("views", "blends"):
            if getattr(self, name) > MOST_LOOKS:
                wrong.append(
                    f"{name} is {getattr(self, name)}; it must be {MOST_LOOKS} or less, all are held in memory"
                )
        if self.kernel > 0 and self.kernel % 2 == 0:
            wrong.append(f"kernel is {self.kernel}; it must be odd, so that maps keep their size")
        for name in ("reorder", "size"):
            value, low = getattr(self, name), int(name == "size")
            if value is not None and value < low:
                wrong.append(f"{name} is {value}; it must be {low} or more")
        for name in ("lr", "temperature", "weight", "alpha"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                wrong.append(f"{name} is {value:g}; it must be above 0")
        if not 0 < self.share <= 1:
            wrong.append(f"share is {self.share:g}; it must be above 0 and at most 1")
        for name, known in (("dummy", DUMMIES), ("start", STARTS), ("schedule", SCHEDULES), ("augment", AUGMENTATIONS)):
            if getattr(self, name) not in known:
                wrong.append(f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(known)}")
        return wrong + self._needs(data)

    def _needs(self, data: bool) -> list[str]:
        chosen = WAYS.get(self.way)
        if chosen is None:
            return [str(UnknownName("way to learn an adapter", self.way, WAYS)).rstrip(".")]
        if chosen.labels and self.labels == 0:
            return [
                f"{self.way} needs labels: give labels, so many a class; without any, use back-distill, distill "
                "or closed-form"
            ]
        if not data and (chosen.images or self.labels):
            return [f"{self.way} with labels {self.labels} needs images; give data"]
        if self.labels and not any(term.startswith("task") for term in chosen.terms):
            return [f"{self.way} uses no labels; leave labels {self.labels} out, or use closed-form+distill"]
        return []

    def check(self, *, data: bool) -> None:
        wrong = self.problems(data=data)
        if wrong:
            raise RequestError("; ".join(wrong) + ".")

    def unused(self, given: Mapping[str, Any] | list[str]) -> list[str]:
        """Options that were given and that this way has no use for."""
        chosen = WAYS[self.way]
        pseudo = "pseudo" in chosen.terms or self.way.startswith("closed-form")
        trained = bool(chosen.terms)
        difference = bool({"pseudo", "jacobian"} & set(chosen.terms))
        looks = trained and (chosen.images or self.labels > 0)
        use = {
            "steps": trained,
            "batch_size": trained,
            "lr": trained,
            "schedule": trained,
            "views": looks,
            "temperature": "answers" in chosen.terms,
            "blends": trained and chosen.images and not chosen.labels,
            "augment": looks and (self.views > 1 or self.blends > 0),
            "weight": difference,
            "alpha": difference,
            "dummy": pseudo,
            "share": pseudo and self.dummy != "first",
            "size": pseudo,
            "images": chosen.images,
        }
        return [name for name in given if name in use and not use[name]]


def _types(how: How) -> list[str]:
    """A value of another kind than its option's, as YAML may hold."""
    wrong = []
    for entry in fields(how):
        value, kind = getattr(how, entry.name), str(entry.type)
        allowed: tuple[type, ...] = {"int": (int,), "float": (int, float), "str": (str,)}[kind.split(" ")[0]]
        if (value is None and "None" in kind) or (isinstance(value, allowed) and not isinstance(value, bool)):
            continue
        word = {"int": "a whole number", "float": "a number", "str": "a word"}[kind.split(" ")[0]]
        wrong.append(f"{entry.name} is {value!r}; it must be {word}")
    return wrong
