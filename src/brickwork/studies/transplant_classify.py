"""Paper 3, Tables 3 (top) and 4 (top): category modules transplanted to another network's classification module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from brickwork.studies.greenhouse import SAMPLES, Greenhouse, asked
from brickwork.studies.registry import Row, Run, study
from brickwork.studies.workshop import Workshop
from brickwork.transplant import Dummy

#: samples: (direct-learn, back-distill), the paper's average error
SIMILAR = {100: (15.72, 7.09), 50: (19.07, 11.98), 20: (36.08, 27.96), 10: (39.31, 38.66)}
GENERIC = {100: (15.98, 4.64), 50: (17.65, 7.73), 20: (28.10, 18.82), 10: (39.69, 33.51)}
#: one map for all channels at the lowest ReLU, a fifth of it positive, and an enlarged gradient at the output
PAPERS: dict[str, Any] = {"dummy": Dummy("lowest", 0.2), "size": 7}
#: way, how the adapter begins, images without labels, options, the paper's column
WAYS: tuple[tuple[str, str, int, dict[str, Any], int | None], ...] = (
    ("direct-learn", "identity", 0, {}, 0),
    ("back-distill", "random", 0, PAPERS, 1),
    ("back-distill", "identity", 0, {**PAPERS, "alpha": 1.0}, None),
    ("closed-form", "identity", 0, {}, None),
    ("distill", "identity", 800, {}, None),
    ("closed-form+distill", "identity", 800, {}, None),
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
    wanted = asked([f"{a} samples, {way}, {start} start" for a in amounts for way, start, *_ in WAYS], picks)
    own = [house.error([n], None, house.halves([n]).above, house.against_others([n])) for n in others]
    for amount in amounts:
        for way, start, unlabelled, options, column in WAYS:
            what = f"{amount} samples, {way}, {start} start"
            if what not in wanted or (way == "closed-form" and amount != min(amounts)):
                continue  # the closed form uses no image: once is enough
            errors = []
            for name in others:
                student = house.halves(served[name])
                adapter = house.adapter_for([name], student, layers=3, kernel=1, start=start)
                labelled = 0 if way == "closed-form" else amount
                learned = house.learned(
                    [name], adapter, student.above, way, labelled, unlabelled=unlabelled, **options
                )
                errors.append(house.error([name], learned, student.above, house.against_others([name])))
            yield {
                "what": what, "ours": round(float(np.mean(errors)), 2),
                "paper": paper[amount][column] if column is not None and amount in paper else None,
                "whole": round(float(np.mean(own)), 2), "unlabelled": unlabelled, "seed": house.shop.seed,
                "errors": dict(zip(others, np.round(errors, 2).tolist(), strict=True)),
            }  # fmt: skip
