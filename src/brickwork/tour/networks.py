"""Part 0 of the tour: two ordinary networks, each on its own half of the digits, from one start."""

import copy
from dataclasses import replace

from brickwork import store
from brickwork.origin import attach, origin_of
from brickwork.report.bars import Bar, draw_bars
from brickwork.tour.stage import SIZE, PartResult, Stage, as_options


def networks(stage: Stage) -> PartResult:
    """A start and the two networks that training made of it."""
    start = stage.lenet(5)
    attach(start, replace(origin_of(start), input_shape=(1, SIZE, SIZE)))
    stage.nets["start"] = start.eval().to(stage.device)
    store.save(start, stage.folder / "start")
    bars, accuracy, commands = [], {}, []
    for half in "ab":
        images = stage.digits(f"digits:{half.upper()}")
        model = stage.nets[half] = stage.trained(copy.deepcopy(start), images)
        store.save(model, stage.folder / half, provenance={"command": "demo", "data": images.name, "seed": stage.seed})
        accuracy[half] = stage.accuracy(model, images)
        bars.append(Bar(f"{half}: digits {', '.join(images.classes)}", accuracy[half], f"{accuracy[half]:.1%}"))
        options = f"{as_options(stage.training)} {stage.seeded} --out {half}"
        commands.append(stage.command(f"train @start digits:{half.upper()} {options}"))
    figure = draw_bars(
        "Two networks, five digits each",
        bars,
        about="Two LeNets from one random start. Neither has ever seen a digit of the other's half. Share of the test "
        "images that each gets right.",
        part="networks",
        cards=(("two networks, five digits each", " / ".join(f"{value:.0%}" for value in accuracy.values())),),
        command="\n".join(commands),
    )
    return [figure], {"accuracy": accuracy}
