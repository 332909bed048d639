"""Parts from model folders' networks: where to cut, in which images' size, and the way back to one network."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from brickwork import zoo
from brickwork.blueprint.splitting import Above, Below, Split, check_halves, split
from brickwork.errors import BadModel, BrickworkError, RequestError
from brickwork.origin import Origin, attach, origin_of
from brickwork.prediction import evaluating
from brickwork.store import state_hash
from brickwork.store.replay import rebuild
from brickwork.store.weights import put_state
from brickwork.transplant.layout import grid_below, grid_from
from brickwork.transplant.net import TransplantNet
from brickwork.words import sides

PROVENANCE = "transplant"  # where an exported part says what it reads and which images its net takes


def input_shape_of(model: nn.Module) -> tuple[int, ...] | None:
    """Channels, height and width of a network's images, as far as it knows them."""
    origin = origin_of(model)
    known = origin.provenance.get(PROVENANCE)
    if isinstance(known, dict) and isinstance(known.get("image"), list):
        return tuple(int(n) for n in known["image"])
    if origin.preprocessing is not None and origin.preprocessing.size is not None:
        return (origin.preprocessing.channels, *origin.preprocessing.size)
    return origin.input_shape if origin.input_shape is not None and len(origin.input_shape) == 3 else None


def grown_by(
    net: TransplantNet,
    model: nn.Module,
    *,
    at: str | None,
    carry: Sequence[str] = (),
    category: str | None = None,
    task: str | None = None,
    on: Sequence[str] = (),
) -> TransplantNet:
    """The net with both halves of a network more, or one: a category alone, or a task alone.

    on: categories that a task alone was learned on: their tensors must be those of the network's lower half, bit for
    bit. A part that was exported from a net needs no `at`.
    """
    _same_images(net, model)
    if isinstance(model, Below | Above):
        return _with_part(net, model, cut={"at": at, "carry": carry}, category=category, task=task, on=on)
    if at is None:
        raise RequestError("a whole network is cut behind a layer; give `at`.")
    halves = split(model, at, carry=carry, image=net.input_shape)
    if not any(True for _ in halves.above.parameters()):
        raise BadModel(f"a cut behind {at!r} leaves no layer for the task module; cut lower.")
    if category is not None and task is not None:
        return net.add(halves, category, task)
    if category is not None:
        return net.add_category(category, halves.below)
    if task is None:
        raise RequestError("give the category, the task, or both, a name.")
    for name in on:
        if not _same_part(net.category(name).module, halves.below, net.input_shape):
            raise BadModel(
                f"the network's lower half is not {name!r}, so its task module was learned on other features; add it "
                "alone and connect it by an adapter, or learn it on this category with data."
            )
    reads = net.shape_below(halves.below)
    return net.add_task(task, halves.above, on, reads=reads, grid=grid_below(halves.below, net.input_shape, reads))


