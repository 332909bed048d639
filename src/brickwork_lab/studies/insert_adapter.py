"""Paper 3, Table 2: an adapter inserted into a network behind reordered channels, with few labels or none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from brickwork_lab.judging import mean
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, study
from brickwork_lab.studies.transplanting import SAMPLES, Categories, Way, rows_asked

#: convolutions: {samples: (direct-learn, back-distill)}, the paper's average error
PAPER: dict[int, dict[int, tuple[float | None, float]]] = {
    1: {100: (9.79, 1.65), 50: (14.84, 1.65), 20: (25.98, 1.55), 10: (38.76, 1.65), 0: (None, 1.75)},
    3: {100: (8.66, 2.37), 50: (11.96, 3.40), 20: (25.15, 5.77), 10: (33.92, 11.65), 0: (None, 49.90)},
}
WAYS = (
    Way("direct-learn", column=0),
    Way("back-distill", "random", column=1),
    Way("back-distill", options={"alpha": 1.0}),
    Way("closed-form", options={"alpha": 1.0}),
)


@study("insert-adapter", paper="3, Table 2")
def insert_adapter(lab: Lab, *, picks: Names = None) -> Iterator[Row]:
    """An adapter of one or three convolutions learned inside a network: error against the network's own."""
    categories = Categories(lab)
    names = categories.names
    trials = [(n, a, way) for n in (1, 3) for a in (0, *SAMPLES) for way in WAYS]
    wanted = rows_asked([_title(*trial) for trial in trials], picks)
    own = mean(categories.own_errors(names))
    for layers, amount, way in trials:
        useless = (way.way == "direct-learn" and amount == 0) or (way.way == "closed-form" and amount > 0)
        if useless or (amount and not lab.full) or _title(layers, amount, way) not in wanted:
            continue
        errors = [
            categories.error_after(name, categories.halves([name]), way, amount, layers=layers, kernel=3)
            for name in names
        ]
        yield {
            "what": _title(layers, amount, way),
            "paper": PAPER[layers][amount][way.column] if lab.full and way.column is not None else None,
            "ours": mean(errors),
            "whole": own,
            "errors": dict(zip(names, np.round(errors, 2).tolist(), strict=True)),
            "seed": lab.seed,
        }


def _title(layers: int, amount: int, way: Way) -> str:
    return f"insert {layers} conv, {way.row(amount)}"
