"""Every merge method of the library as the suite asks for it: what it looks at, and which settings are tried.

What a paper scales is tried at a few scales; which one stays is decided without labels (`merging.Suite.agreement`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brickwork.algebra.data_methods import DATA_METHODS, find
from brickwork.algebra.methods import registry

Options = Mapping[str, Any]
#: average accuracy of eight CLIP ViT-B/32 with text heads at 224 pixels: another network, other tasks; for the order
PUBLISHED = {
    "linear": 66.5,
    "ties": 72.2,
    "regmean": 82.4,
    "iso_c": 82.8,
    "regmean++": 84.4,
    "wudi": 84.5,
    "fine-tuned": 90.3,
}
SOURCE = "fusion_bench docs, CLIP ViT-B/32"


@dataclass(frozen=True)
class Candidate:
    """A method with the settings of it that are tried; the first is the library's default where there is one."""

    method: str
    tries: Sequence[Options] = ({},)
    label: str = ""  # what a row calls it; the method's name without
    fixed: Options = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.label or self.method

    @property
    def looks_at(self) -> str:
        """What it is given beside the networks; batch-norm statistics are measured on unlabelled images in every row."""
        if self.method not in DATA_METHODS:
            return "weights"
        return "unlabelled images, gradient steps" if self.method == "adamerging" else "unlabelled images"

    @property
    def needs_base(self) -> bool:
        return find(self.method).needs_base

    @property
    def answers(self) -> bool:
        return find(self.method).answers


def _each(name: str, *values: Any) -> list[Options]:
    return [{name: value} for value in values]


def candidates(count: int, *, full: bool, steps: int) -> list[Candidate]:
    """All of them, for so many networks."""
    shares = [{"weights": [s] * count} for s in ((0.1, 0.2, 0.3, 0.5) if full else (0.2,))]
    scales = _each("scale", *((1.0, 0.5, 1.5) if full else (1.0,)))
    ridges = _each("ridge", *((1.0, 3.0, 10.0) if full else (1.0,)))
    learned: Options = {"steps": steps, "lr": 1e-2, "batch_size": 8, "start": 1.5 / count}
    return [
        Candidate("linear"),
        Candidate("task_arithmetic", shares),
        Candidate("ties", scales),
        Candidate("dare", shares),
        Candidate("della", shares),
        Candidate("breadcrumbs", shares),
        Candidate("model_stock"),
        Candidate("tsv", scales),
        Candidate("iso_c", scales),
        Candidate("iso_cts", scales),
        Candidate("wudi", scales),
        Candidate("rebasin"),
        Candidate("fisher"),
        Candidate("regmean"),
        Candidate("regmean++"),
        Candidate("match"),
        Candidate("match", ridges, "match, recalibrated", {"anchor": "recalibrated"}),
        Candidate("adamerging", label="adamerging, entropy", fixed=learned),
        Candidate("adamerging", label="adamerging, teachers", fixed={**learned, "goal": "teachers"}),
    ]


#: methods that are not for this: name and why
NOT_FOR_THIS = {
    "slerp": "merges two networks, not eight",
    "greedy_soup": "averages networks of one task and needs its labels",
    "zipit": "merges two networks, not eight",
}


def uncovered() -> list[str]:
    """Methods of the library that the suite neither runs nor says why it does not."""
    known = {c.method for c in candidates(2, full=False, steps=1)} | set(NOT_FOR_THIS)
    return sorted({*registry(), *DATA_METHODS} - known)
