"""Part 3 of the tour: what one network sees of a six, given to a network that only ever marked the pixels of zeros."""

from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork import zoo
from brickwork.blueprint.splitting import split
from brickwork.data.images import ImageData
from brickwork.data.pixels import as_input
from brickwork.origin import origin_of
from brickwork.report.image_grid import draw_images
from brickwork.tour.stage import FAST, PartResult, Stage, as_options
from brickwork.training import train
from brickwork.transplant import TransplantNet, connect, save_net
from brickwork.transplant.route import route_model

SIZE, CUT, SHOWN = 32, "to_8.6", 5


def transplant(stage: Stage) -> PartResult:
    """A segmenter of zeros, one of sixes; sixes brought to the first one's task through an adapter."""
    nets = {}
    for seed, (name, digit) in enumerate((("zero", "0"), ("six", "6"))):
        images = stage.digits(f"digits:{digit}", SIZE)
        nets[name] = _segmenter(stage, images, seed), images
    sixes = nets["six"][1]
    net = TransplantNet((1, SIZE, SIZE))
    for name, (model, _) in nets.items():
        net = net.add(split(model, CUT), name, f"mark-{name}")
    save_net(net.eval(), stage.folder / "halves")
    learning: dict[str, Any] = {"way": "closed-form+distill", "steps": 4 if stage.quick else 60, "lr": 0.01}
    grown = connect(net, "six", "mark-zero", data=sixes, progress=False, **learning)
    save_net(grown.net, stage.folder / "net")
    note = {k: grown.note[k]["accuracy"] for k in ("before", "after", "teacher_test")}
    some = sixes.test_images[:SHOWN]
    assert sixes.test_masks is not None
    own = route_model(grown.net, "six", "mark-six")
    bare = route_model(grown.net, "six", "mark-zero", direct=True)
    rows = {
        "a six": some.squeeze(-1),
        "its pixels": 255 * (sixes.test_masks[:SHOWN] == 1),
        "by their own network": 255 * _marked(own, some),
        "by the zeros' upper half": 255 * _marked(bare, some),
        "… behind the adapter": 255 * _marked(route_model(grown.net, "six", "mark-zero"), some),
    }
    about = (
        "To use what one network sees in another network's task, where there are no labels for the two together.\n"
        "The task is to mark which pixels are ink. One network learned it on zeros alone, another on sixes alone; below, the "
        "lower half of the sixes' network feeds the upper half of the zeros', as it comes and behind an adapter, one small "
        "convolution that was learned without a mask.\n"
        f"Pixels right: {note['before']:.0%} as they come, {note['after']:.0%} behind the adapter, {note['teacher_test']:.0%} by "
        "the sixes' own network. Nothing that the networks could do before has changed."
    )
    options = f"--category six --task mark-zero --data digits:6 {as_options(learning)} --out net"
    command = stage.command(f"transplant connect @halves {options}")
    card = ("pixels of sixes right on the zeros' task", f"{note['before']:.0%} → {note['after']:.0%}")
    figure = draw_images(
        "Sixes on a task that knew zeros", rows, about=about, part="transplant", cards=(card,), command=command
    )
    return [figure], note


def _segmenter(stage: Stage, images: ImageData, seed: int) -> nn.Module:
    model = zoo.build("fcn8s", num_classes=2, in_channels=1, width=8, head=32, batch_norm=True, seed=stage.seed + seed)
    how = {**FAST, "batch_size": 16, "lr": 3e-3, "epochs": stage.epochs(10)}
    about: dict[str, Any] = {"classes": ("background", "digit"), "preprocessing": images.preprocessing()}
    train(model, images.train_images, None, masks=images.train_masks, **about, **stage.place, **how)
    return model.eval()


def _marked(model: nn.Module, images: np.ndarray) -> np.ndarray:
    where = next(model.parameters()).device
    with torch.no_grad():
        marked: np.ndarray = model(as_input(images, origin_of(model).preprocessing, where)).argmax(1).cpu().numpy()
    return marked
