"""The ways to merge that look at images: what each is called, what it needs, which options it takes.

A table without torch, so that a wrong request is refused before anything is imported or read. The function of a method
is found under `home`, takes (models, tasks, shares) and the options as keywords, and returns the network and facts.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brickwork.errors import RequestError, UnknownName


@dataclass(frozen=True)
class Option:
    """A default, what is allowed in words, and the test of it."""

    default: Any
    allowed: str
    is_right: Callable[[Any], bool]
    searched: bool = False  # whether a search may look for it


def number(default: float | None, low: float, high: float = float("inf"), *, above: bool = False) -> Option:
    """A number from low (or above it) up to high; with a default of None, or none at all.

    >>> number(0.9, 0, 1).is_right(1.5), number(1e-3, 0, above=True).allowed
    (False, 'a number above 0')
    """
    words = f"a number above {low:g}" if above else f"a number from {low:g}"
    words += f" to {high:g}" if high < float("inf") else "" if above else " up"
    words += ", or left out" if default is None else ""

    def right(value: Any) -> bool:
        if value is None:
            return default is None
        if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
            return False
        return (low < value if above else low <= value) and value <= high and value < float("inf")

    return Option(default, words, right, searched=True)


def whole(default: int, low: int) -> Option:
    """A whole number from low up."""

    def right(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= low

    return Option(default, f"a whole number from {low} up", right)


def flag() -> Option:
    """Yes or no; no by default."""
    return Option(False, "true or false", lambda value: isinstance(value, bool))


def word(*allowed: str) -> Option:
    """One of some words; the first is the default."""
    return Option(allowed[0], " or ".join(allowed), lambda value: value in allowed)


@dataclass(frozen=True)
class Asked:
    """What a method is to merge: how many models and sets of images, and what comes with them."""

    models: int
    sets: int
    base: bool
    options: Mapping[str, Any]
    weights: Any = None
    heads: int | None = None


@dataclass(frozen=True)
class DataMethod:
    name: str
    home: str  # module:function
    about: str
    paper: str
    needs_base: bool = False
    needs_labels: bool = False
    one_each: bool = False  # a set of images for every model, of its own task, in the models' order
    weighted: bool = False  # whether the models' tasks may count differently
    exactly: int | None = None  # how many models it merges; any number
    folds: bool = False  # whether batch norms are folded into the layers before them first
    repairs: bool = True  # whether `repair` may follow: the models' channels are in the merged network's order
    answers: bool = False  # whether it looks at what networks answer: of networks without heads it needs those
    options: Mapping[str, Option] = field(default_factory=dict)  # of the function

    @property
    def every_option(self) -> Mapping[str, Option]:
        """Those of the function, and what `merge_on` does behind it."""
        return {**self.options, **({"repair": flag()} if self.repairs else {})}

    def to_dict(self) -> dict[str, Any]:
        """What it needs, and its own options with their defaults."""
        own = {name: o.default for name, o in self.options.items() if name not in ("seed", "repair")}
        own |= {"weights": None} if self.weighted else {}
        needs = {"base": self.needs_base, "data": True, "labels": self.needs_labels}
        return {"name": self.name, **needs, "options": own, "about": self.about, "paper": self.paper}

    def pairs(self, options: Mapping[str, Any], heads: int | None = None) -> bool:
        """Whether set k is of model k's task; with these options, and with heads of the tasks' own."""
        return self.one_each or options.get("goal") == "teachers" or heads is not None

    def function(self) -> Callable[..., Any]:
        module, _, name = self.home.partition(":")
        return getattr(importlib.import_module(f"brickwork.algebra.{module}"), name)

    def problems(self, asked: Asked) -> list[str]:
        """Everything that is wrong with a request, in words, without a tensor."""
        models, sets, weights = asked.models, asked.sets, asked.weights
        wrong, pairs = [], self.pairs(asked.options, asked.heads)
        if models < 1:
            wrong.append("there is nothing to merge; give one model or more")
        elif self.exactly is not None and models != self.exactly:
            wrong.append(f"{self.name} merges {self.exactly} models, not {models}")
        if self.needs_base and not asked.base:
            wrong.append(f"{self.name} needs a base, the model that the others were trained from (`base`)")
        if asked.base and not self.needs_base:
            wrong.append(f"{self.name} takes no base; leave it out")
        if not sets:
            labelled = "labelled" if self.needs_labels else "unlabelled"
            kind = f"{labelled} images of each model's task" if pairs else f"{labelled} images"
            wrong.append(f"{self.name} needs `data`, {kind}{', once per model' * pairs}")
        elif pairs and sets != models:
            wrong.append(
                f"{self.name} needs one set of images per model, in their order; there are {sets} for {models} models"
            )
        wrong += self._heads(asked)
        if weights is not None and not self.weighted:
            wrong.append(f"{self.name} takes no weights; leave them out")
        elif weights is not None:
            wrong += bad_weights(weights, models)
        known = self.every_option
        unknown = [UnknownName(f"option of {self.name}", name, known) for name in asked.options if name not in known]
        return [*wrong, *(str(error).rstrip(".") for error in unknown), *self._values(asked)]

    def _heads(self, asked: Asked) -> list[str]:
        heads, models = asked.heads, asked.models
        if heads is None:
            return []
        if not self.answers:
            return [f"{self.name} does not look at answers; leave `heads` out"]
        return [] if heads == models else [f"there are {heads} heads for {models} models; give one per model"]

    def _values(self, asked: Asked) -> list[str]:
        known = self.every_option
        wrong = {n: v for n, v in asked.options.items() if n in known and not known[n].is_right(v)}
        return [f"{name} is {value!r}; it must be {known[name].allowed}" for name, value in wrong.items()]

    def check(self, models: int, sets: int, **request: Any) -> None:
        wrong = self.problems(Asked(models, sets, **request))
        if wrong:
            raise RequestError("; ".join(wrong) + ".")


def bad_weights(weights: Any, models: int) -> list[str]:
    good = isinstance(weights, Sequence) and not isinstance(weights, str)
    if good and len(weights) == models and all(number(1.0, 0, above=True).is_right(w) for w in weights):
        return []
    return [f"weights are {weights}; there must be {models}, all above 0"]


ARXIV = "https://arxiv.org/abs/"
SEED = whole(0, 0)

DATA_METHODS: dict[str, DataMethod] = {
    m.name: m
    for m in (
        DataMethod(
            "match",
            "with_data:matched",
            "Layer by layer, to the responses each network had on its own features.",
            "docs/moments.md",
            one_each=True,
            weighted=True,
            repairs=False,  # every layer is fitted to what those below give; other statistics would undo that
            options={"ridge": number(None, 0), "refits": whole(4, 0), "anchor": word("folded", "recalibrated")},
        ),
        DataMethod(
            "regmean",
            "regmean:regmean",
            "Every layer by itself, on each network's own features.",
            ARXIV + "2212.09849",
            one_each=True,
            weighted=True,
            folds=True,
            options={"shrink": number(0.9, 0, 1), "ridge": number(1e-6, 0)},
        ),
        DataMethod(
            "regmean++",
            "regmean:regmean_plus",
            "The same on the features of the merged network, whose lower layers are merged already.",
            ARXIV + "2508.03121",
            one_each=True,
            weighted=True,
            folds=True,
            repairs=False,  # as match
            options={"shrink": number(0.9, 0, 1), "ridge": number(1e-6, 0), "seed": SEED},
        ),
        DataMethod(
            "fisher",
            "with_data:fisher",
            "Every number by how much it matters to its network.",
            ARXIV + "2111.09832",
            one_each=True,
            weighted=True,
            folds=True,
            answers=True,
            options={"floor": number(1e-6, 0, above=True), "seed": SEED},
        ),
        DataMethod(
            "rebasin",
            "alignment:rebasined",
            "Channels in the first one's order, the mean, new batch-norm statistics.",
            ARXIV + "2209.04836",
            weighted=True,
            repairs=False,  # its function does: the channels have moved
            options={"by": word("weights", "activations"), "batch_size": whole(250, 2), "repair": flag()},
        ),
        DataMethod(
            "zipit",
            "zipping:zipped",
            "Channels of two networks paired by their activations, across and within, and merged.",
            ARXIV + "2305.03053",
            exactly=2,
            repairs=False,  # its function does: channels have become others
            options={"within": number(1.0, 0, 1), "batch_size": whole(250, 2), "repair": flag()},
        ),
        DataMethod(
            "greedy_soup",
            "soup:merge_greedy_soup",
            "The mean of those that do not make it worse, best first.",
            ARXIV + "2203.05482",
            needs_labels=True,
            repairs=False,
            options={"by": word("mean", "worst"), "bn": word("linear", "recalibrate")},
        ),
        DataMethod(
            "adamerging",
            "adamerging:merged",
            "base + Σ λ · (model − base), every layer's λ learned without labels.",
            ARXIV + "2310.02575",
            needs_base=True,
            answers=True,
            options={
                "goal": word("entropy", "teachers"),
                "per": word("layer", "task"),
                "steps": whole(500, 1),
                "lr": number(1e-3, 0, 10, above=True),
                "start": number(0.3, 0, 10),
                "limit": number(1.0, 0, 10, above=True),
                "batch_size": whole(16, 1),
                "seed": SEED,
            },
        ),
    )
}


@dataclass(frozen=True)
class WeightMethod(DataMethod):
    """A method that looks at weights alone; images are for the batch-norm statistics."""

    def problems(self, asked: Asked) -> list[str]:
        from brickwork.algebra.methods import get

        own = {n: v for n, v in asked.options.items() if n not in self.every_option}
        own |= {} if asked.weights is None else {"weights": asked.weights}
        wrong = get(self.name).check(asked.models, asked.base, own)
        return [*wrong, *self._heads(asked), *self._values(asked)]


def find(name: str) -> DataMethod:
    """The method of this name, or an UnknownName with the nearest."""
    if name in DATA_METHODS:
        return DATA_METHODS[name]
    from brickwork.algebra.methods import registry

    if name not in registry():
        raise UnknownName("merge method with data", name, [*DATA_METHODS, *registry()])
    known = registry()[name]
    own = {"bn": word("recalibrate", "batch", "linear", "keep"), "seed": SEED}
    return WeightMethod(name, "with_data:by_weights", known.about, known.paper, known.needs_base, options=own)
