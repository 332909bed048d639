"""The options of weight algebra, paper 1's operations."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from brickwork.errors import RequestError
from brickwork.options import Options, option, parse_numbers, seed_option

BatchNorm = Literal["batch", "recalibrate", "linear", "keep"]
MEASURED = ("batch", "recalibrate")  # what needs images


class MaskOptions(Options):
    """One vector for several tasks and a mask for each."""

    rule: Literal["emr", "tall"] = option(default="emr", help="Rule of vector and masks: EMR-Merging, or TALL masks.")
    threshold: float = option(
        default=0.4, above=0, help="Share of what other tasks add to a number that a task's own part must reach (tall)."
    )

    def rules(self) -> Iterator[str]:
        if self.rule == "emr":
            yield from self.idle(("threshold",), "by `rule` emr")


class BatchNormOptions(Options):
    """What becomes of batch-norm statistics where networks are added up.

    Sums of weights have other activations than sums of statistics say: only what is measured is right, unless networks are
    all but the same. batch: of the batch at hand (a sweep: every batch of test images by itself; a network that is handed
    out: all images given, as one batch). recalibrate: measured on images, then fixed. linear: added up like weights.
    keep: the base's, or the first network's.
    """

    bn: BatchNorm | None = option(
        default=None,
        help="Batch-norm statistics: of the batch at hand, measured anew on images, added up like weights, or kept.",
        default_text="recalibrate with images, else linear",
    )

    def statistics(self, *, images: bool) -> BatchNorm:
        """What `bn` is if nobody says; refused where it needs images that there are not."""
        if self.bn in MEASURED and not images:
            raise RequestError(
                f"`bn` is {self.bn}, which measures statistics on images, and none are given; give some (`data`), or take "
                "linear or keep."
            )
        return self.bn or ("recalibrate" if images else "linear")


class AssignOptions(BatchNormOptions):
    """How a delta is added to a network."""

    strict: bool = option(default=False, help="Only to the network that the delta was taken from.")


class MergeOptions(BatchNormOptions):
    """What becomes of the tensors that are not plain weights."""

    heads: Literal["refuse", "keep"] = option(default="refuse", help="Tensors whose shapes differ.")
    repair: bool = option(
        default=False,
        help="Responses with the models' mean and spread, measured on images; for networks without batch norm.",
    )
    seed: int = seed_option()

    def statistics(self, *, images: bool) -> BatchNorm:
        if self.repair and not images:
            raise RequestError("`repair` measures responses on images, and none are given; give some (`data`).")
        return super().statistics(images=images)


class MergeSearchOptions(Options, panel="The search"):
    """Numbers of the method that are looked for, on labelled images."""

    search: dict[str, Any] | None = option(
        default=None,
        metavar="NAME=LOW:HIGH",
        help="Number of the method to be looked for, and its range, on labelled images, as in density=0.1:1; repeatable.",
    )
    tries: int = option(default=60, at_least=1, help="Merges that the search may try.")
    score: Literal["mean", "worst"] = option(
        default="mean", help="What the search compares: the mean accuracy of the sets of images, or that of the worst."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search is not None:  # one form, however it was given, so that a record that is read again is the same
            object.__setattr__(self, "search", {name: list(pair) for name, pair in self.ranges.items()})

    def rules(self) -> Iterator[str]:
        if self.search is None:
            yield from self.idle(("tries", "score"), "without `search`")
            return
        if not isinstance(self.search, dict):
            return  # said already
        if not self.search:
            yield "`search` names no number; give some, as in density=0.1:1"
        for name, given in self.search.items():
            if _range(given) is None:
                yield f"`search` of {name} is {given!r}; it must be two numbers, the lower first, as in {name}=0.1:1"

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The lowest and highest value of every number."""
        return {name: pair for name, given in (self.search or {}).items() if (pair := _range(given)) is not None}


def _range(given: Any) -> tuple[float, float] | None:
    """Two numbers, as a pair or as text with a colon; None where they are none."""
    try:
        low, high = (float(end) for end in (given.split(":") if isinstance(given, str) else given))
    except (TypeError, ValueError):
        return None
    return (low, high) if low < high and math.isfinite(high - low) else None


class SweepRunOptions(BatchNormOptions):
    """How cells of a plane are measured."""

    batch_size: int | None = option(default=None, at_least=1, help="Images in a pass.", default_text="as fits")
    cells: int | None = option(default=None, at_least=1, help="Cells in a pass.", default_text="as fits")
    precision: Literal["auto", "bf16"] = option(
        default="auto", help="The networks' own precision, or bf16: faster on a GPU."
    )
    journal: Path | None = option(default=None, help="File to go on from when stopped; with an engine, a folder.")


class SweepOptions(SweepRunOptions):
    """The grid of a sweep."""

    alpha: tuple[float, ...] = option(
        default=tuple(parse_numbers("0:1:0.1")), parse=parse_numbers, metavar="NUMBERS", help="α: 0:1:0.1, or 0,0.5,1."
    )
    beta: tuple[float, ...] | None = option(
        default=None,
        parse=parse_numbers,
        metavar="NUMBERS",
        help="β, likewise, for the second network.",
        default_text="as alpha",
    )

    def rules(self) -> Iterator[str]:
        for name in ("alpha", "beta"):
            values = getattr(self, name)
            if values is not None and (not values or len(set(values)) < len(values)):
                yield f"`{name}` is {list(values)}; it must be one number or several different ones"


class BalancedPointOptions(SweepRunOptions):
    """The search for the balanced point."""

    start: tuple[float, ...] = option(default=(0.5, 0.5), separator=",", help="α and β where the search begins.")
    step: float = option(default=0.5, above=0, help="How far it looks at first.")
    smallest: float = option(default=0.02, above=0, help="Step below which it ends.")
    tries: int = option(default=80, at_least=1, help="Cells it looks at, about.")

    def rules(self) -> Iterator[str]:
        if len(self.start) != 2:
            yield f"`start` is {list(self.start)}; it must be two numbers, α and β"


class CancelOptions(Options):
    """The gradient descents that are compared."""

    lr: tuple[float, ...] = option(
        default=(0.001, 0.01), above=0, separator=",", help="Learning rates, as in 0.001,0.01."
    )
    steps: tuple[int, ...] = option(
        default=(1, 2, 5, 10), at_least=1, separator=",", help="Steps of gradient descent on each task, as in 1,2,5."
    )
    batch_size: int | None = option(default=None, at_least=1, help="Images per step.", default_text="all of them")
    bn: Literal["batch", "keep"] = option(
        default="batch", help="Batch norms use the batch, as in training, or keep statistics."
    )
    seed: int = seed_option()

    def rules(self) -> Iterator[str]:
        for name in ("lr", "steps"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                yield f"`{name}` is {list(values)}; it must be one number or several different ones"
