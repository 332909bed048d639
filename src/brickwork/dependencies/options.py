"""The options of dependencies between classes, paper 5's operations."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from brickwork.errors import RequestError
from brickwork.options import Options, option, seed_option
from brickwork.training.options import TRAINING, TrainOptions

APART = "Classes kept apart"  # heading of the help


class CutLinkOptions(Options, panel=APART):
    """Links between classes that training holds at zero (paper 5, Sec. 3.3)."""

    cut: tuple[str, ...] = option(default=(), metavar="A:B", help="Keep two classes' logits uncorrelated; repeatable.")
    cut_strength: float | None = option(default=None, at_least=0, help="Weight of --cut in the loss.", default_text="1")
    cut_by: Literal["covariance", "coefficient"] = option(
        default="covariance", help="What --cut holds at zero: the paper's covariance, or CovLasso's coefficient."
    )

    def rules(self) -> Iterator[str]:
        for name in ("cut_strength", "cut_by"):
            if not self.cut and name in self.changed():
                yield f"`{name}` needs `cut` A:B, the classes to keep apart"

    @property
    def strength(self) -> float:
        return 1.0 if self.cut_strength is None else self.cut_strength

    def penalty(self, classes: Sequence[str]) -> Any:
        """The loss term, as `train(penalty=…)` takes it; None without a link to cut."""
        if not self.cut:
            return None
        from brickwork.dependencies.cutting import parse_pair
        from brickwork.dependencies.partial import PENALTIES

        return PENALTIES[self.cut_by]([parse_pair(text) for text in self.cut], classes=classes, strength=self.strength)

    def provenance(self) -> dict[str, Any]:
        """What a model folder records of it."""
        if not self.cut:
            return {}
        return {"cut": {"pairs": list(self.cut), "by": self.cut_by, "strength": self.strength}}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RequestError(f"a number is {text!r}; it must be one, as in 0.3.") from None


#: how a class is fitted, and how much its own rows weigh by default
LOSSES = {"plain": 1.0, "balanced": 100.0, "decision": 10.0}


class CovLassoOptions(Options):
    """The estimator: which loss, how sparse, how the classes that enter are chosen."""

    lam: Any = option(
        default=None, parse=_number, metavar="NUMBER", help="λ of CovLasso, above 0; in Python also one per class."
    )
    relative: bool = option(default=False, help="λ is a share of each class's λ_max.")
    max_dependencies: int | None = option(
        default=None, at_least=1, help="Most other classes per class: the smallest λ with at most so many."
    )
    loss: Literal["plain", "balanced", "decision"] = option(
        default="plain", help="plain: the paper's; balanced: positives weigh more; decision: keeps decisions."
    )
    selection: Literal["lasso", "greedy"] = option(default="lasso", help="Classes enter by the lasso, or greedily.")
    refit: bool = option(default=False, help="Fit again without λ on the classes that were chosen.")
    positive_weight: float | None = option(
        default=None, at_least=1, help="Weight of a class's own rows.", default_text="balanced: 100, decision: 10"
    )
    decision_weight: float = option(default=400.0, at_least=0, help="Weight of the cross-entropy in the decision loss.")
    label_share: float = option(
        default=0.3, at_least=0, at_most=1, help="Share of the labels in the decision loss's targets."
    )
    own: bool = option(default=False, help="For another network's classes: class i may be used for class i.")
    tol: float = option(default=1e-6, above=0, at_most=1e-2, help="Largest violation of the optimality conditions.")
    solver: Literal["auto", "numba", "torch"] = option(
        default="auto", help="Solver: numba on the CPU (auto), or torch on the device."
    )
    threads: int | None = option(default=None, at_least=1, help="Threads of the solver.", default_text="all cores")

    def rules(self) -> Iterator[str]:
        values = self.lam if isinstance(self.lam, Sequence) else getattr(self.lam, "tolist", lambda: self.lam)()
        values = values if isinstance(values, list | tuple) else [values]
        numbers = [
            isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) and v > 0 for v in values
        ]
        if self.lam is not None and not all(numbers):
            yield f"`lam` is {self.lam}; λ must be above 0, for example 0.3 with `relative`"
        greedy = self.selection == "greedy"
        if greedy and (self.max_dependencies is None or self.lam is not None or self.refit):
            yield "`selection` greedy takes `max_dependencies` alone: no `lam`, no `refit`"
        if self.loss == "plain" and self.positive_weight is not None:
            yield "`loss` plain weighs all rows alike; `positive_weight` belongs to balanced and decision"
        if self.loss != "decision":
            yield from self.idle(("decision_weight", "label_share"), f"by `loss` {self.loss}")


class MapOptions(CovLassoOptions):
    """A dependency map: the estimator, and how it is measured."""

    holdout: float | None = option(
        default=None,
        at_least=0,
        below=1,
        help="Share of each class's rows to measure on, kept out of the fit.",
        default_text="0; of a model on images that it was not trained on 0.3",
    )
    delta: float = option(default=0.05, above=0, below=1, help="δ of Definition 1.")
    bootstrap: int = option(default=0, at_least=0, help="Rounds of resampling: which dependencies survive.")
    null: int = option(default=0, at_least=0, help="Rounds of shuffling, 19 or more: what is noise.")
    seed: int = seed_option()

    def estimator(self) -> dict[str, Any]:
        """As keyword arguments of CovLasso; ten others per class where nothing says how sparse."""
        chosen = {name: getattr(self, name) for name in CovLassoOptions.__dataclass_fields__}
        if self.lam is None and self.max_dependencies is None:
            chosen["max_dependencies"] = 10
        return chosen


class AddOptions(TrainOptions):
    """New classes for a model: what they are made of, and how; a branch is trained with the options of training."""

    epochs: int = option(
        default=None,
        at_least=1,
        help="Passes over the images.",
        default_text="a tenth of the architecture's recipe",
        panel=TRAINING,
    )
    how: Literal["train", "ridge"] = option(
        default="train", help="By cross-entropy over all classes, or in closed form."
    )
    on: Literal["logits", "features", "depths", "branch"] = option(
        default="logits",
        help="New classes out of the logits (the paper's), of what the last layer reads, of what several depths answer, or "
        "from a trained branch.",
    )
    strength: float | None = option(
        default=None, above=0, help="Weight of the L2 term.", default_text="found by holding out"
    )

    bias: bool = option(default=True, help="An offset for each new class; the paper's form has none, and no base data.")

    def training(self) -> dict[str, Any]:
        """The options of training that are given."""
        known = TrainOptions.__dataclass_fields__
        return {name: value for name, value in self.changed().items() if name in known and name != "seed"}

    def rules(self) -> Iterator[str]:
        yield from super().rules()
        if self.on == "branch" and (self.how != "train" or self.strength is not None):
            yield "a branch is trained as a network is; leave `how` and `strength` out, or choose another `on`"
        if not self.bias and self.on in ("branch", "depths"):
            yield f"`bias` is off, and `on` {self.on} needs one; choose `on` logits or features"
        if self.on != "branch" and self.training():
            name = next(iter(self.training()))
            yield f"`{name}` is for `on` branch; with `on` {self.on} nothing is trained but one matrix"

    def needs(self, *, base_data: bool) -> Iterator[str]:
        """What is missing, with images of known classes or without."""
        if self.on == "branch" and not base_data:
            yield "a branch is trained on known classes too; give `base_data`, images of them, or another `on`"
