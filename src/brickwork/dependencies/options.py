"""The options of dependencies between classes, paper 5's operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from brickwork.options import Options, option

APART = "Classes kept apart"  # heading of the help


class CutLinkOptions(Options):
    """Links between classes that training holds at zero (paper 5, Sec. 3.3)."""

    cut: tuple[str, ...] = option(
        (), metavar="A:B", help="Keep two classes' logits uncorrelated; repeatable.", panel=APART
    )
    cut_strength: float | None = option(
        None, at_least=0, help="Weight of --cut in the loss.", default_text="1", panel=APART
    )
    cut_by: Literal["covariance", "coefficient"] = option(
        "covariance", help="What --cut holds at zero: the paper's covariance, or CovLasso's coefficient.", panel=APART
    )

    def rules(self) -> Iterator[str]:
        if not self.cut and self.cut_strength is not None:
            yield "`cut_strength` needs `cut` A:B, the classes to keep apart"

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
