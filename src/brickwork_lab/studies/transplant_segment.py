"""Paper 3, Tables 3 and 4 (bottom): category modules transplanted to another network's segmentation module.

The adapter, one 1×1 convolution or three of 3×3, lies behind the first pool. `held_out`: pixels right of images that neither
networks nor adapters learned from; where one row is chosen among several, it is chosen by that.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from brickwork_lab.judging import mean
from brickwork_lab.lab import Lab
from brickwork_lab.studies.breeds import Breeds
from brickwork_lab.studies.registry import Names, Row, averaged, study
from brickwork_lab.studies.transplant_ways import ALL, Way, adapter_words, rows_asked, runs_of, trials_of

Known = dict[int, tuple[float | None, ...]]
#: samples: (direct-learn, distill, back-distill), the paper's mean pixel accuracy
SIMILAR: Known = {100: (77.63, 78.35, 87.97), 50: (75.34, 76.01, 87.30)}
SIMILAR |= {20: (75.15, 75.04, 86.66), 10: (74.99, 75.09, 85.32)}
GENERIC: Known = {20: (73.56, None, 80.14), 10: (71.19, None, 80.10)}
FIRST = {"dummy": "first"}
#: the paper's λ for segmentation is 1 / E‖D'_T‖
PRINTED: dict[str, Any] = {"weight": 1.0, **FIRST}
VIEWS = "3×3 and views"
WAYS = (
    Way("direct-learn", "random", column=0),
    Way("direct-learn", column=0),
    Way("distill", "random", column=1),
    Way("back-distill", "random", options=PRINTED, column=2),
    Way("back-distill", options=PRINTED, column=2),
    Way("jacobian", options={"weight": 1.0}, amounts=(100,)),
    Way("direct-learn", more=VIEWS, amounts=(10, 100, ALL)),
    Way("closed-form", options=FIRST, amounts=(0,)),
    Way("closed-form+distill", unlabelled=400, options=FIRST),
    Way("distill", unlabelled=ALL, more=VIEWS, amounts=(0,)),
)


@study("transplant-segment", paper="3, Table 3")
def transplant_segment(lab: Lab, *, picks: Names = None, seeds: int | None = None) -> Iterator[Row]:
    """Groups of breeds brought to the segmentation module of another: pixels right and IoU after learning an adapter."""
    runs = [Breeds(run) for run in runs_of(lab, seeds, 2)]
    first, *others = runs[0].groups
    yield from _rows(runs, dict.fromkeys(others, first), trials_of(WAYS, None if lab.full else 4), SIMILAR, picks)


@study("transplant-segment-dissimilar", paper="3, Table 4")
def transplant_segment_dissimilar(lab: Lab, *, picks: Names = None, seeds: int | None = None) -> Iterator[Row]:
    """The same to a module that segments all other groups, cats for dogs among them."""
    runs = [Breeds(run) for run in runs_of(lab, seeds, 2)]
    every = tuple(runs[0].groups)
    served = {name: "+".join(other for other in every if other != name) for name in every[1:]}
    trials = [(a, way) for a, way in trials_of(WAYS, None if lab.full else 4) if not lab.full or a in (0, *GENERIC)]
    yield from _rows(runs, served, trials, GENERIC, picks)


def _rows(
    runs: list[Breeds], served: dict[str, str], trials: list[tuple[int, Way]], paper: Known, picks: Names
) -> Iterator[Row]:
    """served: for each group those whose segmentation module it is brought to."""
    wanted = rows_asked([f"segment, {way.row(amount)}" for amount, way in trials], picks)
    chosen = [(amount, way) for amount, way in trials if f"segment, {way.row(amount)}" in wanted]

    def rows_of(breeds: Breeds) -> Iterator[Row]:
        for amount, way in chosen:
            known = paper.get(amount) if breeds.lab.full and way.column is not None else None
            row: Row = {"what": f"segment, {way.row(amount)}", "paper": known and known[way.column or 0]}
            yield {**row, **_row(breeds, served, amount, way)}

    yield from averaged([rows_of(breeds) for breeds in runs])


def _row(breeds: Breeds, served: dict[str, str], amount: int, way: Way) -> Row:
    """One way with so many images for every group."""
    adapters = {name: breeds.learned(name, task, way, amount) for name, task in served.items()}

    def judged(held: bool) -> np.ndarray:
        return np.array(
            [breeds.judged(n, adapters[n], breeds.halves(task).above, held=held) for n, task in served.items()]
        ).T

    (pixels, ious), (held, _) = judged(False), judged(True)
    own = np.mean([breeds.own(name) for name in served], 0)
    row: Row = {"ours": mean(pixels), "iou": mean(ious), "whole": mean(own[:1]), "whole_iou": mean(own[1:])}
    row |= {"held_out": mean(held), **breeds.looked_at(way, amount, list(served))}
    row |= {"adapter": adapter_words(*breeds.size_of(way)), "steps": breeds.steps(way), "seed": breeds.lab.seed}
    return {**row, "pixels": dict(zip(served, np.round(pixels, 2).tolist(), strict=True))}
