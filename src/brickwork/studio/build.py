"""What Build does: cut the asked classes out of their networks, join them, judge, draw, save. The verbs' own functions."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from brickwork import data, store
from brickwork.bricks import Brick, assemble, disassemble, routes
from brickwork.data.images import ImageData
from brickwork.errors import BadData, BrickworkError, RequestError
from brickwork.evaluation import evaluate_data
from brickwork.origin import origin_of
from brickwork.report.routes import draw_routes
from brickwork.studio.shelf import Shelf
from brickwork.tensor_file import inside
from brickwork.zoo.summary import parameters_of

#: a name or a path: one line, not longer than a page shows
Text = Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]
Say = Callable[[float, str], None]
SCORED = 600  # images that score channels: a person is waiting


class Wanted(BaseModel):
    """Some classes of one network."""

    model_config = ConfigDict(extra="forbid")
    model: Text
    classes: list[Text] = Field(min_length=1, max_length=2000)
    data: Text
    budget: float = Field(0.25, gt=0, le=1, allow_inf_nan=False)


class BuildRequest(BaseModel):
    """What is on the board."""

    model_config = ConfigDict(extra="forbid")
    parts: list[Wanted] = Field(min_length=1, max_length=8)
    name: Text
    judge: Text = ""  # a data set to judge by; empty: the parts' own


def predicted(shelf: Shelf, request: BuildRequest) -> dict[str, Any]:
    """About how large the network will be, told before anything is computed."""
    size = whole = 0.0
    for part in request.parts:
        known = store.read_config(shelf.model(part.model)).classes or []
        missing = [name for name in part.classes if name not in known]
        if missing:
            raise RequestError(f"{part.model} has no class {missing[0]!r}; it knows {', '.join(known[:20])}.")
        parameters = shelf.parameters(part.model)
        size += part.budget * parameters
        whole += parameters
    return {"parameters": round(size), "of": round(whole), "classes": [c for p in request.parts for c in p.classes]}


def build(shelf: Shelf, request: BuildRequest, where: str, say: Say) -> dict[str, Any]:
    """Everything that Build does; `say(share, words)` tells how far it is."""
    predicted(shelf, request)  # refuses what cannot be
    folder = shelf.new(request.name)
    specs = [shelf.spec(part.data) for part in request.parts]
    judge = shelf.spec(request.judge) if request.judge else None
    bricks, sets = [], []
    for number, (part, spec) in enumerate(zip(request.parts, specs, strict=True)):
        say(number / (len(specs) + 2), f"cutting {', '.join(part.classes)} out of {part.model}")
        model = store.load(shelf.model(part.model), device=where)
        images = _images(model, str(spec))
        bricks.append(
            disassemble(model, part.classes, images, budget=part.budget, scored=SCORED, progress=False)
            if part.budget < 1
            else disassemble(model, part.classes, images, keep=1.0, repair="none", progress=False)
        )
        sets.append(images)
    say(len(specs) / (len(specs) + 2), "joining")
    joined = assemble(bricks)
    say((len(specs) + 1) / (len(specs) + 2), "judging")
    accuracy = _judged(joined, bricks, sets, judge)
    store.save(joined, folder, provenance={"command": "studio", "parts": [p.model_dump() for p in request.parts]})
    picture, missing = _routes(bricks[0], request.parts[0], sets[0])
    return {
        "folder": folder.relative_to(shelf.root.resolve()).as_posix(),
        "parameters": parameters_of(joined),
        "classes": list(origin_of(joined).classes or ()),
        "accuracy": accuracy,
        "routes": picture,
        "notes": [
            *(f"{part.model}: {brick.note}" for part, brick in zip(request.parts, bricks, strict=True) if brick.note),
            *missing,
        ],
    }


def _images(model: nn.Module, spec: str) -> ImageData:
    return data.load_for(origin_of(model).preprocessing, spec)


def _judged(joined: nn.Module, bricks: list[Brick], sets: list[ImageData], judge: Any) -> float | None:
    """Share of the test images of the joined classes that are right; None where there are no test images."""
    known = origin_of(joined).classes or ()
    if judge is not None:
        images = _images(joined, str(judge))
        own = [k for k, name in enumerate(images.classes) if name in known]
        if not own:
            raise BadData(f"{judge} has none of the classes {', '.join(known)}.")
        chosen = [images.select(own)]
    else:
        chosen = [
            images.select([images.classes.index(name) for name in brick.classes])
            for brick, images in zip(bricks, sets, strict=True)
        ]
    right = total = 0.0
    for images in chosen:
        if len(images.test_labels):
            right += evaluate_data(joined, images).accuracy * len(images.test_labels)
            total += len(images.test_labels)
    return right / total if total else None


def _routes(brick: Brick, part: Wanted, images: ImageData) -> tuple[str, list[str]]:
    """The picture of the first part as it was built; where none can be drawn, why: the network is there all the same."""
    own = images.select([images.classes.index(name) for name in brick.classes])
    try:
        result = routes(brick.model, own, part.classes[:5], scored=200)
    except BrickworkError as error:
        return "", [f"No picture of the routes in the part of {part.model}: {error}"]
    return draw_routes(replace(result, network=f"the part of {part.model}")).svg(inline=True), []


def zipped(folder: Path) -> bytes:
    """A model folder as a .zip, its files in order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            if file.is_file():
                archive.write(inside(file), f"{folder.name}/{file.name}")
    return buffer.getvalue()
