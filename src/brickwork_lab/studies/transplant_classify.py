"""Paper 3, Tables 3 (top) and 4 (top): category modules transplanted to another network's classification module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from brickwork.transplant import Dummy
from brickwork_lab.studies.greenhouse import SAMPLES, Greenhouse, Way, asked
from brickwork_lab.studies.registry import Row, Run, study
from brickwork_lab.studies.workshop import Workshop

#: samples: (direct-learn, back-distill), the paper's average error
SIMILAR = {100: (15.72, 7.09), 50: (19.07, 11.98), 20: (36.08, 27.96), 10: (39.31, 38.66)}
GENERIC = {100: (15.98, 4.64), 50: (17.65, 7.73), 20: (28.10, 18.82), 10: (39.69, 33.51)}
#: one map for all channels at the lowest ReLU, a fifth of it positive, and an enlarged gradient at the output
PAPERS: dict[str, Any] = {"dummy": Dummy("lowest", 0.2), "size": 7}
#: a 3×3 adapter, more looks at every image, more steps with a falling rate
LONG: dict[str, Any] = {"kernel": 3, "lr": 3e-3, "schedule": "onecycle"}
VIEWS, BLENDS, MANY = "3×3 and views", "3×3 and blends", "3×3 and many blends"
OTHERS = "3×3 and other images"
WARM, WARM_ALL = "3×3 and blends at temperature 4", "3×3 and blends of all images at temperature 4"
DEEP, WARM_DEEP = "five 3×3 and blends", "five 3×3 and blends at temperature 4"
BLENDED: dict[str, Any] = {**LONG, "views": 4, "blends": 12, "longer": 8, "batch_size": 100}
MORE: dict[str, dict[str, Any]] = {
    "": {"kernel": 1, "longer": 1},
    VIEWS: {**LONG, "views": 8, "longer": 4},
    BLENDS: BLENDED,
    MANY: {**LONG, "views": 4, "blends": 24, "longer": 24, "batch_size": 100},
    OTHERS: {**LONG, "views": 4, "blends": 6, "others": 2000, "longer": 8, "batch_size": 100},
    WARM: {**BLENDED, "temperature": 4.0},
    WARM_ALL: {**BLENDED, "temperature": 4.0},
    DEEP: {**BLENDED, "layers": 5},
    WARM_DEEP: {**BLENDED, "layers": 5, "temperature": 4.0},
}

WAYS = (
    Way("direct-learn", column=0),
    Way("back-distill", "random", options=PAPERS, column=1),
    Way("back-distill", options={**PAPERS, "alpha": 1.0}),
    Way("closed-form"),
    Way("distill", unlabelled=800),
    Way("closed-form+distill", unlabelled=800),
    Way("direct-learn", more=VIEWS),
    Way("distill", unlabelled=800, more=VIEWS),
    Way("closed-form+distill", unlabelled=800, more=VIEWS),
    Way("distill", unlabelled=800, more=BLENDS),
    Way("closed-form+distill", unlabelled=800, more=BLENDS),
    Way("distill", unlabelled=800, more=MANY),
    Way("distill", unlabelled=800, more=OTHERS),
    Way("distill", unlabelled=800, more=WARM),
    Way("closed-form+distill", unlabelled=800, more=WARM),
    Way("distill", unlabelled=1000, more=WARM_ALL),
    Way("distill", unlabelled=800, more=DEEP),
    Way("distill", unlabelled=800, more=WARM_DEEP),
)


@study("transplant-classify", paper="3, Table 3")
def transplant_classify(run: Run, *, picks: tuple[str, ...] | None = None) -> Iterator[Row]:
    """Categories brought to the task module of one other category: error after learning an adapter."""
    house = Greenhouse(Workshop.of(run))
    first, *others = house.categories
    yield from _rows(house, others, {name: [first] for name in others}, SIMILAR if run.full else {}, picks)


@study("transplant-dissimilar", paper="3, Table 4")
def transplant_dissimilar(run: Run, *, picks: tuple[str, ...] | None = None) -> Iterator[Row]:
    """The same to a task module of all other categories, dissimilar ones among them."""
    house = Greenhouse(Workshop.of(run))
    others = house.categories[1:] if run.full else house.categories[1:2]
    served = {name: [n for n in (*house.categories, *house.dissimilar) if n != name] for name in others}
    yield from _rows(house, others, served, GENERIC if run.full else {}, picks)


def _rows(
    house: Greenhouse,
    others: Sequence[str],
    served: dict[str, list[str]],
    paper: dict[int, tuple[float, float]],
    picks: tuple[str, ...] | None,
) -> Iterator[Row]:
    amounts = SAMPLES if house.shop.full else (20,)
    wanted = asked([way.row(amount) for amount in amounts for way in WAYS], picks)
    own = [house.error([n], None, house.halves([n]).above, house.against_others([n])) for n in others]
    for amount in amounts:
        for way in WAYS:
            if way.row(amount) not in wanted or (way.way == "closed-form" and amount != min(amounts)):
                continue  # the closed form uses no image: once is enough
            errors = [_error(house, way, name, served[name], amount) for name in others]
            yield {
                "what": way.row(amount),
                "ours": round(float(np.mean(errors)), 2),
                "paper": paper[amount][way.column] if way.column is not None and amount in paper else None,
                "whole": round(float(np.mean(own)), 2),
                "unlabelled": way.unlabelled + MORE[way.more].get("others", 0),
                "seed": house.shop.seed,
                "errors": dict(zip(others, np.round(errors, 2).tolist(), strict=True)),
            }


def _error(house: Greenhouse, way: Way, name: str, served: list[str], amount: int) -> float:
    """Per cent wrong of a category on another network's task module, after learning an adapter in this way."""
    options = dict(MORE[way.more])
    kernel, longer, layers = options.pop("kernel"), options.pop("longer"), options.pop("layers", 3)
    student = house.halves(served)
    adapter = house.adapter_for([name], student, layers=layers, kernel=kernel, start=way.start)
    learned = house.learned(
        [name],
        adapter,
        student.above,
        way.way,
        0 if way.way == "closed-form" else amount,
        unlabelled=way.unlabelled,
        steps=(longer if house.shop.full else min(longer, 2)) * house.steps,
        **options,
        **way.options,
    )
    return house.error([name], learned, student.above, house.against_others([name]))
