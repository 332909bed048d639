"""Do recorded surgery again on a freshly built architecture, so that a model folder needs no pickle."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from brickwork import zoo
from brickwork.blueprint.joining import join
from brickwork.blueprint.plan import trace
from brickwork.blueprint.request import example_from_json
from brickwork.errors import BadFile
from brickwork.limits import check_size
from brickwork.origin import Origin, origin_of
from brickwork.zoo.external import called


def rebuild(origin: Origin, sources: Sequence[Any] | None = None) -> nn.Module:
    """The module that `origin` describes, weights as its architectures initialise them.

    sources: what builds the networks of the record, in their order; without, the architectures it names.
    """
    return _rebuild(origin, iter(_named(origin) if sources is None else sources))


def _named(origin: Origin) -> list[Any]:
    return [source for part in origin.parts for source in _named(part)] if origin.parts else [str(origin.arch)]


def _rebuild(origin: Origin, sources: Iterator[Any]) -> nn.Module:
    steps = list(origin.steps)
    if origin.parts:
        first = steps.pop(0) if steps else {}
        if first.get("op") != "join":
            raise BadFile("a joined network must record the join as its first step")
        parts = [_rebuild(part, sources) for part in origin.parts]
        model = join(parts, _example(first, parts[0]), how=first["how"], output=first["output"], trust=True)
    else:
        model = build_architecture(next(sources), origin.args)
    for step in steps:
        model = _apply(model, step)
    return model


def build_architecture(source: str | Callable[..., nn.Module], args: dict[str, Any]) -> nn.Module:
    """A network by the name of its architecture, or by a function of the caller's."""
    return zoo.build(source, seed=0, **args) if isinstance(source, str) else called(source, None, args)[0]


@dataclass(frozen=True)
class Step:
    """A kind of surgery: the function that does it (of Brickwork, by a fixed name), and what the record tells it."""

    home: str
    entries: tuple[str, ...]
    traced: bool = False  # whether the function is given the recorded example, too


#: every step that a model folder may record; nothing else is ever looked up
STEPS = {
    "select": Step("store.replay:_select", ("output", "keep"), traced=True),
    "permute": Step("store.replay:_permute", ("output", "order"), traced=True),
    "fold_batch_norm": Step("moments.batch_norm:fold_batch_norm", (), traced=True),
    "explicit_attention": Step("blueprint.attention:explicit_attention", ()),
    "plain_weights": Step("blueprint.computed_weights:plain_again", ("modules",)),
    "open_heads": Step("blueprint.open_heads:opened_again", ("modules",)),
    "rescale_input": Step("blueprint.parts:rescale_input", ("scale", "shift")),
    "add_classes": Step("blueprint.parts:more_classes", ("known", "new")),
    "widen_output": Step("blueprint.parts:widen_output", ("layer", "new")),
    "deeper_classes": Step("dependencies.depths:deeper_classes", ("layers", "width", "new")),
    "branched_classes": Step("dependencies.branching:branched_classes", ("at", "head", "new")),
    "split": Step("blueprint.splitting:half_of", ("at", "carry", "side")),
}


def _apply(model: nn.Module, record: dict[str, Any]) -> nn.Module:
    step = STEPS.get(str(record.get("op")))
    if step is None:
        raise BadFile(f"unknown step of surgery {record.get('op')!r}; known: join, {', '.join(STEPS)}")
    missing = [name for name in (*step.entries, *(["example"] if step.traced else [])) if name not in record]
    if missing and missing != ["output"]:
        raise BadFile(f"the step {record['op']} of surgery does not record {', '.join(missing)}")
    module, _, name = step.home.partition(":")
    function = getattr(importlib.import_module(f"brickwork.{module}"), name)
    example = [_example(record, model)] if step.traced else []
    result: nn.Module = function(model, *example, *(record.get(entry) for entry in step.entries))
    assert len(origin_of(result).steps) > len(origin_of(model).steps) or not step.traced
    return result


def _select(model: nn.Module, example: Any, output: Any, keep: dict[str, list[int]]) -> nn.Module:
    return trace(model, example, output=output).select(model, keep)


def _permute(model: nn.Module, example: Any, output: Any, order: dict[str, list[int]]) -> nn.Module:
    return trace(model, example, output=output).permute(model, order)


def _example(step: dict[str, Any], model: nn.Module) -> Any:
    """The recorded example in the precision the architecture is built in; the saved weights decide later."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    example = example_from_json(step["example"])
    check_size(
        "the example of a step of surgery", sum(4 * x.numel() for x in tree_leaves(example) if isinstance(x, Tensor)), 0
    )
    return tree_map(lambda x: x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x, example)
