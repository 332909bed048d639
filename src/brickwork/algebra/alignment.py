"""Re-basin: one network's channels in another's order before they are averaged; and new statistics afterwards."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.algebra.agreement import refuse_differences
from brickwork.algebra.data_methods import bad_weights, find
from brickwork.algebra.inputs import ModelTask, batches_of, inputs_of, mixed, seen_by
from brickwork.algebra.likeness import correlations
from brickwork.algebra.merging import merge
from brickwork.algebra.options import MEASURED
from brickwork.algebra.repairing import has_statistics, responses_between, set_responses
from brickwork.algebra.states import shapes_of
from brickwork.blueprint.plan import trace
from brickwork.data.streamed import Images
from brickwork.errors import RequestError
from brickwork.moments import reestimate_batch_norm
from brickwork.progress import bar

BATCH = 250  # images in a pass over which statistics are measured


def rebasin(a: nn.Module, b: nn.Module, example: Tensor, *, by: str = "weights") -> nn.Module:
    """b with its channels in the order that brings it closest to a; it answers as before (2209.04836).

    by: the order brings its "weights" closest, or its "activations" on `example`, some hundred unlabelled images: the sum
    of the correlations of channels that come to the same place is largest. The permutations come from the blueprint, so
    any network that can be traced will do. Merge afterwards, then set the statistics right (`repair`).

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> x = torch.randn(5, 2)
    >>> torch.equal(rebasin(net, net, x)(x), net(x))
    True
    """
    known = find("rebasin").options["by"]
    if not known.is_right(by):
        raise RequestError(f"by is {by!r}; it must be {known.allowed}.")
    likeness = correlations(a, b, example, example) if by == "activations" else None
    return _moved(a, b, example[:2], likeness)


def _moved(a: nn.Module, b: nn.Module, example: Tensor, likeness: Mapping[str, np.ndarray] | None) -> nn.Module:
    return trace(b, example).permute(b, trace(a, example).align(a, b, likeness))


def repair(
    model: nn.Module,
    images: Images,
    *,
    parents: Sequence[nn.Module] | None = None,
    weights: Sequence[float] | None = None,
    progress: bool = False,
) -> nn.Module:
    """What a merged network needs most, on unlabelled images: responses of the right size (REPAIR, 2211.08403).

    Batch norms get new statistics. Without batch norm, every channel of every layer gets the mean and spread that lie
    between those of the parents, the networks it was merged from, with their channels in its order (see `rebasin`), by
    their weights in the merge.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> x = torch.randn(50, 2)
    >>> bool((repair(net, x, parents=[net, net])(x) - net(x)).abs().max() < 1e-5)
    True
    """
    given = inputs_of(model, images)
    if has_statistics(model):
        if parents is not None:
            raise RequestError(
                "`parents` are not used for a network with batch norms, which get statistics of the images; leave them out."
            )
        return reestimate_batch_norm(model, batches_of(given, BATCH))
    if not parents:
        raise RequestError(
            "a network without batch norm is repaired to the responses of the networks it was merged from; give them as "
            "`parents`."
        )
    shares = [1.0] * len(parents) if weights is None else [float(w) for w in weights]
    wrong = bad_weights(shares, len(parents))
    if wrong:
        raise RequestError(f"{wrong[0]}.")
    every = {"the network": model} | {f"parent {k}": p for k, p in enumerate(parents)}
    refuse_differences(shapes_of(every))
    task = ModelTask(given, given, given=images)
    return set_responses(model, responses_between(parents, [task], shares, prepared=model), [task], progress)


def rebasined(
    models: list[nn.Module],
    tasks: list[ModelTask],
    *,
    shares: list[float],
    progress: bool,
    by: str = "weights",
    batch_size: int = BATCH,
    repair: bool = False,
) -> tuple[nn.Module, dict[str, Any]]:
    """Every network in the first one's order, their weighted mean, and statistics of all the images together."""
    first, example = models[0], tasks[0].images[:2]
    moved = [first]
    with bar("aligning", len(models) - 1, show=progress) as advance:
        for model in models[1:]:
            likeness = None
            if by == "activations":
                likeness = correlations(first, model, seen_by(first, first, tasks), seen_by(model, first, tasks))
            moved.append(_moved(first, model, example, likeness))
            advance()
    merged = merge(moved, weights=[w / sum(shares) for w in shares])
    if repair:
        return set_responses(merged, responses_between(moved, tasks, shares, prepared=first), tasks, progress), {}
    return recalibrated(merged, tasks, batch_size=batch_size), {}


def recalibrated(model: nn.Module, tasks: list[ModelTask], *, batch_size: int = BATCH, seed: int = 0) -> nn.Module:
    """Statistics of all tasks' images, mixed; the model itself where it has no batch norm with statistics."""
    if not has_statistics(model):
        return model
    order = torch.randperm(sum(len(t.images) for t in tasks), generator=torch.Generator().manual_seed(seed))
    return reestimate_batch_norm(model, batches_of(mixed([t.images for t in tasks], order), batch_size))


def measured(model: Any, images: Images | None, bn: str) -> Any:
    """The network with statistics of these images, in batches or as one batch; itself where bn needs no images."""
    if bn not in MEASURED:
        return model
    if not isinstance(model, nn.Module):
        raise RequestError("statistics are measured by running a network, and this is a dictionary; give the networks.")
    if images is None or not has_statistics(model):
        return model
    given = inputs_of(model, images)
    return recalibrated(model, [ModelTask(given, given)], batch_size=BATCH if bn == "recalibrate" else len(given))