def _same_part(part: Below, other: Below, image: tuple[int, ...]) -> bool:
    """Whether two category modules give the same features for the same pictures: tensors, forward and preparation."""
    if part.carried != other.carried or origin_of(part).preprocessing != origin_of(other).preprocessing:
        return False
    if state_hash(part) != state_hash(other):
        return False
    like = next((p for p in part.parameters() if p.is_floating_point()), torch.zeros(()))
    x = torch.randn(2, *image, generator=torch.Generator().manual_seed(0)).to(like)
    with evaluating(part), evaluating(other):
        one, two = part(x), other.to(like.device)(x)
    pairs = zip(*(result if isinstance(result, tuple) else (result,) for result in (one, two)), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def alone(net: TransplantNet, *, category: str | None = None, task: str | None = None) -> nn.Module:
    """A part as a module that says where it belongs; both: the whole network that they are, where they are one.

    >>> from brickwork.transplant import add
    >>> net = add(None, zoo.build("lenet", seed=0), at="pool1", category="dog", task="classify").net
    >>> [name for name, _ in alone(net, category="dog").named_parameters()]
    ['net.conv1.weight', 'net.conv1.bias']
    """
    if category is not None and task is not None:
        return _whole(net, category, task)
    shape: tuple[int, ...] = ()
    part: nn.Module
    if category is not None:
        given = net.category(category)
        part, shape, grid = given.module, given.gives, given.grid
    elif task is not None:
        read = net.task(task)
        part, shape, grid = read.module, read.reads, read.grid
    else:
        raise RequestError("say which part: a category, a task, or both.")
    origin = origin_of(part)
    known = {"image": list(net.input_shape), "shape": list(shape), **({} if grid is None else {"grid": list(grid)})}
    attached = {**origin.provenance, PROVENANCE: known}
    twin = copy.copy(part)  # the same tensors under a record of its own
    attach(twin, replace(origin, provenance=attached))
    return twin


def _with_part(
    net: TransplantNet,
    part: Below | Above,
    *,
    cut: Mapping[str, Any],
    category: str | None,
    task: str | None,
    on: Sequence[str],
) -> TransplantNet:
    for given, value in cut.items():
        if value:
            raise RequestError(f"`{given}` is {value!r}, and this folder is a part that was cut already; leave it out.")
    wanted, other = ("category", task) if isinstance(part, Below) else ("task", category)
    name = category if isinstance(part, Below) else task
    if name is None or other is not None:
        raise RequestError(f"this folder is a {wanted} module alone; give the {wanted} a name and nothing else.")
    if isinstance(part, Below):
        return net.add_category(name, part)
    known = origin_of(part).provenance.get(PROVENANCE)
    if not isinstance(known, dict) or not isinstance(known.get("shape"), list):
        raise BadModel("this task module does not say which features it reads; export it from its net again.")
    return net.add_task(name, part, on, reads=known["shape"], grid=grid_from(known.get("grid"), known["shape"]))


def _same_images(net: TransplantNet, model: nn.Module) -> None:
    own = input_shape_of(model)
    if own is not None and own != net.input_shape:
        other = sides(net.input_shape)
        raise BadModel(f"the network takes images of {sides(own)} and the net of {other}; train it on one size.")


def _whole(net: TransplantNet, category: str, task: str) -> nn.Module:
    """One network again, with its tensors under their old names."""
    below, above = net.category(category).module, net.task(task).module
    if (category, task) not in net.routes:
        raise RequestError(f"{category} does not reach {task}; there is no route to export.")
    if net.routes[category, task] is not None:
        raise BadModel(
            f"{category} reaches {task} through an adapter, which no architecture has; keep the net folder (it is loaded by "
            "brickwork.transplant.load_net), or export the parts one by one."
        )
    origins = [origin_of(half) for half in (below, above)]
    cuts = [{k: v for k, v in o.steps[-1].items() if k != "side"} if o.steps else None for o in origins]
    if cuts[0] is None or cuts[0] != cuts[1] or origins[0].arch != origins[1].arch:
        raise BadModel(
            f"{category} and {task} are halves of networks that were cut differently; export the parts one by one."
        )
    origin: Origin = replace(origins[1], steps=origins[1].steps[:-1])
    if origin.arch is None and not origin.parts:
        raise BadModel("Brickwork did not build this network, so it cannot rebuild it; export the parts one by one.")
    model = rebuild(origin)
    state = {
        name.removeprefix("net."): value.clone() for half in (below, above) for name, value in half.state_dict().items()
    }
    try:
        put_state(model, state, assign=True)
    except RuntimeError as error:
        text = " ".join(str(error).split())[:200]
        raise BadModel(f"{category} and {task} do not make one {origin.arch}: {text}") from error
    provenance = {k: v for k, v in origin.provenance.items() if k != PROVENANCE}
    attach(model, replace(origin, preprocessing=origins[0].preprocessing, provenance=provenance))
    try:
        check_halves(model, Split(below, above, str(cuts[0]["at"])), net.input_shape)
    except BadModel as error:  # built with other arguments
        raise BadModel(
            f"{category} and {task} are halves of networks that were built differently, so no {origin.arch} is both; export "
            "the parts one by one."
        ) from error
    return model.eval()


def check_cut(origin: Origin, at: str, carry: Sequence[str]) -> str | None:
    """Whether a network can be cut there, tried on its architecture without weights; None: yes, or not known.

    A folder may not make us import code, so one that names code is not tried; loading it will say so.
    """
    if not _ours(origin):
        return None
    try:
        with torch.device("meta"):
            model = rebuild(origin)
    except (RuntimeError, BrickworkError):  # an architecture that cannot be built without values
        return None
    try:
        split(model, at, carry=carry)
    except BrickworkError as error:
        return str(error).rstrip(".")
    return None


def _ours(origin: Origin) -> bool:
    """Whether Brickwork can build a network by itself, from names that are its own."""
    if origin.parts:
        return all(_ours(part) for part in origin.parts)
    return origin.arch is not None and not zoo.needs_import(origin.arch)
