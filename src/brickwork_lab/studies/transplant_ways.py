"""Rows of the studies of paper 3: ways to learn an adapter, with so many labelled images, and so many runs of each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from brickwork.errors import UnknownName
from brickwork.transplant.options import WAYS
from brickwork_lab.lab import Lab

SAMPLES = (10, 20, 50, 100)
ALL = -1  # labelled images: every one that no choice is judged on


@dataclass(frozen=True)
class Way:
    """A way to learn an adapter: a row for every number of labelled images."""

    way: str
    start: str = "identity"
    unlabelled: int = 0  # further images without labels
    options: dict[str, Any] = field(default_factory=dict)
    column: int | None = None  # of the paper's numbers
    more: str = ""  # a larger adapter, more looks at every image, more steps: how the study calls it
    amounts: tuple[int, ...] = SAMPLES  # of images with labels, for a way that uses none, without

    @property
    def uses_labels(self) -> bool:
        return WAYS[self.way].uses_labels

    def row(self, amount: int) -> str:
        """What a row is called: a way that uses no label never says that it has samples.

        >>> Way("direct-learn").row(10), Way("distill").row(10), Way("distill", unlabelled=800).row(0)
        ('10 samples, direct-learn, identity start', '10 unlabelled images, distill, identity start', \
'no label, distill, identity start')
        """
        some = f"{amount} samples" if self.uses_labels else f"{amount} unlabelled images"
        labelled = {0: "no label", ALL: "all labels"}.get(amount, some)
        return ", ".join(filter(None, (labelled, self.way, self.more, f"{self.start} start")))


def trials_of(ways: Sequence[Way], few: int | None = None) -> list[tuple[int, Way]]:
    """Every way with its numbers of labelled images, by number; few: stands for all numbers but none and all.

    >>> ways = (Way("direct-learn"), Way("closed-form", amounts=(0,)), Way("jacobian", amounts=(100,)))
    >>> [way.row(amount) for amount, way in trials_of(ways, few=4)][:2]
    ['no label, closed-form, identity start', '4 samples, direct-learn, identity start']
    >>> len(trials_of(ways))
    6
    """
    asked = [({few if few and a not in (0, ALL) else a for a in way.amounts}, way) for way in ways]
    every = (0, *((few,) if few else SAMPLES), ALL)
    return [(amount, way) for amount in every for amounts, way in asked if amount in amounts]


def runs_of(lab: Lab, seeds: int | None, full: int) -> list[Lab]:
    """The same run with so many seeds: as asked, else `full` of them in a full run and one at smoke size."""
    return [lab.reseeded(k) for k in range(seeds or (full if lab.full else 1))]


def adapter_words(layers: int, kernel: int) -> str:
    """How large an adapter is.

    >>> adapter_words(3, 1), adapter_words(1, 3)
    ('3 of 1×1', '1 of 3×3')
    """
    return f"{layers} of {kernel}×{kernel}"


def rows_asked(rows: Sequence[str], picks: tuple[str, ...] | None) -> set[str]:
    """The rows that hold all words of one of the picks, "10 samples" or "10 samples, distill"; all of them without picks.

    >>> rows = ["10 samples, distill", "100 samples, distill", "10 samples, direct"]
    >>> sorted(rows_asked(rows, ("10 samples",))), sorted(rows_asked(rows, ("100 samples, distill",)))
    (['10 samples, direct', '10 samples, distill'], ['100 samples, distill'])
    """
    chosen: set[str] = set() if picks else set(rows)
    for pick in picks or ():
        matching = {row for row in rows if set(pick.split(", ")) <= set(row.split(", "))}
        if not matching:
            raise UnknownName("row", pick, dict.fromkeys(word for row in rows for word in row.split(", ")))
        chosen |= matching
    return chosen
