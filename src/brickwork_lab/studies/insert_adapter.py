"""Paper 3, Table 2: an adapter inserted into a network behind reordered channels, with few labels or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from brickwork_lab.studies.greenhouse import SAMPLES, Greenhouse, asked
from brickwork_lab.studies.registry import Row, Run, study
from brickwork_lab.studies.workshop import Workshop

#: convolutions: {samples: (direct-learn, back-distill)}, the paper's average error
PAPER = {
    1: {100: (9.79, 1.65), 50: (14.84, 1.65), 20: (25.98, 1.55), 10: (38.76, 1.65), 0: (None, 1.75)},
    3: {100: (8.66, 2.37), 50: (11.96, 3.40), 20: (25.15, 5.77), 10: (33.92, 11.65), 0: (None, 49.90)},
}


#: way, start, the paper's column
WAYS: tuple[tuple[str, str, int | None], ...] = (
    ("direct-learn", "identity", 0),
    ("back-distill", "random", 1),
    ("back-distill", "identity", None),
    ("closed-form", "identity", None),
)


@study("insert-adapter", paper="3, Table 2")
def insert_adapter(run: Run, *, picks: tuple[str, ...] | None = None) -> Iterator[Row]:
    """An adapter of one or three convolutions learned inside a network: error against the network's own."""
    house = Greenhouse(Workshop.of(run))
    names = house.categories
    rows = [f"insert {n} conv, {a} samples, {w}, {s} start" for n in (1, 3) for a in (0, *SAMPLES) for w, s, _ in WAYS]
    wanted = asked(rows, picks)
    own = [house.error([n], None, house.halves([n]).above, house.against_others([n])) for n in names]
    for layers in (1, 3):
        for amount in (0, *SAMPLES) if run.full else (0,):
            for way, start, column in WAYS:
                what = f"insert {layers} conv, {amount} samples, {way}, {start} start"
                useless = (way == "direct-learn" and amount == 0) or (way == "closed-form" and amount > 0)
                if useless or what not in wanted:
                    continue
                errors = []
                for name in names:
                    halves = house.halves([name])
                    options: dict[str, Any] = {} if column is not None else {"alpha": 1.0}
                    adapter = house.adapter_for([name], halves, layers=layers, kernel=3, start=start)
                    learned = house.learned([name], adapter, halves.above, way, amount, **options)
                    errors.append(house.error([name], learned, halves.above, house.against_others([name])))
                paper = PAPER[layers].get(amount, (None, None))[column] if run.full and column is not None else None
                yield {
                    "what": what,
                    "paper": paper,
                    "ours": round(float(np.mean(errors)), 2),
                    "whole": round(float(np.mean(own)), 2),
                    "errors": dict(zip(names, np.round(errors, 2).tolist(), strict=True)),
                    "seed": run.seed,
                }
