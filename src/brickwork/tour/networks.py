"""Part 0 of the tour: two ordinary networks, each on its own half of the digits, from one start."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from brickwork import store
from brickwork.origin import attach, origin_of
from brickwork.report.bars import Bar, draw_bars
from brickwork.tour.stage import SIZE, Stage, as_options


def networks(stage: Stage) -> tuple[list[Any], dict[str, Any]]:
    """A start and the two networks that training made of it."""
    start = stage.lenet(5)
    attach(start, replace(origin_of(start), input_shape=(1, SIZE, SIZE)))
    stage.nets["start"] = start.eval().to(stage.device)
    bars, found = [], {}
    store.save(start, stage.folder / "start")
    for half in "ab":
        images = stage.digits(f"digits:{half.upper()}")
        model = stage.trained(copy.deepcopy(start), images)
        store.save(model, stage.folder / half, provenance={"command": "demo", "data": images.name, "seed": stage.seed})
        right = stage.accuracy(model, images)
        stage.nets[half] = model
        bars.append(Bar(f"{half}: digits {', '.join(images.classes)}", right, f"{right:.1%}"))
        found[half] = right
    how = as_options(stage.training)
    about = (
        "Two LeNets from one random start. Neither has ever seen a digit of the other's half. Share of the test images "
        "that each gets right."
    )
    figure = draw_bars(
        "Two networks, five digits each",
        bars,
        about=about,
        part="networks",
        cards=(("two networks, five digits each", " / ".join(f"{v:.0%}" for v in found.values())),),
        command="\n".join(
            stage.said("train", "@start", f"digits:{half.upper()}", *how, *stage.seeded, "--out", half) for half in "ab"
        ),
    )
    return [figure], {"accuracy": found}
