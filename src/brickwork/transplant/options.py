"""The options of transplanting, paper 3's operations: how an adapter is learned, a task module, parts together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from brickwork.errors import RequestError
from brickwork.options import Options, fields_of, option, refuse, seed_option
from brickwork.training.options import AUGMENTATIONS

SCHEDULES = ("constant", "cosine", "onecycle")
STARTS = ("identity", "random")
RESIZES = ("windows", "interpolate")
PREFIXES = ("features", "constant")
DUMMIES = ("first", "second", "lowest")
PARTS = ("adapters", "tasks", "categories")
MOST_LOOKS = 200  # views, or blends, of one image: all are held in memory


@dataclass(frozen=True)
class Way:
    """How an adapter is learned, and what that needs beside the two modules."""

    about: str
    needs: tuple[Literal["labels", "images", "teacher", "own"], ...]  # own: a category of the task's, for its features
    terms: tuple[str, ...] = ()
    pseudo: bool = False  # pseudo-gradients go down through both task modules

    @property
    def uses_labels(self) -> bool:
        return any(term.startswith("task") for term in self.terms)


WAYS = {
    "direct-learn": Way("the task loss alone (the paper's baseline)", ("labels", "images"), ("task",)),
    "distill": Way("the teacher's answers on images without labels", ("images", "teacher"), ("answers",)),
    "jacobian": Way(
        "the teacher's true gradients at the features, by double backward", ("images", "teacher"), ("task?", "jacobian")
    ),
    "back-distill": Way(
        "the paper's: pseudo-gradients, and the task loss where there are labels",
        ("teacher",),
        ("task?", "pseudo"),
        True,
    ),
    "back-distill+distill": Way(
        "pseudo-gradients and the teacher's answers", ("images", "teacher"), ("task?", "answers", "pseudo"), True
    ),
    "closed-form": Way(
        "the least-squares adapter of the pseudo-gradients; nothing is trained", ("teacher",), pseudo=True
    ),
    "closed-form+distill": Way(
        "from the least-squares adapter on, the teacher's answers", ("images", "teacher"), ("task?", "answers"), True
    ),
    "match": Way(
        "least squares onto the features that the task is used to, of the same images; nothing is trained",
        ("images", "own"),
    ),
    "match+distill": Way(
        "from the matched features on, the teacher's answers", ("images", "teacher", "own"), ("task?", "answers")
    ),
}

NO_OWN = (
    "{task} came with no other category, so nothing tells which features it is used to, and {way} needs them; use distill, "
    "or direct-learn with labels"
)
STEPS, BATCH, RATE = "Steps of Adam.", "Images, and random gradients, per step.", "Learning rate."


class AdapterOptions(Options):
    """How an adapter is learned; the same words on the command line, in a recipe and here."""

    way: str = option(
        default=None,
        choices=tuple(WAYS),
        help="How the adapter is learned.",
        default_text="closed-form+distill with images, closed-form without; with tokens match+distill",
    )
    labels: int = option(default=0, at_least=0, help="Labelled images per class; 0: none.")
    images: int = option(default=2000, at_least=1, help="Unlabelled images, at most, for the ways that look at some.")
    layers: int = option(default=1, at_least=1, help="Convolutions of the adapter.")
    kernel: int = option(default=1, at_least=1, odd=True, help="Kernel size of its convolutions: 1, 3, …")
    reorder: int | None = option(
        default=None,
        at_least=0,
        help="Seed of a reordering of the channels, as in the paper's tests.",
        default_text="as they come",
    )
    start: str = option(default="identity", choices=STARTS, help="Adapter to begin with.")
    resize: str = option(
        default="windows",
        choices=RESIZES,
        help="How tokens meet a grid of another size: all places of a window at once, or interpolated.",
    )
    prefix: str = option(
        default="features",
        choices=PREFIXES,
        help="What class tokens are made of: the features of the image, or nothing that differs between images.",
    )
    steps: int = option(default=400, at_least=1, help=STEPS)
    batch_size: int = option(default=50, at_least=1, help=BATCH)
    lr: float = option(default=1e-3, above=0, help=RATE)
    schedule: str = option(default="constant", choices=SCHEDULES, help="Learning rate over time.")
    temperature: float = option(
        default=1.0, above=0, help="Temperature of both answers; above 1, how sure the teacher is counts too."
    )
    views: int = option(
        default=1, at_least=1, at_most=MOST_LOOKS, help="Views of every image: itself, and shifted and mirrored ones."
    )
    blends: int = option(
        default=0,
        at_least=0,
        at_most=MOST_LOOKS,
        help="Blends of every unlabelled image with others, for the teacher to answer.",
    )
    augment: str = option(default="crop+flip", choices=AUGMENTATIONS, help="How views and blends are made.")
    weight: float = option(default=10.0, above=0, help="Weight of the pseudo-gradients: the paper's 10 in λ.")
    per: str = option(
        default="norm", choices=("norm", "square"), help="What λ is divided by: E‖D_T‖, as printed, or E‖D_T‖²."
    )
    alpha: float | None = option(
        default=None,
        above=0,
        help="α of Eq. 3.",
        default_text="the teacher's mean norm against that of what arrives at the adapter, once",
    )
    dummy: str = option(default="second", choices=DUMMIES, help="How pseudo-gradients pass ReLUs.")
    share: float = option(default=0.5, above=0, at_most=1, help="Share of the places that second and lowest let pass.")
    size: int | None = option(
        default=None, at_least=1, help="Enlarge a classifier's random gradients to size × size (the paper: 7)."
    )
    seed: int = seed_option()

    def resolved(self, *, images: bool, tokens: bool = False, own: bool = True) -> AdapterOptions:
        """With the way decided: by whether there are images to look at, and tokens, which no pseudo-gradient passes.

        own: whether the task came with a category, whose features tokens can be matched to.
        """
        if self.way is not None:
            return self
        if tokens:
            return replace(self, way="match+distill" if own else "distill")
        return replace(self, way="closed-form+distill" if images else "closed-form")

    def needs(self, *, data: bool, given: Iterable[str] = (), tokens: bool | None = None) -> list[str]:
        """What the way lacks, or has no use for; data: whether images are given, given: options that were.

        tokens: whether the adapter reads or makes tokens; None: not known yet.
        """
        idle = [f"`{name}` is not used by {self.way}; leave it out" for name in self.unused(given)]
        asked = {*self.changed(), *given}
        maps = [name for name in ("resize", "prefix") if name in asked and tokens is False]
        idle += [f"`{name}` is for tokens, and here are maps on both sides; leave it out" for name in maps]
        return [*self.lacks(data=data, tokens=tokens), *idle]

    def lacks(self, *, data: bool, tokens: bool | None = None) -> Iterator[str]:
        """What the way lacks; data, tokens: as for `needs`."""
        chosen = WAYS[self.way]
        if tokens and chosen.pseudo:
            yield (
                f"{self.way} sends pseudo-gradients down through convolutions and ReLUs, and here are tokens; use "
                "match+distill, match, distill, jacobian or direct-learn"
            )
        if "labels" in chosen.needs and self.labels == 0:
            yield (
                f"{self.way} needs labels: give `labels`, so many per class; without any, use back-distill, distill or "
                "closed-form"
            )
        elif not data and ("images" in chosen.needs or self.labels):
            yield f"{self.way} with `labels` {self.labels} needs images; give `data`"
        elif self.labels and not chosen.uses_labels:
            yield f"{self.way} uses no labels; leave `labels` {self.labels} out, or use closed-form+distill"

    def unused(self, given: Iterable[str] = ()) -> list[str]:
        """Options that were changed, or given as they are anyway, and that this way has no use for."""
        chosen = WAYS[self.way]
        trained = bool(chosen.terms)
        difference = bool({"pseudo", "jacobian"} & set(chosen.terms))
        looks = trained and ("images" in chosen.needs or self.labels > 0)
        use = {
            **dict.fromkeys(("steps", "batch_size", "lr", "schedule"), trained),
            "views": looks,
            "temperature": "answers" in chosen.terms,
            "blends": trained and "images" in chosen.needs and "labels" not in chosen.needs,
            "augment": looks and (self.views > 1 or self.blends > 0),
            **dict.fromkeys(("weight", "alpha", "per"), difference),
            **dict.fromkeys(("dummy", "size"), chosen.pseudo),
            "share": chosen.pseudo and self.dummy != "first",
            "images": "images" in chosen.needs,
        }
        asked = {*self.changed(), *given}
        return [name for name, used in use.items() if name in asked and not used]


class CompareOptions(AdapterOptions):
    """Adapters learned in several ways, to be compared."""

    way: tuple[str, ...] = option(default=(), choices=tuple(WAYS), help="How adapters are learned; repeatable.")  # type: ignore[assignment]
    labels: tuple[int, ...] = option(  # type: ignore[assignment]
        default=(), at_least=0, help="Labelled images per class, 0 for none; repeatable."
    )

    def plans(self, given: Iterable[str] = ()) -> list[AdapterOptions]:
        """Every way with every number of labels that it can use; a way that uses none comes once."""
        shared = {name: getattr(self, name) for name in fields_of(AdapterOptions) if name not in ("way", "labels")}
        if not self.way:
            asked = {*self.changed(), *given}
            for name in [n for n in fields_of(AdapterOptions) if n in asked and n != "seed"]:
                raise RequestError(f"`{name}` is for adapters that are learned here; give `way`, or leave it out.")
            return []
        counts = sorted(set(self.labels)) or [0]
        plans = []
        for way in dict.fromkeys(self.way):
            some = [c for c in counts if c or "labels" not in WAYS[way].needs] or [0]
            plans += [AdapterOptions(way=way, labels=c, **shared) for c in (some if WAYS[way].uses_labels else [0])]
        refuse(list(dict.fromkeys(text for plan in plans for text in plan.lacks(data=True))))
        unused = set.intersection(*(set(plan.unused(given)) for plan in plans))
        if unused:
            raise RequestError(f"`{min(unused)}` is used by none of these ways; leave it out.")
        known = fields_of(AdapterOptions)  # an option is for the ways that use it; for the others it was not given
        return [replace(plan, **{name: known[name].default for name in plan.unused()}) for plan in plans]


class LearnTaskOptions(Options):
    """How a task module is learned on the features of categories."""

    steps: int = option(default=400, at_least=1, help=STEPS)
    batch_size: int = option(default=50, at_least=1, help="Images per step.")
    lr: float = option(default=1e-3, above=0, help=RATE)
    seed: int = seed_option()


class TuneOptions(Options):
    """How parts of a net are trained together."""

    parts: tuple[str, ...] = option(default=PARTS, choices=PARTS, separator=",", help="Which parts may change.")
    steps: int = option(default=200, at_least=1, help=STEPS)
    batch_size: int = option(default=32, at_least=1, help="Images per step.")
    lr: float = option(default=1e-4, above=0, below=1, help=RATE)
    seed: int = seed_option()
