"""Classes in groups: CIFAR-100's twenty superclasses, or a file of your own."""

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from brickwork.errors import BadData, BadFile

SUPERCLASS = "superclass"


def class_groups(groups: str | Path) -> dict[str, list[str]]:
    """Names of groups with the names of their classes: `superclass`, CIFAR-100's own, or a JSON file of them.

    >>> found = class_groups("superclass")
    >>> len(found), found["fish"]
    (20, ['aquarium_fish', 'flatfish', 'ray', 'shark', 'trout'])
    """
    if str(groups) == SUPERCLASS:
        text = resources.files("brickwork.data").joinpath("cifar100_superclasses.json").read_text(encoding="utf-8")
        return {name: classes.split() for name, classes in json.loads(text).items()}
    path = Path(groups)
    if not path.is_file():
        raise BadFile(f"`groups` is {str(groups)!r}; it must be {SUPERCLASS}, or a JSON file of groups of classes.")
    try:
        given = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} holds no groups of classes as JSON ({error}).") from error
    lists = isinstance(given, dict) and all(
        isinstance(own, list) and own and all(isinstance(name, str) for name in own) for own in given.values()
    )
    if not lists or not given:
        raise BadFile(f'{path} must hold groups of classes, as in {{"pets": ["cat", "dog"], "birds": ["owl"]}}.')
    return given


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object; a name that is given twice would lose the first one's classes."""
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"the group {twice!r} is there twice")
    return dict(pairs)


def places_of(groups: Mapping[str, Sequence[str]], classes: Sequence[str], data: str) -> list[list[int]]:
    """The classes of every group as numbers; a name that there is not, or that is in two groups, is refused."""
    known = {name: k for k, name in enumerate(classes)}
    every = [name for own in groups.values() for name in own]
    missing = [name for name in every if name not in known]
    if missing:
        raise BadData(f"{data} has no class {missing[0]!r}, which a group names; it has {', '.join(classes[:8])}, …")
    twice = next((name for name in every if every.count(name) > 1), None)
    if twice is not None:
        raise BadData(f"the class {twice!r} is in the groups twice; give it to one task.")
    return [[known[name] for name in own] for own in groups.values()]
