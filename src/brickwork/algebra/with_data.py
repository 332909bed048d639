"""Merging that looks at images: one entrance for all such methods, response matching and Fisher weights.

These, and RegMean, fold batch norms into the layers before them first (exactly), so that a network is its weights.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.algebra.agreement import refuse_differences
from brickwork.algebra.alignment import BATCH, recalibrated
from brickwork.algebra.data_methods import WeightMethod, find
from brickwork.algebra.inputs import ModelTask, tasks_of
from brickwork.algebra.merging import merge
from brickwork.algebra.options import MEASURED
from brickwork.algebra.repairing import (
    has_statistics,
    refuse_unrepairable,
    responses_between,
    responses_of_pairs,
    set_responses,
)
from brickwork.algebra.states import shapes_of
from brickwork.copying import copy_module
from brickwork.errors import RequestError
from brickwork.moments import Source, fold_batch_norm, match_responses
from brickwork.origin import attach, origin_of
from brickwork.outputs import logits_of

#: among which held-out images choose for `match`: with few images networks that differ want more than a part of one network
MERGE_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


def merge_on(
    models: Sequence[nn.Module],
    data: Sequence[Any],
    method: str = "match",
    *,
    base: nn.Module | None = None,
    weights: Sequence[float] | None = None,
    heads: Sequence[nn.Module] | None = None,
    progress: bool = True,
    **options: Any,
) -> nn.Module:
    """One network of several, by a method that looks at images; what is given is left unchanged.

    method and options: see `brickwork.algebra.data_methods`. data: sets of images, or of (images, labels) for a method
    that needs labels; "match", "regmean", "regmean++" and "fisher" take one a model, unlabelled, of its own task. base: what the
    models were trained from ("adamerging"). weights: how much each model's task counts; the same by default. heads: of networks
    that answer with features, what makes logits of them, one per model, for a method that looks at answers ("fisher",
    "adamerging"); they are left as they are.
    repair: afterwards every channel of every layer gets the mean and spread between those of the models (where each has a
    set of its own: those on that), for networks without batch norm (2211.08403).
    What the method found (the coefficients, the models used) stands in the network's provenance.

    >>> nets = [nn.Sequential(nn.Linear(4, 3)) for _ in range(2)]
    >>> same = merge_on([nets[0], nets[0]], [torch.randn(40, 4), torch.randn(40, 4)], progress=False)
    >>> bool((same[0].weight - nets[0][0].weight).abs().max() < 1e-4)
    True
    """
    chosen = find(method)
    count = None if heads is None else len(heads)
    chosen.check(len(models), len(data), base=base is not None, weights=weights, heads=count, options=options)
    every = {f"model {k}": m for k, m in enumerate(models)} | ({"the base": base} if base is not None else {})
    refuse_differences(shapes_of(every))
    tasks = tasks_of(models, data, pairs=chosen.pairs(options, count), labels=chosen.needs_labels)
    given = [copy_module(m).eval() for m in models]
    if chosen.folds:
        given = [fold_batch_norm(m, tasks[0].images[:2]) for m in given]
    repair = bool(options.get("repair", False))
    shares = [1.0] * len(models) if weights is None else [float(w) for w in weights]
    if repair:
        if min(shares) < 0 or sum(shares) <= 0:
            raise RequestError(
                f"weights are {shares}; `repair` needs them 0 or more, to find responses between the models'."
            )
        refuse_unrepairable(given[0], tasks[0].images[:2])
    if isinstance(chosen, WeightMethod):
        options |= {} if weights is None else {"weights": list(weights)}
    elif chosen.weighted:
        options["shares"] = shares
    if heads is not None:
        options["heads"] = [copy_module(head).eval() for head in heads]
    if base is not None:
        options["base"] = copy_module(base).eval()
    own = {"method": method} if isinstance(chosen, WeightMethod) else {"progress": progress}
    own |= {n: v for n, v in options.items() if n != "repair" or not chosen.repairs or isinstance(chosen, WeightMethod)}
    merged, facts = chosen.function()(given, tasks, **own)
    if repair and chosen.repairs:
        pairs = chosen.pairs(options, count)
        between = partial(responses_between, given, tasks, shares, prepared=given[0])
        wanted = responses_of_pairs(given, tasks) if pairs else between()
        merged = set_responses(merged, wanted, tasks, progress)
    summary = {"method": method, **{n: v for n, v in options.items() if n not in ("shares", "base", "heads")}}
    summary |= {"weights": options["shares"]} if chosen.weighted else {}
    facts = {**summary, "images": [len(t.images) for t in tasks], **facts}
    attach(merged, replace(origin_of(merged), provenance={"merge": facts}))
    return merged.eval()


def by_weights(
    models: list[nn.Module],
    tasks: list[ModelTask],
    *,
    method: str,
    bn: str = "recalibrate",
    repair: bool = False,
    **options: Any,
) -> tuple[nn.Module, dict[str, Any]]:
    """A merge of weights, then batch-norm statistics of all the images, mixed."""
    measure = bn in MEASURED and not repair
    if measure and not has_statistics(models[0]):
        raise RequestError(
            f"`data` is not used by `method` {method}, which looks at weights alone where networks have no batch norm, as "
            "these; leave it out, or ask for `repair`."
        )
    merged = merge(models, method, bn="linear" if bn in MEASURED else bn, **options)
    whole = sum(len(task.images) for task in tasks)
    return (recalibrated(merged, tasks, batch_size=BATCH if bn == "recalibrate" else whole) if measure else merged), {}


def matched(
    models: list[nn.Module],
    tasks: list[ModelTask],
    *,
    shares: list[float],
    progress: bool,
    ridge: float | None = None,
    refits: int = 4,
    anchor: str = "folded",
) -> tuple[nn.Module, dict[str, Any]]:
    """Layer by layer, what the merged network really makes of the images to each network's own responses (design.md).

    ridge: None: for each layer the best of some on held-out images. refits: of layers in front of rectifiers, to what passes.
    anchor: what the ridge pulls to: the mean of the networks with batch norms folded, or ("recalibrated") their mean with
    statistics of all the images, folded then. Where images are few and the ridge has much to say, the second is the better
    network: it is what `repair` makes of the mean.
    """
    example, weights = tasks[0].images[:2], [w / sum(shares) for w in shares]
    folded = [fold_batch_norm(m, example) for m in models]
    if anchor == "recalibrated":
        start = fold_batch_norm(recalibrated(merge(models, weights=weights), tasks), example)
    else:
        start = merge(folded, weights=weights)
    sources = [Source(m, t.images, weight=w, own=t.own) for m, t, w in zip(folded, tasks, shares, strict=True)]
    result = match_responses(
        start, sources, ridge=MERGE_RIDGES if ridge is None else ridge, refits=refits, progress=progress
    )
    return result.model, {"unexplained": {f.layer: round(f.unexplained, 6) for f in result.fits}}


def fisher(
    models: list[nn.Module],
    tasks: list[ModelTask],
    *,
    shares: list[float],
    progress: bool,
    heads: Sequence[nn.Module] | None = None,
    floor: float = 1e-6,
    seed: int = 0,
) -> tuple[nn.Module, dict[str, Any]]:
    """θ = Σ F_i θ_i / Σ F_i, F the diagonal of the Fisher matrix under each network's own predictions."""
    merged = copy_module(models[0])
    tops = heads or [nn.Identity()] * len(models)
    importance = [_information(m, top, t.own, seed) for m, top, t in zip(models, tops, tasks, strict=True)]
    with torch.no_grad():
        for name, parameter in merged.named_parameters():
            top, bottom = torch.zeros_like(parameter), torch.zeros_like(parameter)
            for model, result, share in zip(models, importance, shares, strict=True):
                weight = share * (result[name] + floor)
                top += weight * dict(model.named_parameters())[name]
                bottom += weight
            parameter.copy_(top / bottom)
    return merged, {}


