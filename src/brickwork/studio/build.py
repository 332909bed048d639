"""What Build does: cut and join, judge, draw, save. The verbs' own functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from brickwork import data, store
from brickwork.bricks import assemble, disassemble, routes
from brickwork.data.images import ImageData
from brickwork.errors import BadData, BrickworkError, RequestError
from brickwork.origin import origin_of
from brickwork.report.routes import draw_routes
from brickwork.studio import recipes
from brickwork.studio.compare import Parent, compared
from brickwork.studio.jobs import Say
from brickwork.studio.requests import BuildRequest, Wanted
from brickwork.studio.shelf import Shelf
from brickwork.zoo.summary import parameters_of


def predicted(shelf: Shelf, request: BuildRequest) -> dict[str, Any]:
    """About how large the network will be, and what stands in its way, told before anything is computed."""
    size = weights = whole = 0.0
    for part in request.parts:
        shelf.check_classes(part.model, part.classes)
        parameters = shelf.parameters(part.model)
        size += part.budget * parameters
        weights += part.budget * shelf.bytes(part.model)
        whole += parameters
    return {
        "parameters": round(size),
        "bytes": round(weights),
        "of": round(whole),
        "classes": [c for p in request.parts for c in p.classes],
        "twice": twice(request.parts),
    }


def twice(parts: Sequence[Wanted]) -> list[str]:
    """A sentence for every class that lies on the board more than once."""
    owners: dict[str, list[str]] = {}
    for part in parts:
        for name in part.classes:
            owners.setdefault(name, []).append(part.model)
    return [
        f"{' and '.join(models)} both bring class {name!r}; take it off one of them."
        for name, models in owners.items()
        if len(models) > 1
    ]


def check_build(shelf: Shelf, request: BuildRequest) -> None:
    """Refuse what cannot be built, before anything is computed."""
    said = predicted(shelf, request)["twice"]
    if said:
        raise RequestError(said[0])
    shelf.new(request.name)
    for text in [*(part.data for part in request.parts), *([request.judge] if request.judge else [])]:
        shelf.spec(text)


def build(shelf: Shelf, request: BuildRequest, where: str, say: Say) -> dict[str, Any]:
    """Everything that Build does; `say(share, words)` tells how far it is, and ends it where it is cancelled."""
    check_build(shelf, request)
    folder, steps = shelf.new(request.name), 2 * len(request.parts) + 3
    bricks, models, sets = [], [], []
    for number, part in enumerate(request.parts):
        say(2 * number / steps, f"reading {part.model} and {part.data}")
        model = shelf.load(part.model, where)
        images = images_of(model, str(shelf.spec(part.data)))
        say((2 * number + 1) / steps, f"cutting {', '.join(part.classes)} out of {part.model}")
        bricks.append(disassemble(model, part.classes, images, progress=False, **part.options()))
        models.append(model)
        sets.append(images)
    say((steps - 3) / steps, "joining")
    joined = assemble(bricks)
    say((steps - 2) / steps, "judging it, and the networks it comes from")
    own = [_own(images, brick.classes) for brick, images in zip(bricks, sets, strict=True)]
    chosen = _by_judge(models, request.parts, str(shelf.spec(request.judge)), own) if request.judge else own
    parents = [
        Parent(part.model, model, tuple(part.classes), shelf.bytes(part.model), (images,))
        for part, model, images in zip(request.parts, models, chosen, strict=True)
    ]
    result = compared(joined, parents, chosen)
    say((steps - 1) / steps, "saving")
    record = {"command": "studio", "parts": [part.model_dump() for part in request.parts], **_one_source(request.parts)}
    store.save(joined, folder, provenance=record)
    shown = next((k for k, brick in enumerate(bricks) if len(brick.classes) > 1), None)
    if shown is None:  # a part of one class has no channels that decide among classes; the whole network has
        first = request.parts[0]
        picture, missing = _routes(models[0], sets[0], first.classes, first.model)
    else:
        name = f"the part of {request.parts[shown].model}"
        picture, missing = _routes(bricks[shown].model, own[shown], request.parts[shown].classes, name)
    told = {**facts(shelf, folder, joined, result), **recipes.of_build(shelf, request, folder), "routes": picture}
    notes = [f"{part.model}: {brick.note}" for part, brick in zip(request.parts, bricks, strict=True) if brick.note]
    return {**told, "notes": [*notes, *missing]}


def facts(shelf: Shelf, folder: Path, model: nn.Module, result: dict[str, Any]) -> dict[str, Any]:
    """What is told of every new network; some are drawn, and have notes."""
    name = shelf.relative(folder)
    result["networks"][0] |= {"name": name, "bytes": shelf.bytes(name)}
    return {
        "folder": name,
        "parameters": parameters_of(model),
        "classes": list(origin_of(model).classes or ()),
        "accuracy": result["networks"][0]["accuracy"],
        "routes": "",
        "notes": [],
        **result,
    }


def _one_source(parts: Sequence[Wanted]) -> dict[str, str]:
    """The images that all parts come from, so that the network can be used again without naming them."""
    return {"data": parts[0].data} if len({part.data for part in parts}) == 1 else {}


def images_of(model: nn.Module, spec: str) -> ImageData:
    """A data set as a network wants it."""
    return data.load_for(origin_of(model).preprocessing, spec)


def _own(images: ImageData, classes: Sequence[str]) -> ImageData:
    return images.select([images.classes.index(name) for name in classes])


def _by_judge(
    models: Sequence[nn.Module], parts: Sequence[Wanted], judge: str, own: Sequence[ImageData]
) -> list[ImageData]:
    """The judging images of every part's classes; none of a part's are taken where the judge has none of them."""
    chosen, classes = [], []
    for model, part, images in zip(models, parts, own, strict=True):
        every = images_of(model, judge)
        here = [name for name in part.classes if name in every.classes]
        classes += here
        chosen.append(_own(every, here) if here else images.select([]))
    if not classes:
        raise BadData(f"{judge} has none of the classes {', '.join(c for part in parts for c in part.classes)}.")
    return chosen


def _routes(model: nn.Module, images: ImageData, classes: Sequence[str], name: str) -> tuple[str, list[str]]:
    """The picture of a part as it was built; where none can be drawn, why: the network is there anyway."""
    try:
        result = routes(model, images, list(classes[:5]), scored=200)
    except BrickworkError as error:
        return "", [f"No picture of the routes in {name}: {error}"]
    return draw_routes(replace(result, network=name)).svg(inline=True), []
