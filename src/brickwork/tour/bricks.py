"""Part 1 of the tour: two digits cut out of one network, one out of the other, joined; nothing is trained."""

from dataclasses import replace

import torch
from torch import nn

from brickwork import store
from brickwork.bricks import assemble, disassemble, routes
from brickwork.data.images import ImageData
from brickwork.prediction import predict
from brickwork.report.bars import Bar, draw_bars
from brickwork.report.routes import draw_routes
from brickwork.tour.stage import PartResult, Stage
from brickwork.zoo.summary import parameters_of

FROM_A, FROM_B, BUDGET = ("0", "1"), ("7",), 0.25
SCORED = 60  # images of the picture of routes


def bricks(stage: Stage) -> PartResult:
    """Bricks of three digits, joined into one network, against the two whole networks."""
    parts, commands = [], []
    for net, classes, out in (("a", FROM_A, "zero-one"), ("b", FROM_B, "seven")):
        data = f"digits:{net.upper()}"
        part = disassemble(stage.nets[net], list(classes), stage.digits(data), budget=BUDGET, progress=False)
        part.save(stage.folder / out, command="demo", data="digits")
        parts.append(part)
        options = f"--classes {','.join(classes)} --data {data} --budget {BUDGET} --out {out}"
        commands.append(stage.command(f"disassemble @{net} {options}"))
    joined = assemble(parts)
    store.save(joined, stage.folder / "three")
    a, b, three = stage.nets["a"], stage.nets["b"], stage.digits("digits:0,1,7")
    ours, whole = stage.accuracy(joined, three), _side_by_side(a, b, three)
    size = parameters_of(joined) / (parameters_of(a) + parameters_of(b))
    figure = draw_bars(
        "Three digits out of two networks",
        [
            Bar("three digits, joined bricks", ours, f"{ours:.1%}"),
            Bar("the whole networks side by side", whole, f"{whole:.1%}", 2),
            Bar("parameters of the joined bricks", size, f"{size:.0%} of both", 1),
        ],
        about="Digits 0 and 1 from the first network, 7 from the second, a quarter of each network's parameters kept, "
        "repaired on unlabelled images and joined. The whole networks side by side are what could be reached.",
        part="bricks",
        cards=(
            ("three digits from two networks, nothing trained", f"{ours:.0%}"),
            ("of both networks' parameters", f"{size:.0%}"),
        ),
        command="\n".join(
            [
                *commands,
                stage.command("assemble zero-one seven --out three"),
                stage.command(f"eval three digits:{','.join(FROM_A + FROM_B)}"),
            ]
        ),
    )
    picture = draw_routes(routes(a, stage.digits("digits:A"), list(FROM_A), scored=SCORED))
    options = f"--data digits:A --classes {','.join(FROM_A)} --scored {SCORED} --out routes.html"
    numbers = {"accuracy": ours, "whole": whole, "parameters": size}
    return [figure, replace(picture, command=stage.command(f"routes @a {options}"))], numbers


def _side_by_side(a: nn.Module, b: nn.Module, images: ImageData) -> float:
    """Whole networks asked for the three digits only: 0 and 1 of the first, 7 (its third) of the second."""
    logits = torch.cat([predict(a, images.test_images)[:, :2], predict(b, images.test_images)[:, 2:3]], 1)
    return float((logits.argmax(1).numpy() == images.test_labels).mean())
