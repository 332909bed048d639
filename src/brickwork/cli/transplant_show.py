"""`brickwork transplant show NET --category C --task T --data SPEC --way … --labels … --out page.html`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brickwork.cli.common import emit, table, typed_line
from brickwork.errors import BadData, RequestError

if TYPE_CHECKING:
    from brickwork.data import ImageData
    from brickwork.report.transplant import Judged
    from brickwork.transplant import Adapter, TransplantNet
    from brickwork.transplant.options import How

SHOWN = 300  # test images, at most, in the picture of the features
KEPT = "in the net"


def show(
    folder: Path,
    categories: Sequence[str],
    task: str,
    out: Path,
    *,
    data: Sequence[str],
    ways: Sequence[str],
    labels: Sequence[int],
    layer: str | None,
    teacher: str | None,
    how: dict[str, Any],
    given: Sequence[str],
    arch: str | None,
    device: str,
    force: bool,
    as_json: bool,
) -> None:
    """Learn adapters by several ways, keep none, and draw where each puts the images and how often it is wrong."""
    from brickwork import data as images_of
    from brickwork.atomic import check_file
    from brickwork.devices import pick
    from brickwork.report.drawing import check_suffix
    from brickwork.report.transplant import draw_transplant
    from brickwork.transplant import load_net
    from brickwork.transplant.growth import images_for

    # Everything that can be refused is refused here, before a tensor or an image is read.
    check_suffix(out)
    check_file(out, force=force)
    where = pick(device)
    plans = plans_for(ways, labels, how, given)
    if len(data) not in (1, len(categories)):
        raise RequestError(
            f"{len(categories)} --category and {len(data)} --data; give one --data for all, or one for each."
        )
    specs = [images_of.check(spec) for spec in data] * (len(categories) if len(data) == 1 else 1)
    net = load_net(folder, arch=arch, device=where)
    for name in categories:
        net.category(name)
    net.task(task)
    _check_kept(net, categories, task, plans)
    spaces, errors = [], []
    teachers: dict[str, float] = {}
    for name, spec in zip(categories, specs, strict=True):
        images = images_for(net, spec, int(how["seed"]))
        if len(images.test_images) == 0:
            raise BadData(f"{spec} has no test images to draw.")
        found = _compared(net, name, task, images, plans, layer, teacher, progress=not as_json)
        spaces.append(found[0])
        errors += found[1]
        teachers |= {} if found[2] is None else {name: found[2]}
    drawing = draw_transplant(spaces, errors, task=task, teachers=teachers)
    replace(drawing, command=typed_line()).save(out, force=force)
    rows = [(e.category, e.way, "any" if e.labels is None else str(e.labels), f"{e.error:.2%}") for e in errors]
    report = {
        "file": str(out),
        "net": str(folder),
        "task": task,
        "teachers": teachers,
        "errors": [vars(e) for e in errors],
        "spread": {s.category: s.spread for s in spaces},
    }
    text = table(["category", "adapter", "labels a class", "error"], rows) if rows else "no labels to judge by"
    emit(report, f"{text}\nsaved in {out}", as_json=as_json)


def plans_for(ways: Sequence[str], labels: Sequence[int], how: dict[str, Any], given: Sequence[str]) -> list[How]:
    """Every way with every number of labels that it can use; a way that uses none comes once."""
    from brickwork.transplant.learning import WAYS
    from brickwork.transplant.options import How

    if not ways:
        idle = [n for n in given if n in How.__dataclass_fields__ and n not in ("seed", "way")]
        if idle:
            word = idle[0].replace("_", "-")
            raise RequestError(f"--{word} is for adapters that are learned here; give --way, or leave it out.")
        return []
    counts = sorted(set(labels)) or [0]
    plans = []
    for way in dict.fromkeys(ways):
        chosen = WAYS.get(way)
        takes = chosen is None or any(term.startswith("task") for term in chosen.terms)
        some = [c for c in counts if c or not (chosen and chosen.labels)] or [0]
        plans += [How(way=way, labels=count, **how) for count in (some if takes else [0])]
    wrong = list(dict.fromkeys(problem for plan in plans for problem in plan.problems(data=True)))
    if wrong:
        raise RequestError("; ".join(wrong) + ".")
    unused = set.intersection(*(set(plan.unused(list(given))) for plan in plans))
    if unused:
        raise RequestError(f"--{min(unused).replace('_', '-')} is used by none of these ways; leave it out.")
    return plans


def _check_kept(net: TransplantNet, categories: Sequence[str], task: str, plans: Sequence[How]) -> None:
    if plans:
        return
    missing = [name for name in categories if (name, task) not in net.routes]
    if missing:
        raise RequestError(
            f"{missing[0]} does not reach {task}, so there is no adapter to show; give --way to learn some, or connect them."
        )


def _compared(
    net: TransplantNet,
    category: str,
    task: str,
    images: ImageData,
    plans: Sequence[How],
    layer: str | None,
    teacher: str | None,
    *,
    progress: bool,
) -> tuple[Any, list[Judged], float | None]:
    """The plane of one category's features, the errors, and that of its teacher."""
    from brickwork.report.transplant import Judged
    from brickwork.transplant.growth import connect
    from brickwork.transplant.learning import WAYS
    from brickwork.transplant.route import judge, route_model, targets_for
    from brickwork.transplant.spaces import hidden_features, space_of

    adapters: dict[str, Adapter | None] = {}
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
        done = connect(net, category, task, how=plan, data=images, teacher=teacher, force=True, progress=progress)
        assert done.learned is not None
        adapters[plan.way] = done.learned.adapter  # the one with the most labels stays
        takes = any(term.startswith("task") for term in WAYS[plan.way].terms)
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
