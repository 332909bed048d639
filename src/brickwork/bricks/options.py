"""The options of everything that is done with bricks, paper 2's operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from brickwork.options import MOST_SEED, Options, fields_of, option
from brickwork.training.options import FineTuneOptions

ATTRIBUTIONS = ("taylor", "frat", "frat-negative", "frat-absolute", "contribution")
REPAIRS = ("match", "bn", "none")
SEED = "Seed of every random number."
SCORE = "Score that says how much a channel matters to a class."
SCORED = "Images of the classes that channels are scored on, at most."
ON_ROUTE = "A channel is on a class's route if it scores above this × the layer's mean."
CALIBRATION = "Calibration images (unlabelled) that the repair uses, at most."


class DisassembleOptions(Options):
    """How much of a network stays, which channels, and how the part is repaired."""

    attribution: str | None = option(
        default=None,
        choices=("rebuild", *ATTRIBUTIONS),
        help="How channels are chosen: those that the others cannot rebuild, or by a score of each.",
        default_text="rebuild; taylor with --threshold",
    )
    keep: float | None = option(
        default=None,
        above=0,
        at_most=1,
        help="Share of the channels of every layer that stays; eight of them at least.",
    )
    budget: float | None = option(default=None, above=0, at_most=1, help="Share of what --of counts that may stay.")
    of: Literal["parameters", "macs", "latency"] = option(
        default="parameters", help="What a budget counts; latency: time of a forward pass, measured on the device."
    )
    batch: int = option(default=1, at_least=1, help="Images in the forward pass whose latency is measured.")
    threshold: float | None = option(
        default=None, at_least=0, help="The paper's rule: channels that score above this × the layer's mean stay."
    )
    tolerance: float = option(
        default=0.01,
        at_least=0,
        at_most=1,
        help="Without the three above: the smallest part that loses at most this accuracy.",
    )
    depth: str | int | None = option(
        default=None, help="Cut only from the last layer down to this one, by name or by number from the input."
    )
    repair: Literal["match", "bn", "none"] = option(
        default="match", help="Repair without labels: response matching, batch-norm statistics alone, or none."
    )
    images: int = option(default=3000, at_least=1, help=CALIBRATION)
    scored: int = option(default=3000, at_least=1, help=SCORED)
    labels: Literal["data", "network"] = option(
        default="data",
        help="What class an image counts as: the data's label, or the network's own answer, for images without labels.",
    )
    ridge: float | None = option(
        default=None,
        at_least=0,
        help="Ridge penalty of the repair.",
        default_text="per layer, by the error on a fifth of the calibration images",
    )
    polish: float | None = option(
        default=None,
        above=0,
        help="Minutes of distillation from the whole network afterwards, on the images without their labels; kept if it "
        "answers better on held-out images.",
    )
    round_to: int | None = option(default=None, at_least=1, help="Widths are a multiple of this.")
    uniform: bool = option(
        default=False,
        help="Widths that timm's, torchvision's or transformers' own arguments can say: one number per family of layers.",
    )
    output: str | int | None = option(default=None, help="Which output holds the logits, where there are several.")
    seed: int = option(default=0, at_least=0, at_most=MOST_SEED, help=SEED)

    @property
    def chosen_by(self) -> str:
        """How channels are chosen; the paper's threshold needs a score."""
        return self.attribution or ("taylor" if self.threshold is not None else "rebuild")

    @property
    def chosen(self) -> list[str]:
        """Which of the options that say how much stays are given; none: the tolerance decides."""
        return [name for name in ("keep", "budget", "threshold") if getattr(self, name) is not None]

    def rules(self) -> Iterator[str]:
        if len(self.chosen) > 1:
            named = " and ".join(f"`{name}`" for name in self.chosen)
            yield f"{named} are given; one of them says how much stays, or none"
        if self.attribution == "rebuild" and self.threshold is not None:
            yield "`threshold` compares scores, and `attribution` rebuild gives none; choose another attribution"
        if self.of == "latency" and self.chosen_by != "rebuild":
            yield f"`of` latency needs `attribution` rebuild, not {self.chosen_by}; budgets by a score count parameters or macs"
        if self.uniform and self.chosen_by != "rebuild":
            yield f"`uniform` needs `attribution` rebuild, not {self.chosen_by}"
        if self.uniform and self.of == "latency":
            yield "`uniform` counts parameters or macs; `of` latency needs widths of every layer's own"
        yield from (f"`{name}` is not used {why}; leave it out" for name, why in self._unused().items())

    def _unused(self) -> dict[str, str]:
        """Options that were changed and have no use, and why."""
        changed = self.changed()
        why = {}
        if self.chosen and "tolerance" in changed:
            why["tolerance"] = f"beside `{self.chosen[0]}`"
        if self.chosen and self.budget is None and "of" in changed:
            why["of"] = f"beside `{self.chosen[0]}`"
        if self.of != "latency" and "batch" in changed:
            why["batch"] = f"beside `of` {self.of}"
        if self.uniform:
            why |= {name: "beside `uniform`" for name in ("depth", "round_to") if name in changed}
        if self.repair != "match" and "ridge" in changed:
            why["ridge"] = f"by `repair` {self.repair}"
        return why


