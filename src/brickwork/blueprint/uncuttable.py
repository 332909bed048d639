"""Of a cut that is refused, which spaces must stay whole so that the rest of it can be made.

A forward may tie widths in ways that no layout shows: a split by numbers of its own, a reshape to the width of something
else. Which spaces those are is found by trying, half of them at a time: first on shapes alone, then proved. Spaces of the
same layer in repeated blocks share one fate where the first of them cannot be cut: their code is the same. Layers that
merely stand in one list do not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from brickwork.blueprint.record import meta_copy
from brickwork.errors import BadModel, RequestError
from brickwork.progress import bar

if TYPE_CHECKING:
    from brickwork.blueprint.plan import Blueprint


def uncuttable(
    bp: Blueprint, model: nn.Module, keep: Mapping[str, Any], *, settled: Sequence[str] = (), progress: bool = True
) -> dict[str, str]:
    """The spaces of `keep` that have to stay whole, with the reason of each; empty if nothing has to.

    The others can be cut together as `keep` says. settled: spaces that are cut in any case.
    """
    cut = {name: ids for name, ids in keep.items() if len(ids) < bp.spaces[name]}
    always = {name: cut.pop(name) for name in settled if name in cut}
    left: dict[str, str] = {}

    def add(net: nn.Module, good: list[str], groups: list[list[str]]) -> None:
        """As many of these as can be cut together with `good`."""
        names = [name for group in groups for name in group]
        reason = _refusal(bp, net, {**always, **{name: cut[name] for name in [*good, *names]}})
        if reason is None:
            good += names
            advance(len(names))
        elif len(groups) > 1:
            half = len(groups) // 2
            add(net, good, groups[:half])
            add(net, good, groups[half:])
        elif len(names) > 1:
            add(net, good, [names[:1]])
            if names[0] in left:
                left.update(dict.fromkeys(names[1:], left[names[0]]))
                advance(len(names) - 1)
            else:
                add(net, good, [[name] for name in names[1:]])
        else:
            left[names[0]] = reason
            advance(1)

    for net in (meta_copy(model), model):
        with bar("looking for what can be cut", len(cut), show=progress) as advance:
            alike: dict[tuple[str, ...], list[str]] = {}
            for name in cut:
                if name not in left:
                    alike.setdefault(_kind(model, name), []).append(name)
            if alike:
                add(net, [], list(alike.values()))
    return left


def _kind(model: nn.Module, name: str) -> tuple[str, ...]:
    """The same for the same layer of repeated blocks: its name but for the block's number, and what it is part of."""
    kinds: list[str] = []
    at: Any = model
    for step in name.split("."):
        at = getattr(at, step, None)
        kinds.append(type(at).__qualname__)
    return re.sub(r"\b\d+\.", "#.", name), *kinds


def _refusal(bp: Blueprint, model: nn.Module, keep: Mapping[str, Any]) -> str | None:
    try:
        bp.select(model, keep)
    except (BadModel, RequestError) as error:
        return str(error)
    return None