def _information(model: nn.Module, head: nn.Module, images: Any, seed: int) -> dict[str, Tensor]:
    """Mean square of the gradient of log p(y|x), y drawn from the network's own answer, one image at a time."""
    state = {n: p.detach() for n, p in model.named_parameters()}
    generator = torch.Generator().manual_seed(seed)

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        logits = head(logits_of(torch.func.functional_call(model, weights, (x[None],))))
        return nn.functional.cross_entropy(logits, y[None])

    # gradients of single images take many times the weights' memory, most of it for what convolutions unfold
    size = sum(p.numel() * p.element_size() for p in state.values())
    at_once = max(1, min(50, 2**30 // (32 * size)))
    gradient = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    total = {n: torch.zeros_like(p) for n, p in state.items()}
    for x in images.split(50):
        with torch.no_grad():
            chances = head(logits_of(model(x))).softmax(1).cpu()
        drawn = torch.multinomial(chances, 1, generator=generator)[:, 0].to(x.device)
        with torch.no_grad():  # or a head whose weights want gradients would hold every image's activations in the sums
            for some, answer in zip(x.split(at_once), drawn.split(at_once), strict=True):
                for name, result in gradient(state, some, answer).items():
                    total[name] += result.square().sum(0)
    return {n: t / len(images) for n, t in total.items()}