class CompressOptions(DisassembleOptions):
    """The same, for one budget or for several that are compared."""

    budget: float | tuple[float, ...] | None = option(  # type: ignore[assignment]
        default=None,
        above=0,
        at_most=1,
        separator=",",
        metavar="SHARE",
        help="Share of what --of counts that may stay; several, as in 0.7,0.5,0.25, are compared in a table.",
    )

    @property
    def budgets(self) -> tuple[float, ...]:
        """All of them; none: something else says how much stays."""
        assert not isinstance(self.budget, float)  # a single one is made a tuple, too
        return self.budget or ()

    def rules(self) -> Iterator[str]:
        yield from super().rules()
        named = [f"{share:g}" for share in self.budgets]  # as their folders are called
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            yield f"`budget` names {twice} twice, to six digits; give shares that differ"
        if self.budget == ():
            yield "`budget` names no share"

    def at(self, budget: float | None) -> DisassembleOptions:
        """The options of one of the budgets."""
        return DisassembleOptions(**{**{n: getattr(self, n) for n in fields_of(DisassembleOptions)}, "budget": budget})


class RoutesOptions(Options):
    """Which channels are on the route of a class."""

    attribution: str = option(default="frat", choices=ATTRIBUTIONS, help=SCORE)
    threshold: float = option(default=1.0, at_least=0, help=ON_ROUTE)
    scored: int = option(default=1000, at_least=1, help=SCORED)
    output: str | int | None = option(default=None, help="Which output holds the logits, where there are several.")
    seed: int = option(default=0, at_least=0, at_most=MOST_SEED, help=SEED)


class AssembleOptions(Options):
    """How bricks become one network."""

    calibrate: Literal["auto", "none", "source", "classwise", "target"] = option(
        default="auto",
        help="Logits on one scale: by part (source) or class by class (classwise), on each one's own data, or on target "
        "images (target); auto: source where it can be done.",
    )
    shared: Literal["auto", "union", "apart"] = option(
        default="auto", help="Bricks of one network: channels that they share once (union), or side by side (apart)."
    )
    how: Literal["auto", "blocks", "branches"] = option(
        default="auto", help="Interleave the layers of the parts (blocks), or run the parts whole (branches)."
    )


class TreatOptions(FineTuneOptions):
    """Fine-tuning with the route of each class as a constraint."""

    rule: Literal["route", "doctor", "plain"] = option(
        default="route",
        help="What is held to the routes: every layer (paper 2), the last convolution (Model Doctor), nothing.",
    )
    strength: float | None = option(default=None, at_least=0, help="Weight of the constraint.", default_text="0.1")
    threshold: float = option(default=1.0, at_least=0, help=ON_ROUTE)
    depth: str | int | None = option(default=2, help="Constrain only from the last layer down to this one.")
    attribution: str = option(default="frat", choices=ATTRIBUTIONS, help=SCORE)
    scored: int = option(default=1000, at_least=1, help=SCORED)

    def rules(self) -> Iterator[str]:
        if self.rule == "plain":
            yield from self.idle(("strength", "threshold", "depth", "attribution", "scored"), "by `rule` plain")


class DistilOptions(FineTuneOptions):
    """Training towards what teachers answer."""

    temperature: float = option(default=2.0, above=0, help="Temperature of the teachers' and the student's answers.")
    hard: float = option(
        default=0.5, at_least=0, at_most=1, help="Weight of the labels, where there are any; the teachers get the rest."
    )
    epochs: int = option(default=1, at_least=1, help="Passes over the images.", panel="The training")


class TransferOptions(FineTuneOptions):
    """Training on images of another kind."""

    what: Literal["independent", "all"] = option(
        default="independent", help="Train the channels on no class's route (independent), or everything (all)."
    )
    threshold: float = option(default=1.0, at_least=0, help=ON_ROUTE)
    attribution: str = option(default="frat", choices=ATTRIBUTIONS, help=SCORE)
    scored: int = option(default=1000, at_least=1, help=SCORED)

    def rules(self) -> Iterator[str]:
        if self.what == "independent" and self.weight_decay and "weight_decay" in self.changed():
            yield "`weight_decay` would move what `what` independent holds; leave it out, or train all"
        if self.what == "all":
            yield from self.idle(("threshold", "attribution", "scored"), "with `what` all, which holds nothing")


class AdaptOptions(Options):
    """Response matching on pairs of images."""

    images: int = option(default=2000, at_least=1, help="Pairs of images to match on, at most.")
    ridge: float = option(default=1e-3, at_least=0, help="Ridge penalty of the matching.")
    seed: int = option(default=0, at_least=0, at_most=MOST_SEED, help=SEED)


class ForgetOptions(Options):
    """How classes are forgotten."""

    strength: float = option(
        default=1.0, above=0, help="What all images of the classes to forget count together, beside 1 of all others."
    )
    depth: str | int | None = option(
        default=None,
        help="Solve only from the last layer down to this one, by name or by number from the input.",
        default_text="the last third",
    )
    outputs: Literal["drop", "keep"] = option(
        default="drop",
        help="What becomes of the outputs of these classes: gone, or left, where they may still be the answer.",
    )
    images: int = option(
        default=3000, at_least=1, help="Images of the classes to forget that are used, and of the others, at most."
    )
    ridge: float | None = option(
        default=None,
        at_least=0,
        help="Ridge penalty of the matching.",
        default_text="the least of 1e-4, 0.01, 0.1 and 1 within --tolerance",
    )
    tolerance: float = option(
        default=0.01,
        at_least=0,
        at_most=1,
        help="Accuracy on the other classes that may be lost, on a fifth of their images held out to choose the ridge.",
    )
    output: str | int | None = option(default=None, help="Which output holds the logits, where there are several.")
    seed: int = option(default=0, at_least=0, at_most=MOST_SEED, help=SEED)

    def rules(self) -> Iterator[str]:
        if self.ridge is not None:
            yield from self.idle(("tolerance",), "beside `ridge`")
