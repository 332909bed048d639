"""Paper 3, Tables 2, 3 (top) and 4 (top): adapters learned inside a network, and between two that classify."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from brickwork_lab.judging import mean
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, study
from brickwork_lab.studies.transplanting import SAMPLES, Categories, Way, adapter_words, rows_asked

#: convolutions: {samples: (direct-learn, back-distill)}, the paper's average error
INSERTED: dict[int, dict[int, tuple[float | None, float]]] = {
    1: {100: (9.79, 1.65), 50: (14.84, 1.65), 20: (25.98, 1.55), 10: (38.76, 1.65), 0: (None, 1.75)},
    3: {100: (8.66, 2.37), 50: (11.96, 3.40), 20: (25.15, 5.77), 10: (33.92, 11.65), 0: (None, 49.90)},
}
#: the paper does not say what its adapters start from, so both of its methods have both starts
INSERT_WAYS = (
    Way("direct-learn", column=0),
    Way("direct-learn", "random", column=0),
    Way("back-distill", "random", column=1),
    Way("back-distill", options={"alpha": 1.0}),
    Way("closed-form", options={"alpha": 1.0}),
)


@study("insert-adapter", paper="3, Table 2")
def insert_adapter(lab: Lab, *, picks: Names = None) -> Iterator[Row]:
    """An adapter of one or three convolutions learned inside a network: error against the network's own."""
    categories = Categories(lab)
    names = categories.names
    amounts = (0, *SAMPLES) if lab.full else (0, 20)
    trials = [(n, a, way) for n in (1, 3) for a in amounts for way in INSERT_WAYS]
    wanted = rows_asked([_title(*trial) for trial in trials], picks)
    own = mean(categories.own_errors(names))
    for layers, amount, way in trials:
        useless = (way.way == "direct-learn" and amount == 0) or (way.way == "closed-form" and amount > 0)
        if useless or _title(layers, amount, way) not in wanted:
            continue
        errors = [
            categories.error_after(name, categories.halves([name]), way, amount, layers=layers, kernel=3)
            for name in names
        ]
        paper = INSERTED[layers][amount][way.column] if lab.full and way.column is not None else None
        row: Row = {"what": _title(layers, amount, way), "paper": paper, "ours": mean(errors), "whole": own}
        row |= {"adapter": adapter_words(layers, 3)}
        row |= {"unlabelled": 0, "steps": 0 if way.way == "closed-form" else categories.steps, "seed": lab.seed}
        yield {**row, "errors": dict(zip(names, np.round(errors, 2).tolist(), strict=True))}


def _title(layers: int, amount: int, way: Way) -> str:
    return f"insert {layers} conv, {way.row(amount)}"


#: samples: (direct-learn, back-distill), the paper's average error
SIMILAR = {100: (15.72, 7.09), 50: (19.07, 11.98), 20: (36.08, 27.96), 10: (39.31, 38.66)}
GENERIC = {100: (15.98, 4.64), 50: (17.65, 7.73), 20: (28.10, 18.82), 10: (39.69, 33.51)}
#: one map for all channels at the lowest ReLU, a fifth of it positive, and an enlarged gradient at the output
PAPERS: dict[str, Any] = {"dummy": "lowest", "share": 0.2, "size": 7}
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
    Way("direct-learn", "random", column=0),
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
def transplant_classify(lab: Lab, *, picks: Names = None) -> Iterator[Row]:
    """Categories brought to the task module of one other category: error after learning an adapter."""
    categories = Categories(lab)
    first, *others = categories.names
    yield from _rows(categories, {name: [first] for name in others}, SIMILAR if lab.full else {}, picks)


@study("transplant-dissimilar", paper="3, Table 4")
def transplant_dissimilar(lab: Lab, *, picks: Names = None) -> Iterator[Row]:
    """The same to a task module of all other categories, dissimilar ones among them."""
    categories = Categories(lab)
    every = (*categories.names, *categories.dissimilar)
    served = {name: [n for n in every if n != name] for name in categories.names[1:]}
    yield from _rows(categories, served, GENERIC if lab.full else {}, picks)


def _rows(
    categories: Categories, served: dict[str, list[str]], paper: dict[int, tuple[float, float]], picks: Names
) -> Iterator[Row]:
    """served: for each category those whose task module it is brought to."""
    lab = categories.lab
    amounts = SAMPLES if lab.full else (20,)
    wanted = rows_asked([way.row(amount) for amount in amounts for way in WAYS], picks)
    own = mean(categories.own_errors(list(served)))
    for amount in amounts:
        for way in WAYS:
            if way.row(amount) not in wanted or (way.way == "closed-form" and amount != min(amounts)):
                continue  # the closed form uses no image: once is enough
            options = {"layers": 3, **MORE[way.more]}
            longer = options.pop("longer")
            options["steps"] = (longer if lab.full else min(longer, 2)) * categories.steps
            labelled = 0 if way.way == "closed-form" else amount
            errors = [
                categories.error_after(name, categories.halves(task), way, labelled, **options)
                for name, task in served.items()
            ]
            known = paper[amount][way.column] if way.column is not None and amount in paper else None
            row: Row = {"what": way.row(amount), "ours": mean(errors), "paper": known, "whole": own}
            row |= {"unlabelled": way.unlabelled + MORE[way.more].get("others", 0)}
            row |= {"adapter": adapter_words(options["layers"], options["kernel"])}
            row |= {"steps": 0 if way.way == "closed-form" else options["steps"], "seed": lab.seed}
            yield {**row, "errors": dict(zip(served, np.round(errors, 2).tolist(), strict=True))}
