"""Join networks: one network whose logits are those of the parts side by side.

Layers become block-diagonal: one grouped convolution where the parts' widths agree, parts in lock-step
where they do not, so k joined parts cost k parts, not k². Everything is proved by recording the joined
network again, as in surgery. Networks that cannot be interleaved run as whole branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from brickwork.blueprint.interleaving import Interleaved
from brickwork.blueprint.parts import Branches
from brickwork.blueprint.plan import Blueprint, trace
from brickwork.blueprint.record import record
from brickwork.blueprint.request import example_to_json
from brickwork.copying import collector_paused, computes_alike, copy_module, keep_modes
from brickwork.errors import BadModel, RequestError, Unsupported
from brickwork.origin import Origin, attach, origin_of
from brickwork.words import counted

Output = str | int | None  # which of several things that a network returns


def join(
    models: Sequence[nn.Module],
    example: Any,
    *,
    how: str = "auto",
    output: Output | Sequence[Output] = None,
    trust: bool = False,
) -> nn.Module:
    """A new module whose output is the outputs of `models` side by side; the models are left unchanged.

    how: "blocks" interleaves networks of one architecture layer by layer, "branches" runs them whole,
    "auto" takes blocks where that is exact. output: which of several holds the logits, of all or of each; where it is
    not the same in all, they run as branches. trust: the values of shared tensors are known to be equal and
    will be filled in later (a replay).

    >>> import brickwork, torch
    >>> nets = [nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, k)) for k in (2, 5)]
    >>> brickwork.join(nets, torch.zeros(1, 4))(torch.zeros(1, 4)).shape
    torch.Size([1, 7])
    """
    with collector_paused():
        return _join(list(models), example, how, output, trust)


def _join(models: list[nn.Module], example: Any, how: str, output: Any, trust: bool) -> nn.Module:
    if how not in ("auto", "blocks", "branches"):
        raise RequestError(f"how must be 'auto', 'blocks' or 'branches', not {how!r}")
    if not models:
        raise RequestError("join needs at least one model")
    outputs = _outputs(models, example, output)
    bps: list[Blueprint] = []
    for model, own in zip(models, outputs, strict=True):
        alike = (bp for bp, m in zip(bps, models, strict=False) if computes_alike(m, model) and bp.output == own)
        bps.append(next(alike, None) or trace(model, example, output=own))
    joined: nn.Module | None = None
    same = all(own == outputs[0] for own in outputs)
    if how == "blocks" and not same:
        named = " and ".join(sorted({repr(own) for own in outputs}))
        raise Unsupported(f"networks whose logits are outputs {named} cannot be interleaved; join them as branches")
    output = outputs[0] if same else outputs
    if how != "branches" and len(models) > 1 and same:
        try:
            layers = Interleaved(models, bps, trust)
            joined = layers.build()
            layers.prove(example, output)
        except Unsupported:
            joined = None
            if how == "blocks":
                raise
    if joined is None:
        joined = Branches([copy_module(m) for m in models], outputs, dim=_class_axis(bps))
        how = "branches"
    else:
        how = "blocks"
    _finish(models, bps, joined, how, output)
    return joined


def _outputs(models: list[nn.Module], example: Any, output: Any) -> list[Output]:
    """Of every network which output holds the logits; where they differ in name only, that which is taken without one."""
    if not isinstance(output, list | tuple):
        return [output] * len(models)
    if len(output) != len(models):
        raise RequestError(
            f"there are {len(output)} outputs for {counted(len(models), 'model')}; give one, or one of each"
        )
    outputs: list[Output] = [None if own is None else str(own) for own in output]
    if all(own == outputs[0] for own in outputs):
        return outputs
    unnamed = all(_is_taken(model, example, own) for model, own in zip(models, outputs, strict=True))
    return [None] * len(models) if unnamed else outputs


def _is_taken(model: nn.Module, example: Any, output: Output) -> bool:
    """Whether an output is the one that is taken where none is named."""
    if output is None:
        return True
    try:
        return record(model, example).output.index == record(model, example, output=output).output.index
    except BadModel:  # it returns several, and none is called as logits are
        return False


def _class_axis(bps: list[Blueprint]) -> int:
    """Along which axis of the outputs the classes lie: the last of what answers for every token, say."""
    axes = [_one_class_axis(bp) for bp in bps]
    other = next((k for k, axis in enumerate(axes) if axis != axes[0]), None)
    if other is not None:
        raise RequestError(
            f"the classes of network 0 lie along axis {axes[0]} of its output and those of network {other} along axis "
            f"{axes[other]}; join networks whose outputs are alike, or turn those of one in its forward."
        )
    return axes[0]


def _one_class_axis(bp: Blueprint) -> int:
    shape = bp.graph.output.shape
    if bp.output_dim is None and len(shape) == 3:  # (N, classes, places) and (N, tokens, classes) look alike
        raise Unsupported(
            f"which axis of the output, {shape}, holds the classes cannot be told, since something behind the last layer mixes "
            "them; take that away (nn.Identity() in its place), join, and put it behind the joined network again"
        )
    return 1 if bp.output_dim is None else bp.output_dim


def _finish(models: list[nn.Module], bps: list[Blueprint], joined: nn.Module, how: str, output: Any) -> None:
    origins = [origin_of(m) for m in models]
    classes = [o.classes for o in origins]
    names = tuple(c for group in classes for c in group) if all(classes) else None  # type: ignore[union-attr]
    first = origins[0]
    step = {"op": "join", "how": how, "example": example_to_json(bps[0].example), "output": output}
    origin = Origin(
        arch="join",
        parts=tuple(origins),
        steps=(step,),
        classes=names,
        input_shape=first.input_shape,
        preprocessing=first.preprocessing if len({o.preprocessing for o in origins}) == 1 else None,
    )
    attach(joined, origin)
    if isinstance(joined, Branches):  # copies, each in its own modes
        joined.training = models[0].training
    else:
        keep_modes(joined, models[0])
