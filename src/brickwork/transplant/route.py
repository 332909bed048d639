"""A way through a transplant net as one module, and how well it does what its task is for."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.splitting import Above, Below
from brickwork.data import ImageData
from brickwork.data.images import IGNORE
from brickwork.devices import device_of
from brickwork.errors import BadData
from brickwork.evaluation import evaluate
from brickwork.origin import Origin, attach, origin_of
from brickwork.outputs import logits_of
from brickwork.prediction import evaluating, predict
from brickwork.transplant.class_order import places_in
from brickwork.transplant.net import TransplantNet, through
from brickwork.transplant.token_adapter import AnyAdapter
from brickwork.words import counted


class RouteModel(nn.Module):
    """Category module, adapter and task module in a row; it prepares images as its category does.

    adapter: one to try instead of the net's own; the net is left as it is.
    """

    def __init__(self, below: Below, adapter: AnyAdapter | None, above: Above) -> None:
        super().__init__()
        self.below, self.adapter, self.above = below, adapter, above
        prepared = origin_of(below).preprocessing
        attach(self, Origin(preprocessing=prepared, classes=origin_of(above).classes))

    def forward(self, images: Tensor) -> Any:
        return through(self.below, self.adapter, self.above, images)


def route_model(
    net: TransplantNet, category: str, task: str, adapter: AnyAdapter | None = None, *, direct: bool = False
) -> RouteModel:
    """The net's own route, or the same parts with another adapter (direct: with none)."""
    if adapter is None and not direct:
        adapter = net.routes[category, task]
    return RouteModel(net.category(category).module, adapter, net.task(task).module)


@dataclass(frozen=True)
class Targets:
    """What a task should answer for the classes of a data set."""

    by: str  # "name", "position" or "masks"
    outputs: np.ndarray | None  # for each class of the data, the output that stands for it; None: masks
    classes: tuple[str, ...] | None = None  # of the task's outputs, as far as the data tell
    pixels: np.ndarray | None = None  # for each value of a mask its output; None: it itself

    def of(self, data: ImageData, split: str) -> np.ndarray:
        """Labels (N,) or masks (N, H, W) of a split."""
        _, labels, masks = data.split(split)
        if self.outputs is not None:
            return self.outputs[labels]
        assert masks is not None
        return masks if self.pixels is None else self.pixels[masks]


def targets_for(route: RouteModel, data: ImageData) -> Targets:
    """How the data's labels are the task's answers: by the classes' names, else by their order; refused if neither."""
    shape = _answer(route, data)
    known = origin_of(route).classes
    if len(shape) == 3:
        if data.train_masks is None and data.test_masks is None:
            raise BadData(f"the task answers with maps and {data.name} has no masks; give data with masks.")
        if data.mask_classes and len(data.mask_classes) != shape[0]:
            raise BadData(
                f"the task tells {shape[0]} kinds of pixels and the masks of {data.name} {len(data.mask_classes)}."
            )
        _check_masks(data, shape[0])
        return _masks(data, known)
    count = len(data.classes)
    if shape[0] == 1:
        return _yes_or_no(data, known)
    if known is not None and set(data.classes) <= set(known):
        return Targets("name", np.array([known.index(name) for name in data.classes]), known)
    if count == shape[0]:
        return Targets("position", np.arange(count), data.classes)
    raise BadData(
        f"the task has {shape[0]} outputs ({', '.join((known or ('without names',))[:8])}) and {data.name} {count} classes "
        "of other names; select as many classes as the task has, in its order."
    )


def _check_masks(data: ImageData, kinds: int) -> None:
    for masks in (data.train_masks, data.test_masks):
        highest = -1 if masks is None else int(np.max(masks, where=masks != IGNORE, initial=0))
        if highest >= kinds:
            raise BadData(
                f"the masks of {data.name} hold class {highest} and the task tells {counted(kinds, 'kind')} of pixels, "
                "from 0 on; give a task with an output for each class of a mask."
            )


def _masks(data: ImageData, known: tuple[str, ...] | None) -> Targets:
    """Pixels by the names of their classes where both sides know the same ones, else by their numbers."""
    summary = data.mask_classes or None
    places = places_in(summary, known)
    if places is None:
        return Targets("masks", None, summary)
    pixels = np.arange(256, dtype=np.uint8)  # a pixel without a class stays one
    pixels[: len(places)] = places
    return Targets("masks", None, known, pixels)


def _yes_or_no(data: ImageData, known: tuple[str, ...] | None) -> Targets:
    """One output says yes to the class it is called after; of two classes without that one, to the second."""
    named = known is not None and known[0] in data.classes
    if not named and len(data.classes) != 2:
        own = "a class that it does not name" if known is None else repr(known[0])
        raise BadData(
            f"the task has one output, which says yes to {own}, and {data.name} has {counted(len(data.classes), 'class')} "
            "of other names; give that class, or two classes, the second of them the yes."
        )
    yes = data.classes.index(known[0]) if known is not None and named else 1
    outputs = np.array([int(k == yes) for k in range(len(data.classes))])
    return Targets("name" if named else "position", outputs, (data.classes[yes],))


def judge(route: RouteModel, data: ImageData, targets: Targets) -> dict[str, float] | None:
    """Accuracy on the test images (of pixels, with the mean IoU, for maps); None without any."""
    images, _, masks = data.split("test")
    if len(images) == 0 or (targets.outputs is None and masks is None):
        return None
    if targets.outputs is None:
        result = evaluate(route, images, data.test_labels, masks=targets.of(data, "test"), batch_size=64)
        return {"accuracy": result.accuracy, "mean_iou": float(result.mean_iou or 0.0)}
    logits = predict(route, images, batch_size=128)
    answers = (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(1)
    return {"accuracy": float((answers.numpy() == targets.of(data, "test")).mean())}


def _answer(route: RouteModel, data: ImageData) -> tuple[int, ...]:
    """The shape of one answer."""
    height, width, channels = data.shape
    with evaluating(route):
        like = next(route.parameters(), torch.zeros(()))
        zeros = torch.zeros(1, channels, height, width, device=device_of(route), dtype=like.dtype)
        return tuple(logits_of(route(zeros)).shape[1:])
