"""Cut a dependency: the covariance of two classes' logits as a loss term (paper 5, Sec. 3.3)."""

import math
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from brickwork.dependencies.map import DependencyMap
from brickwork.errors import BadModel, RequestError, UnknownName
from brickwork.words import some_of

Pair = tuple[str | int, str | int]


class CovariancePenalty:
    """strength · Σ |mean of f_i f_j| over the pairs (i, j): a loss term for any training loop.

    >>> cut = CovariancePenalty([("cat", "car")], classes=["cat", "dog", "car"], strength=0.5)
    >>> logits = torch.tensor([[2.0, 0.0, 1.0], [4.0, 0.0, -2.0]])
    >>> cut(logits).item(), cut
    (1.5, CovariancePenalty(cat:car, strength=0.5))

    pairs: one pair or a list of them, class names (of `classes`) or numbers of logits; see also `pairs_above`.
    It is called with logits (rows, classes, …), or as `train(…, penalty=…)` does, with (images, logits, target).
    """

    def __init__(
        self, pairs: Pair | Sequence[Pair], *, classes: Sequence[str] | None = None, strength: float = 1.0
    ) -> None:
        given = cast("list[Pair]", [pairs] if _is_pair(pairs) else list(pairs))
        if not given:
            raise RequestError("there is no pair of classes to cut.")
        if not (strength >= 0 and math.isfinite(strength)):
            raise RequestError(f"strength is {strength}; it must be 0 or more.")
        self.strength, self.classes = float(strength), None if classes is None else tuple(classes)
        result = [(self._number(a), self._number(b)) for a, b in given]
        for a, b in result:
            if a == b:
                raise RequestError(f"a class cannot be cut from itself; pair {self._name(a)}:{self._name(b)}.")
        self.pairs = sorted({(min(a, b), max(a, b)) for a, b in result})

    def __call__(self, *given: Tensor) -> Tensor:
        columns = self._logits(given)
        one, other = (columns[:, [pair[k] for pair in self.pairs]] for k in (0, 1))
        products = (one * other).transpose(0, 1).flatten(1)
        return self.strength * products.mean(1).abs().sum()

    def _logits(self, given: tuple[Tensor, ...]) -> Tensor:
        """Of (logits) or (images, logits, target), in float32 or better, checked."""
        logits = given[0] if len(given) == 1 else given[1]
        last = max(b for _, b in self.pairs)
        if logits.ndim < 2 or last >= logits.shape[1]:
            raise BadModel(f"class {last} is to be cut, but the logits are {tuple(logits.shape)}.")
        return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits

    def _number(self, name: str | int) -> int:
        if isinstance(name, int) and not isinstance(name, bool):
            if name < 0 or (self.classes is not None and name >= len(self.classes)):
                count = "" if self.classes is None else f" to {len(self.classes) - 1}"
                raise RequestError(f"class {name} is out of range; classes are numbered 0{count}.")
            return name
        if self.classes is None:
            raise RequestError(f"{name!r} is a name; give classes=, the names in the logits' order, or a number.")
        if name not in self.classes:
            raise UnknownName("class", str(name), self.classes)
        return self.classes.index(str(name))

    def _name(self, number: int) -> str:
        return str(number) if self.classes is None else self.classes[number]

    def __repr__(self) -> str:
        shown = some_of([f"{self._name(a)}:{self._name(b)}" for a, b in self.pairs], 5)
        return f"{type(self).__name__}({shown}, strength={self.strength:g})"


def _is_pair(pairs: object) -> bool:
    return isinstance(pairs, tuple) and len(pairs) == 2 and all(isinstance(p, str | int) for p in pairs)


def parse_pair(text: str) -> tuple[str, str]:
    """`A:B` as two class names.

    >>> parse_pair("jellyfish:spot")
    ('jellyfish', 'spot')
    """
    first, colon, second = text.partition(":")
    if not (first and colon and second) or ":" in second:
        raise RequestError(f"`cut` takes two classes, A:B, not {text!r}; for example 3:8.")
    return first, second


def pairs_above(
    found: DependencyMap, t: float, groups: Mapping[str, str] | Sequence[str] | None = None
) -> list[tuple[int, int]]:
    """Pairs of classes with a dependency of |coefficient| ≥ t, of different groups (superclasses) if groups are given.

    groups: class name → group, or one group a class in order. The largest coefficients come first.
    """
    if not (t > 0 and math.isfinite(t)):
        raise RequestError(f"t is {t}; it must be above 0.")
    if found.names != found.targets:
        raise RequestError("this map is of one network's classes from another's; links are cut within one.")
    of = _groups(groups, found.names)
    sizes: dict[tuple[int, int], float] = {}
    for i in range(len(found.names)):
        for j in range(len(found.names)):
            size = abs(float(found.coef[i, j]))
            if i != j and size >= t and (of is None or of[i] != of[j]):
                pair = (min(i, j), max(i, j))
                sizes[pair] = max(size, sizes.get(pair, 0.0))
    return sorted(sizes, key=lambda pair: (-sizes[pair], pair))


def _groups(groups: Mapping[str, str] | Sequence[str] | None, names: Sequence[str]) -> list[str] | None:
    if groups is None:
        return None
    if isinstance(groups, Mapping):
        absent = [name for name in names if name not in groups]
        if absent:
            raise RequestError(f"no group is given for {', '.join(map(repr, absent[:5]))}.")
        return [str(groups[name]) for name in names]
    if len(groups) != len(names):
        raise RequestError(f"{len(groups)} groups for {len(names)} classes; give one a class, in order.")
    return list(map(str, groups))
