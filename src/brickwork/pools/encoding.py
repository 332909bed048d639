"""`encode`: a network that is trained already, said in kernels of a pool, without training and without labels."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from brickwork.blueprint.record import record
from brickwork.data.pixels import Images
from brickwork.devices import pick
from brickwork.errors import BadData, RequestError
from brickwork.moments import Source, match_responses, reestimate_batch_norm
from brickwork.moments.layers import find_layers
from brickwork.pools.gram_choice import choose_in_gram
from brickwork.pools.growing import GrowingBooks, Room
from brickwork.pools.learning import measured_norms
from brickwork.pools.pool import KernelPool
from brickwork.pools.straight import Chosen
from brickwork.pools.task import Task
from brickwork.prediction import input_of

METRICS = ("gram", "weight")


def encode(
    pool: KernelPool,
    model: nn.Module,
    data: Images | None = None,
    *,
    metric: str = "gram",
    reference: Task | None = None,
    stay: float = 0.0,
    precision: int = 16,
    ridge: float = 1e-2,
    grow: int | None = None,
    grow_bytes: int | None = None,
    seed: int = 0,
    device: str | torch.device | None = "auto",
    progress: bool = True,
) -> Task:
    """The task that says `model` in kernels of the pool; the model is left unchanged.

    metric: "gram" goes through the layers and chooses kernels by what they do to each layer's responses on `data`
    (a few hundred to a few thousand unlabelled images), norms and head fitted along; "weight" takes the nearest kernel
    of each and, with images, measures batch norms anew. reference, stay: keep an index of that task (the pool's base by
    default) unless changing it pays, as in `learn`. ridge: how firmly the weights found along the way hold to the model's.
    grow: the task may bring so many new kernels a layer (`Task.brings`), in a file of `grow_bytes` at most: where the
    pool's leave most, which the Gram metric weighs by how strong an input is. The pool is left as it is.
    """
    if metric not in METRICS:
        raise RequestError(f"metric is {metric!r}; it must be {' or '.join(METRICS)}.")
    if not stay >= 0:
        raise RequestError(f"stay is {stay}; it must be 0 or more.")
    room = Room.of(grow, grow_bytes)
    pool.check(model)
    other = reference or pool.base
    if other is not None:
        pool.check_reference(other)
    if stay and other is None:
        raise RequestError("stay needs a task to stay with, and the pool has no base; give reference=.")
    if metric == "gram" and (data is None or len(data) == 0):
        raise BadData("the Gram metric is that of a layer's inputs: give some hundred images, or metric='weight'.")
    facts = {"how": "encode", "metric": metric, "stay": stay, "images": 0 if data is None else len(data)}
    where = pick(device)
    books = GrowingBooks(pool, model, room, seed=seed)
    keep = other if stay else None
    if metric == "weight":
        codes = books.drop_unused({name: _near(books, model, name, keep, stay) for name in pool.shapes})
        task = books.pool.task_of(
            model, codes=codes, precision=precision, reference=other, facts=facts, brings=books.growth
        )
        return task if data is None else measured_norms(pool, task, data, device=device)
    source = copy.deepcopy(model).to(where).eval()
    assert data is not None
    inputs = input_of(source, data, where)
    solved = {layer.path for layer in find_layers(record(source, inputs[:2]), source)}
    # layers that run twice or share a weight cannot be solved for: the nearest kernel, before the others make up for it
    codes = {name: _near(books, model, name, keep, stay) for name in pool.shapes if name not in solved}
    student = _with_kernels(source, books, codes, inputs) if codes else source

    def choose(path: str, weight: Tensor, gram: Tensor) -> Tensor | None:
        if path not in pool.shapes:
            return None
        book = books.of(path, weight, gram)
        old = None if keep is None else keep.codes[path]
        codes[path] = choose_in_gram(weight, gram, book, old=old, stay=stay)
        return book.to(weight)[codes[path]].reshape(weight.shape)

    matched = match_responses(
        student, [Source(source, inputs)], ridge=ridge, choose=choose, seed=seed, progress=progress
    )
    result, codes = matched.model.cpu(), books.drop_unused(codes)
    return books.pool.task_of(
        result, codes=codes, precision=precision, reference=other, facts=facts, brings=books.growth
    )


def _with_kernels(model: nn.Module, books: GrowingBooks, codes: dict[str, Tensor], inputs: Tensor) -> nn.Module:
    """A copy with these kernels in place, its batch norms measured anew."""
    new = copy.deepcopy(model)
    with torch.no_grad():
        for name, index in codes.items():
            weight = new.get_submodule(name).weight
            assert isinstance(weight, Tensor)
            weight.copy_(books.of(name, weight)[index.to(weight.device)].reshape(weight.shape))
    return reestimate_batch_norm(new, inputs.tensor_split(max(1, -(-len(inputs) // 250))))


def _near(books: GrowingBooks, model: nn.Module, name: str, other: Task | None, stay: float) -> Tensor:
    """The nearest kernels of one layer."""
    weight = model.get_submodule(name).weight
    assert isinstance(weight, Tensor)
    chosen = Chosen(weight, books.of(name, weight), old=None if other is None else other.codes[name])
    index = chosen.assign(weight)
    if chosen.old is None:
        return index
    return torch.where(chosen.gain(weight, index) > stay * chosen.unit, index, chosen.old)
