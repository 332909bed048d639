"""Bricks of one and the same network as one part, in which a channel that several need is there once (paper 2, §5)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from brickwork.blueprint.open_heads import layers_before, open_attentions
from brickwork.blueprint.plan import CLASSES, Blueprint, trace
from brickwork.bricks.brick import Brick
from brickwork.bricks.cut import cut_and_repair
from brickwork.bricks.narrow_heads import turns_heads
from brickwork.bricks.options import DisassembleOptions
from brickwork.copying import copy_module
from brickwork.devices import device_of
from brickwork.errors import BadModel, BrickworkError, RequestError
from brickwork.origin import attach, origin_of
from brickwork.prediction import predict
from brickwork.store import state_hash
from brickwork.store.replay import rebuild
from brickwork.store.weights import put_state

TURNED = "heads of attention are as wide as the network's, since each brick had turned their dimensions in its own way"


def unite(bricks: Sequence[Brick], *, source: nn.Module | None = None, images: Tensor | None = None) -> Brick:
    """One brick of the union of the bricks' channels, for all of their classes, in this order.

    source: the network they were cut from. The union is then cut out of it, with every connection between kept
    channels; images (unlabelled network input, of the source's own data) repair the cut by response matching.
    Without the source, connections that no brick has are zero, and the bricks must be plain cuts (repair="none"):
    repaired ones disagree about the weights they share.
    """
    if source is not None:
        return _from_source(bricks, source, images)
    repaired = [", ".join(b.classes) for b in bricks if b.options.repair != "none"]
    if repaired:
        raise RequestError(
            f"the brick of {repaired[0]} was repaired, so bricks of its network no longer share weights; give the "
            "network they were cut from (and images to repair the union), or let them stay apart."
        )
    return _from_weights(bricks)


def _from_source(bricks: Sequence[Brick], source: nn.Module, images: Tensor | None) -> Brick:
    first = bricks[0]
    if state_hash(source) != first.source:
        raise BadModel(f"the network given is not the one that the brick of {', '.join(first.classes)} was cut from.")
    known = origin_of(source).classes
    numbers = [known.index(name) if known else int(name) for brick in bricks for name in brick.classes]
    like = next(source.parameters())
    bp = trace(source, torch.zeros(2, *first.input_shape, dtype=like.dtype, device=like.device), output=first.output)
    kept = _union(bp, [_in_terms_of(source, brick) for brick in bricks])
    # plain cuts stay a plain cut: nothing is matched that was not asked for
    repair = "match" if images is not None else "none"
    given = images.to(like) if images is not None else torch.zeros(0)
    cut = cut_and_repair(source, bp, kept, numbers, given, repair=repair, progress=False)
    facts = {"mean": _joint(bricks, "mean"), "std": _joint(bricks, "std")}
    if images is not None:
        logits = predict(cut.model, given, output=first.output).double()
        facts = {"mean": tuple(logits.mean(0).tolist()), "std": tuple(logits.std(0, unbiased=False).tolist())}
    note = TURNED if any(_turned(brick) for brick in bricks) else ""
    return _sealed(bricks, cut.model, cut.kept, bp, repair, note, **facts)


def _turned(brick: Brick) -> Collection[str]:
    """The attentions whose dimensions are not those of the network that the brick was cut from."""
    return open_attentions(brick.model) if turns_heads(brick.options) else ()


def _in_terms_of(source: nn.Module, brick: Brick) -> dict[str, list[int]]:
    """What a brick keeps, by the spaces of its network; nothing is said of the dimensions of turned heads."""
    turned = {f"{path}.{layer}" for path in _turned(brick) for layer in "qkv"}
    before = layers_before(source, brick.model)
    return {before.get(name, name): ids for name, ids in brick.kept.items() if name not in turned}


def _from_weights(bricks: Sequence[Brick]) -> Brick:
    """The whole's architecture, rebuilt with zeros, filled with what the bricks hold, then cut to the union."""
    first = bricks[0]
    origin = origin_of(first.model)
    cuts = [k for k, step in enumerate(origin.steps) if step.get("op") == "select"]  # an order may follow the last
    if origin.arch is None or not cuts:
        raise RequestError("the bricks' architecture is not known to Brickwork; give the network they were cut from.")
    before = replace(origin, steps=origin.steps[: cuts[-1]], classes=None, provenance={})
    try:
        whole = rebuild(before).to(device_of(first.model)).eval()
    except BrickworkError as error:
        raise RequestError(f"the bricks' network cannot be built again ({error}); give it.") from error
    like = next(first.model.parameters())
    example = torch.zeros(2, *first.input_shape, dtype=like.dtype, device=like.device)
    filled, numbers = whole.to(like.dtype), _numbered(whole)
    bp = trace(filled, example, output=first.output)
    places = trace(numbers, example.double(), output=first.output)
    state = {name: torch.zeros_like(t) for name, t in filled.state_dict().items()}
    for brick in bricks:
        where = places.select(numbers, brick.kept).state_dict()
        for name, value in brick.model.state_dict().items():
            if name not in state:  # which channels a norm of the part has; the cut of the union says that anew
                continue
            if not value.is_floating_point():
                state[name] = value.clone()
                continue
            index = where[name].reshape(-1).long() - 1
            there = index >= 0
            state[name].view(-1)[index[there]] = value.reshape(-1)[there].to(state[name])
    put_state(filled, state)
    kept = _union(bp, [brick.kept for brick in bricks])
    order = [k for brick in bricks for k in brick.kept.get(CLASSES, [])]
    part = bp.select(filled, {**kept, CLASSES: order})
    attach(part, replace(origin_of(part), preprocessing=origin.preprocessing))
    facts = {"mean": _joint(bricks, "mean"), "std": _joint(bricks, "std")}
    return _sealed(bricks, part.eval(), {**kept, CLASSES: order}, bp, "none", "", **facts)


def _numbered(model: nn.Module) -> nn.Module:
    """A copy whose every number is its own place in its tensor, counted from 1: a cut of it says what came from where."""
    twin = copy_module(model).double()
    with torch.no_grad():
        for tensor in (*twin.parameters(), *twin.buffers()):
            if tensor.is_floating_point():
                count = torch.arange(1, tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
                tensor.copy_(count.reshape(tensor.shape))
    return twin


def _union(bp: Blueprint, kept: Sequence[Mapping[str, list[int]]]) -> dict[str, list[int]]:
    """Of every space what any brick keeps; a brick that does not name a space keeps all of it."""
    hidden = [name for name in bp.spaces if name != CLASSES]
    every = {name: range(bp.spaces[name]) for name in hidden}
    return {name: sorted(set().union(*(own.get(name, every[name]) for own in kept))) for name in hidden}


def _joint(bricks: Sequence[Brick], what: str) -> tuple[float, ...]:
    return tuple(value for brick in bricks for value in getattr(brick, what))


def _sealed(
    bricks: Sequence[Brick],
    model: nn.Module,
    kept: dict[str, list[int]],
    bp: Blueprint,
    repair: str,
    note: str,
    *,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Brick:
    left, full = bp.count(kept), bp.count()
    return replace(
        bricks[0],
        model=model,
        classes=tuple(name for brick in bricks for name in brick.classes),
        kept=kept,
        judged_by="accuracy",
        accuracy_before=None,
        accuracy_after=None,
        parameters=left.parameters / full.parameters,
        macs=left.macs / full.macs,
        mean=mean,
        std=std,
        options=DisassembleOptions(repair=repair, attribution=bricks[0].options.attribution),  # type: ignore[arg-type]
        used={"united": [list(brick.classes) for brick in bricks]},
        note=note,
        fits=(),
    ).with_provenance()
