"""Do recorded surgery again on a freshly built architecture, so that a model folder needs no pickle."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from brickwork.blueprint.branching import branched_classes
from brickwork.blueprint.depths import deeper_classes
from brickwork.blueprint.joining import join
from brickwork.blueprint.parts import more_classes, rescale_input, widen_output
from brickwork.blueprint.plan import trace
from brickwork.blueprint.request import example_from_json
from brickwork.blueprint.splitting import halves_of
from brickwork.errors import BadFile
from brickwork.origin import Origin, origin_of


def replay(model: nn.Module | None, origin: Origin) -> nn.Module:
    """The module that `origin` describes. `model` is its architecture as built; None for joined networks."""
    steps = list(origin.steps)
    if origin.parts:
        first = steps.pop(0) if steps else {}
        if first.get("op") != "join":
            raise BadFile("a joined network must record the join as its first step")
        parts = [rebuild(part) for part in origin.parts]
        model = join(parts, _example(first, parts[0]), how=first["how"], output=first["output"], trust=True)
    assert model is not None
    for step in steps:
        model = _apply(model, step)
    return model


def rebuild(origin: Origin) -> nn.Module:
    """A part from its own record, weights as the architecture initialises them."""
    from brickwork import zoo

    model = None if origin.parts else zoo.build(str(origin.arch), seed=0, **origin.args)
    return replay(model, origin) if origin.steps or origin.parts else model  # type: ignore[return-value]


def _apply(model: nn.Module, step: dict[str, Any]) -> nn.Module:
    op = step.get("op")
    if op == "rescale_input":
        return rescale_input(model, step["scale"], step["shift"])
    if op == "add_classes":
        return more_classes(model, step["known"], step["new"])
    if op == "widen_output":
        return widen_output(model, step["layer"], step["new"])
    if op == "deeper_classes":
        return deeper_classes(model, step["layers"], step["width"], step["new"])
    if op == "branched_classes":
        return branched_classes(model, step["at"], step["head"], step["new"])
    if op == "split":
        halves = halves_of(model, step["at"], step["carry"])
        return halves.below if step["side"] == "below" else halves.above
    known = origin_of(model).steps
    example, output = _example(step, model), step.get("output")
    if op == "select":
        result = trace(model, example, output=output).select(model, step["keep"])
    elif op == "permute":
        result = trace(model, example, output=output).permute(model, step["order"])
    elif op == "fold_batch_norm":
        from brickwork.moments import fold_batch_norm

        result = fold_batch_norm(model, example)
    else:
        raise BadFile(
            f"unknown step of surgery {op!r}; known: select, permute, join, fold_batch_norm, rescale_input, "
            "add_classes, widen_output, deeper_classes, branched_classes, split"
        )
    assert len(origin_of(result).steps) > len(known)
    return result


def _example(step: dict[str, Any], model: nn.Module) -> Any:
    """The recorded example in the precision the architecture is built in; the saved weights decide later."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    example = example_from_json(step["example"])
    return tree_map(lambda x: x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x, example)
