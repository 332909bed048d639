"""`encode`: a network that is trained already as a task of a pool, without training and without labels."""

import torch
from torch import Tensor, nn

from brickwork.blueprint.record import record
from brickwork.copying import copy_module
from brickwork.data.datasets import images_of
from brickwork.data.images import ImageData
from brickwork.data.streamed import Images
from brickwork.devices import DeviceLike, pick
from brickwork.errors import BadData, RequestError
from brickwork.moments import Source, match_responses, reestimate_batch_norm
from brickwork.moments.layers import find_layers
from brickwork.options import takes
from brickwork.pools.codebook_weight import CodebookWeight
from brickwork.pools.gram_choice import choose_in_gram
from brickwork.pools.growing import GrowingCodebooks, GrowthBudget
from brickwork.pools.learning import measured_norms
from brickwork.pools.options import EncodeOptions
from brickwork.pools.pool import KernelPool
from brickwork.pools.task import PoolTask
from brickwork.prediction import input_of


@takes(EncodeOptions)
def encode(
    pool: KernelPool,
    model: nn.Module,
    data: ImageData | Images | None = None,
    *,
    reference: PoolTask | None = None,
    device: DeviceLike | None = None,
    progress: bool = True,
    options: EncodeOptions,
) -> PoolTask:
    """The task that gives `model` in kernels of the pool; the model is left unchanged.

    data: a few hundred to a few thousand unlabelled images, or an ImageData, whose training split is used. metric: "gram"
    goes through the layers and chooses kernels by what they do to each layer's responses on them, norms and head fitted
    along; "weight" takes the nearest kernel of each and, with images, measures batch norms anew. reference, stay: keep an
    index of that task (the pool's base by default) unless changing it pays, as in `learn`. ridge: how firmly the weights
    fitted along the way hold to the model's. grow: the task may bring so many new kernels per layer (`PoolTask.brings`),
    in a file of `grow_bytes` at most: where the pool's leave most, which the Gram metric weighs by how strong an input is.
    The pool is left as it is.

    >>> from brickwork import zoo
    >>> from brickwork.pools import KernelPool
    >>> a, b = (zoo.build("lenet", num_classes=3, seed=s) for s in (0, 1))
    >>> pool = KernelPool.cluster([a], size=16)
    >>> pool.rebuild(encode(pool, b, metric="weight", progress=False)).fc3.out_features
    3
    """
    metric, stay = options.metric, options.stay
    images = images_of(data)
    pool.check(model)
    other = reference or pool.base
    if other is not None:
        pool.check_reference(other)
    if stay and other is None:
        raise RequestError("`stay` needs a task to stay with, and the pool has no base; give `reference`.")
    count = 0 if images is None else len(images)
    if metric == "gram" and count == 0:
        raise BadData(
            "the Gram metric is that of a layer's inputs: give some hundred images (`data`), or `metric` weight."
        )
    changed = {name: value for name, value in options.changed().items() if name != "bits"}
    facts = {"how": "encode", "metric": metric, "stay": stay, "images": count, **changed}
    where = pick(device)
    books = GrowingCodebooks(pool, model, GrowthBudget.of(options), seed=options.seed)
    keep = other if stay else None

    def make_task(network: nn.Module) -> PoolTask:
        used = books.drop_unused(codes)
        return books.pool.task_of(
            network, codes=used, bits=options.bits, reference=other, facts=facts, brings=books.growth
        )

    if metric == "weight":
        codes = {name: _nearest(books, model, name, keep, stay) for name in pool.shapes}
        task = make_task(model)
        return task if images is None else measured_norms(pool, task, images, device=device)
    source = copy_module(model).to(where).eval()
    assert images is not None
    inputs = input_of(source, images, where)
    solved = {layer.path for layer in find_layers(record(source, inputs[:2]), source)}
    # layers that run twice or share a weight cannot be solved for: the nearest kernel, before the others make up for it
    codes = {name: _nearest(books, model, name, keep, stay) for name in pool.shapes if name not in solved}
    student = _with_kernels(source, books, codes, inputs) if codes else source

    def choose(path: str, weight: Tensor, gram: Tensor) -> Tensor | None:
        if path not in pool.shapes:
            return None
        book = books.of(path, weight, gram)
        old = None if keep is None else keep.codes[path]
        codes[path] = choose_in_gram(weight, gram, book, old=old, stay=stay)
        return book.to(weight)[codes[path]].reshape(weight.shape)

    matched = match_responses(
        student, [Source(source, inputs)], ridge=options.ridge, choose=choose, seed=options.seed, progress=progress
    )
    return make_task(matched.model.cpu())


def _with_kernels(model: nn.Module, books: GrowingCodebooks, codes: dict[str, Tensor], inputs: Tensor) -> nn.Module:
    """A copy with these kernels in place, its batch norms measured anew."""
    new = copy_module(model)
    with torch.no_grad():
        for name, index in codes.items():
            weight = new.get_submodule(name).weight
            assert isinstance(weight, Tensor)
            weight.copy_(books.of(name, weight)[index.to(weight.device)].reshape(weight.shape))
    return reestimate_batch_norm(new, inputs.tensor_split(max(1, -(-len(inputs) // 250))))


def _nearest(books: GrowingCodebooks, model: nn.Module, name: str, other: PoolTask | None, stay: float) -> Tensor:
    """The nearest kernels of one layer."""
    weight = model.get_submodule(name).weight
    assert isinstance(weight, Tensor)
    chosen = CodebookWeight(weight, books.of(name, weight), old=None if other is None else other.codes[name])
    return chosen.staying(weight, stay)[0]
