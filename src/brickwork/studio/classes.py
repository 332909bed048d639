"""A network that is given classes it does not know, from a folder of images, or that forgets some."""

from __future__ import annotations

from typing import Any

from brickwork import store
from brickwork.bricks import forget as forget_classes
from brickwork.bricks.forgetting import Forgotten
from brickwork.dependencies.new_classes import add_classes
from brickwork.errors import RequestError
from brickwork.origin import origin_of
from brickwork.studio import recipes
from brickwork.studio.build import facts, images_of
from brickwork.studio.compare import Parent, compared
from brickwork.studio.jobs import Say
from brickwork.studio.requests import AddRequest, ForgetRequest
from brickwork.studio.shelf import Shelf

ON = "features"  # what new logits are made of: knows more than the old logits, and needs no training of layers


def check_add(shelf: Shelf, request: AddRequest) -> None:
    """Refuse what cannot be added, before anything is computed."""
    shelf.model(request.model)
    for text in (request.data, request.base):
        shelf.spec(text)
    shelf.new(request.name)


def add(shelf: Shelf, request: AddRequest, where: str, say: Say) -> dict[str, Any]:
    """The network with more classes, its old logits as they were, judged on images of both beside the old one."""
    check_add(shelf, request)
    folder = shelf.new(request.name)
    say(0.05, f"reading {request.model} and its images")
    model = shelf.load(request.model, where)
    spec, known = str(shelf.spec(request.data)), str(shelf.spec(request.base))
    new, base = images_of(model, spec), images_of(model, known)
    say(0.3, f"fitting {', '.join(new.classes[:5])} on what {request.model} sees")
    grown = add_classes(model, new, base_data=base, on=ON)
    say(0.7, "judging it, and the network it comes from")
    whole = Parent(request.model, model, tuple(origin_of(model).classes or ()), shelf.bytes(request.model), (base,))
    result = compared(grown, [whole], (base, new))
    say(0.9, "saving")
    record = {"command": "depend add", "data": [spec, known], "on": ON, "source": shelf.key(request.model)[1]}
    store.save(grown, folder, provenance=record)
    note = f"The logits of its first {len(whole.classes)} classes are those of {request.model}, to the bit."
    told = {**facts(shelf, folder, grown, result), **recipes.of_add(shelf, request, spec, folder)}
    return {**told, "notes": [note]}


def check_forget(shelf: Shelf, request: ForgetRequest) -> None:
    """Refuse what cannot be forgotten, before anything is computed."""
    shelf.check_classes(request.model, request.classes)
    known = store.read_config(shelf.model(request.model)).classes or []
    if set(known) <= set(request.classes):
        raise RequestError(f"all {len(known)} classes of {request.model} are to be forgotten; leave at least one.")
    shelf.spec(request.data)
    shelf.new(request.name)


def forget(shelf: Shelf, request: ForgetRequest, where: str, say: Say) -> dict[str, Any]:
    """The network without some classes, judged on the others beside the old one, and what it still knows of them."""
    check_forget(shelf, request)
    folder = shelf.new(request.name)
    say(0.05, f"reading {request.model} and {request.data}")
    model = shelf.load(request.model, where)
    spec = str(shelf.spec(request.data))
    images = images_of(model, spec)
    say(0.2, f"solving the layers without {', '.join(request.classes[:5])}")
    result = forget_classes(model, request.classes, images, progress=False)
    say(0.7, "judging it, and the network it comes from")
    rest = images.select([k for k, name in enumerate(images.classes) if name not in result.forgotten])
    whole = Parent(request.model, model, result.classes, shelf.bytes(request.model), (rest,))
    told = compared(result.model, [whole], (rest,))
    say(0.9, "saving")
    record = {"command": "forget", "data": spec, "source": shelf.key(request.model)[1]}
    store.save(result.model, folder, provenance={**record, "forgotten": list(result.forgotten)})
    made = facts(shelf, folder, result.model, told)
    return {**made, **recipes.of_forget(shelf, request, folder), "notes": _left(result)}


def _left(result: Forgotten) -> list[str]:
    """What is left of classes that were forgotten, in a sentence; what could not be measured is left out."""
    before, after, names = result.before, result.after, ", ".join(result.forgotten)
    if after.probed is None or before.probed is None:
        return []
    return [
        f"A linear probe, trained with labels on what the last layer reads, finds {after.probed:.1%} of the images of {names}; "
        f"{before.probed:.1%} before."
    ]
