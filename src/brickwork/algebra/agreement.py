"""Whether networks are of one architecture, by the names and shapes of their tensors; numpy and torch alike."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from brickwork.errors import BadModel
from brickwork.words import sides, some_of

Shapes = Mapping[str, tuple[int, ...]]


def refuse_differences(networks: Mapping[str, Shapes], *, shapes: bool = True) -> None:
    """BadModel with the first three tensors that differ; shapes=False: only names must be the same.

    >>> refuse_differences({"a": {"w": (2, 3)}, "b": {"w": (2, 4)}})
    Traceback (most recent call last):
    ...
    brickwork.errors.BadModel: a and b are not of one architecture; they differ in w: 2×3 and 2×4.
    """
    names = dict.fromkeys(name for result in networks.values() for name in result)
    odd = [
        name
        for name in names
        if any(name not in result for result in networks.values())
        or (shapes and len({tuple(result[name]) for result in networks.values()}) > 1)
    ]
    if odd:
        told = [f"{n}: {_listed([_shown(s.get(n)) for s in networks.values()])}" for n in odd]
        summary = some_of(told, between="; ")
        raise BadModel(f"{_listed(list(networks))} are not of one architecture; they differ in {summary}.")


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _shown(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else sides(shape, "a number")


def other_names(models: Sequence[Path]) -> list[str]:
    """Outputs are merged place by place: where folders call a place differently, whose name it keeps."""
    named = {}
    for model in models:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            named[model] = json.loads((model / "config.json").read_text(encoding="utf-8")).get("classes")
    first, *others = models
    return [
        f"{first} and {other} call their outputs differently; the merged network has the names of {first}: "
        f"{some_of(named[first], 5)} stand for {some_of(named[other], 5)} of {other} too."
        for other in others
        if named.get(first) and named.get(other) and named[first] != named[other]
    ]
