"""Adapters learned in several ways, side by side: where each puts the images, and how often it is wrong."""

from collections.abc import Sequence
from typing import Any

from brickwork.data import ImageData
from brickwork.errors import BadData, RequestError
from brickwork.report.drawing import Drawing
from brickwork.report.transplant import Judged, draw_transplant
from brickwork.transplant import TransplantNet, connect
from brickwork.transplant.growth import images_for
from brickwork.transplant.options import WAYS, AdapterOptions
from brickwork.transplant.route import judge, route_model, targets_for
from brickwork.transplant.spaces import hidden_features, space_of
from brickwork.transplant.token_adapter import AnyAdapter
from brickwork.words import table

SHOWN = 300  # test images, at most, in the picture of the features
KEPT = "in the net"


def draw_ways(
    net: TransplantNet,
    pairs: Sequence[tuple[str, Any]],
    task: str,
    plans: Sequence[AdapterOptions],
    *,
    layer: str | None,
    teacher: str | None,
    seed: int,
) -> tuple[Drawing, dict[str, Any], str]:
    """Learn adapters by several ways, keep none, and draw them: the picture, its numbers, and a table of the errors.

    pairs: categories, and the images of each by a data spec.
    """
    for name, _ in pairs:
        net.category(name)
    net.task(task)
    _check_kept(net, [name for name, _ in pairs], task, plans)
    spaces, errors = [], []
    teachers: dict[str, float] = {}
    for name, spec in pairs:
        images = images_for(net, spec, seed)
        if len(images.test_images) == 0:
            raise BadData(f"{spec} has no test images to draw.")
        space, judged, own = _compared(net, name, task, images, plans, layer, teacher)
        spaces.append(space)
        errors += judged
        teachers |= {} if own is None else {name: own}
    drawing = draw_transplant(spaces, errors, task=task, teachers=teachers)
    rows = [(e.category, e.way, "any" if e.labels is None else str(e.labels), f"{e.error:.2%}") for e in errors]
    report = {
        "task": task,
        "teachers": teachers,
        "errors": [vars(e) for e in errors],
        "spread": {s.category: s.spread for s in spaces},
    }
    text = table(["category", "adapter", "labels per class", "error"], rows) if rows else "no labels to judge by"
    return drawing, report, text


def _check_kept(net: TransplantNet, categories: Sequence[str], task: str, plans: Sequence[AdapterOptions]) -> None:
    if plans:
        return
    missing = [name for name in categories if (name, task) not in net.routes]
    if missing:
        raise RequestError(
            f"{missing[0]} does not reach {task}, so there is no adapter to show; give `way` to learn some, or connect them."
        )


def _compared(
    net: TransplantNet,
    category: str,
    task: str,
    images: ImageData,
    plans: Sequence[AdapterOptions],
    layer: str | None,
    teacher: str | None,
) -> tuple[Any, list[Judged], float | None]:
    """The plane of one category's features, the errors, and that of its teacher."""
    adapters: dict[str, AnyAdapter | None] = {}
    errors: list[Judged] = []
    own: float | None = None
    if (category, task) in net.routes:
        adapters[KEPT] = net.routes[category, task]
        try:
            route = route_model(net, category, task)
            right = judge(route, images, targets_for(route, images))
        except BadData:
            right = None
        errors += [] if right is None else [Judged(category, KEPT, None, 1 - right["accuracy"])]
    for plan in plans:
        done = connect(net, category, task, options=plan, data=images, teacher=teacher, force=True)
        assert done.learned is not None
        adapters[plan.way] = done.learned.adapter  # the one with the most labels stays
        takes = WAYS[plan.way].uses_labels
        if done.note.get("after"):
            errors.append(
                Judged(category, plan.way, plan.labels if takes else None, 1 - done.note["after"]["accuracy"])
            )
        if done.note.get("teacher_test"):
            own = 1 - done.note["teacher_test"]["accuracy"]
    shown = images.test_images[:: max(1, -(-len(images.test_images) // SHOWN))]
    features = {
        name: hidden_features(route_model(net, category, task, adapter, direct=adapter is None), shown, layer=layer)
        for name, adapter in adapters.items()
    }
    return space_of(category, features), errors, own
