"""What Merge does, and the map of weighted sums from which a cell is chosen."""

from __future__ import annotations

from typing import Any

from torch import nn

from brickwork import store
from brickwork.algebra import merge as merge_weights
from brickwork.algebra import sweep
from brickwork.algebra.data_methods import WeightMethod, find
from brickwork.algebra.merge_folders import MergeTask, merge_folders
from brickwork.algebra.repairing import has_statistics
from brickwork.errors import RequestError
from brickwork.origin import origin_of
from brickwork.studio import recipes
from brickwork.studio.build import facts, images_of
from brickwork.studio.compare import Parent, compared
from brickwork.studio.jobs import Say
from brickwork.studio.requests import MapRequest, MergeRequest
from brickwork.studio.shelf import Shelf

MERGED_ON = 2000  # images of each network's data, as `brickwork merge` takes
GRID = tuple(k / 5 for k in range(6))  # of α and of β


def check_pair(shelf: Shelf, request: MapRequest | MergeRequest) -> None:
    """Refuse networks that cannot become one, before anything is computed."""
    if len(request.models) != len(request.data):
        raise RequestError(f"{len(request.models)} networks and {len(request.data)} data sets; name images of each.")
    if len(set(request.models)) < len(request.models):
        raise RequestError(f"{request.models[0]} is there twice; a network merged with itself is that network.")
    known = {name: store.read_config(shelf.model(name)).classes for name in request.models}
    first, *others = request.models
    for other in others:
        if known[other] != known[first]:
            raise RequestError(
                f"{first} and {other} do not have the same classes in the same order; to have the classes of both "
                "in one network, put them on the board and press Build."
            )
    for text in request.data:
        shelf.spec(text)


def check_merge(shelf: Shelf, request: MergeRequest) -> None:
    """Refuse what cannot be merged, before anything is computed."""
    check_pair(shelf, request)
    if request.weights is not None and request.method != "linear":
        raise RequestError(f"`weights` are of the method linear, not of {request.method}; leave them out.")
    if request.weights is not None and len(request.weights) != len(request.models):
        raise RequestError(f"{len(request.weights)} weights for {len(request.models)} networks; give one for each.")
    shelf.new(request.name)


def merge(shelf: Shelf, request: MergeRequest, where: str, say: Say) -> dict[str, Any]:
    """Networks of one architecture and the same classes as one, judged beside them."""
    check_merge(shelf, request)
    folder = shelf.new(request.name)
    specs = [shelf.spec(text) for text in request.data]
    say(0.1, f"merging {' and '.join(request.models)} by {request.method}")
    models = [shelf.load(name, where) for name in request.models]
    on_images = needs_images(models[0], request.method)
    if on_images:
        task = MergeTask(request.method, request.weights, {}, "train", MERGED_ON, 0)
        folders = [shelf.model(name) for name in request.models]
        merged, record = merge_folders(folders, None, specs, task, arch=list(shelf.arch), device=where)
    else:
        merged = merge_weights(models, request.method, weights=request.weights)
        inputs = {str(shelf.model(name)): shelf.key(name)[1] for name in request.models}
        record = {"models": inputs, "method": request.method, "weights": request.weights}
    say(0.6, "judging it, and the networks it comes from")
    sets = tuple(images_of(models[0], spec) for spec in dict.fromkeys(map(str, specs)))
    parents = [
        Parent(name, model, tuple(origin_of(model).classes or ()), shelf.bytes(name), sets)
        for name, model in zip(request.models, models, strict=True)
    ]
    result = compared(merged, parents, sets)
    say(0.9, "saving")
    source = {"data": request.data[0]} if len(set(request.data)) == 1 else {}
    store.save(merged, folder, provenance={"command": "merge", **record, **source})
    return {**facts(shelf, folder, merged, result), **recipes.of_merge(shelf, request, folder, on_images)}


def needs_images(model: nn.Module, method: str) -> bool:
    """A method on weights alone looks at images for batch-norm statistics only, where there are any."""
    return not isinstance(find(method), WeightMethod) or has_statistics(model)


def weight_map(shelf: Shelf, request: MapRequest, where: str, say: Say) -> dict[str, Any]:
    """Accuracy of αA + βB over a grid, on the test images of both; a cell is merged by `linear` with these weights."""
    check_pair(shelf, request)
    say(0.1, f"reading {' and '.join(request.models)}")
    models = [shelf.load(name, where) for name in request.models]
    specs = list(dict.fromkeys(str(shelf.spec(text)) for text in request.data))
    sets = {spec: images_of(models[0], spec) for spec in specs}
    say(0.3, f"measuring {len(GRID) ** 2} weighted sums")
    result = sweep(models[0], models[1], data=sets, alpha=GRID, progress=False)
    return {
        "map": {
            "models": request.models,
            "data": request.data,
            "alpha": result.alpha,
            "beta": result.beta,
            "worst": result.grid().tolist(),  # by beta, then alpha
            "balanced": result.balanced(),
        },
        **recipes.of_map(shelf, request, specs, GRID),
    }
