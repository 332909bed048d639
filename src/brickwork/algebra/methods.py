"""Ways to make one tensor of several: a registry of pure functions, each with its paper.

A method sees the same tensor of every model, in float32 (float64 for float64), and the base's where it needs one; it
must not change what it is given. `TensorContext` says which tensor it is, so that random numbers depend on the seed,
the model and the name alone: the same bytes in any order of work.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from brickwork.algebra.data_methods import DATA_METHODS
from brickwork.errors import RequestError, UnknownName
from brickwork.words import counted

Merged = Callable[..., np.ndarray]
PIECE = 2**16  # numbers of a large tensor that an elementwise method sees at a time: they stay in the cache
PER_STEP = 8  # float32 numbers that one step of the Philox counter gives


@dataclass(frozen=True)
class TensorContext:
    """Which tensor is merged, and what an earlier pass over all tensors found."""

    name: str = ""
    seed: int = 0
    found: Mapping[str, Any] = field(default_factory=dict)
    start: int = 0  # where in the flat tensor this piece begins; a multiple of PIECE

    def uniform(self, model: int, shape: tuple[int, ...]) -> np.ndarray:
        """float32 in [0, 1), the same for a piece of a tensor as for the whole."""
        key = hashlib.blake2b(f"{self.seed}\0{model}\0{self.name}".encode(), digest_size=16).digest()
        source = np.random.Philox(key=int.from_bytes(key, "little"))
        source.advance(self.start // PER_STEP)
        return np.random.Generator(source).random(shape, np.float32)


@dataclass(frozen=True)
class MergeMethod:
    name: str
    function: Merged
    paper: str
    about: str
    needs_base: bool
    models: tuple[int, int | None]  # fewest and most
    options: Mapping[str, Any]  # name -> default
    survey: Callable[..., Mapping[str, Any]] | None = None  # a first pass over all tensors, where one is needed
    elementwise: bool = False  # an entry depends on the same entry of the inputs alone (and on what a survey found)

    def to_dict(self) -> dict[str, Any]:
        """What it needs, and its options with their defaults."""
        needs = {"base": self.needs_base, "data": False, "labels": False}
        return {"name": self.name, **needs, "options": dict(self.options), "about": self.about, "paper": self.paper}

    def check(self, count: int, base: bool, options: Mapping[str, Any]) -> list[str]:
        """Everything that is wrong with a request, in words."""
        low, high = self.models
        wrong = []
        if count < low or (high is not None and count > high):
            allowed = f"{low}" if low == high else f"{low} or more" if high is None else f"{low} to {high}"
            wrong.append(f"{self.name} merges {allowed} models, not {count}")
        if self.needs_base and not base:
            wrong.append(f"{self.name} needs a base, the model that the others were trained from (`base`)")
        for name, value in options.items():
            if name not in self.options:
                wrong.append(str(UnknownName(f"option of {self.name}", name, self.options)).rstrip("."))
            elif name == "weights":
                wrong += check_weights(value, count)
            elif isinstance(self.options[name], str) and not isinstance(value, str):
                wrong.append(f"{name} of {self.name} is {value!r}; it must be a word")
            elif isinstance(self.options[name], float) and not is_number(value):
                wrong.append(f"{name} of {self.name} is {value!r}; it must be a number")
        return wrong + list(LIMITS.get(self.name, lambda **_: [])(**{**self.options, **options}) if not wrong else [])


REGISTRY: dict[str, MergeMethod] = {}
#: method -> what is wrong with the values of its options
LIMITS: dict[str, Callable[..., list[str]]] = {}


def method(
    name: str,
    *,
    paper: str,
    base: bool = False,
    models: tuple[int, int | None] = (1, None),
    survey: Any = None,
    elementwise: bool = False,
) -> Callable[[Merged], Merged]:
    """Register a function (tensors, base, context, **options) under a name."""

    def register(function: Merged) -> Merged:
        options = {
            n: p.default
            for n, p in inspect.signature(function).parameters.items()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        }
        about = (function.__doc__ or "").split("\n")[0]
        REGISTRY[name] = MergeMethod(name, function, paper, about, base, models, options, survey, elementwise)
        return function

    return register


def registry() -> dict[str, MergeMethod]:
    """All of them."""
    from brickwork.algebra import sparse, spectral  # noqa: F401  (register themselves)

    return REGISTRY


def get(name: str) -> MergeMethod:
    if name in DATA_METHODS:
        raise RequestError(f"{name} looks at images; give them as `data`, which a recipe.yaml has none of.")
    if name not in registry():
        raise UnknownName("merge method", name, REGISTRY)
    return REGISTRY[name]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)


def check_weights(weights: Any, count: int) -> list[str]:
    if weights is None:
        return []
    if not isinstance(weights, Sequence) or isinstance(weights, str) or not all(map(is_number, weights)):
        return [f"weights are {weights!r}; they must be numbers, one a model"]
    return [] if len(weights) == count else [f"{counted(len(weights), 'weight')} for {counted(count, 'model')}"]


def share(name: str, value: Any) -> list[str]:
    return [] if 0 < value <= 1 else [f"{name} is {value}; it must be above 0 and at most 1"]


def weighted_sum(tensors: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """Σ w·x, one temporary at a time."""
    total = tensors[0] * tensors[0].dtype.type(weights[0])
    for x, w in zip(tensors[1:], weights[1:], strict=True):
        total += x * x.dtype.type(w) if w != 1 else x
    return total


@method("linear", paper="https://arxiv.org/abs/2203.05482", elementwise=True)
def linear(
    tensors: Sequence[np.ndarray],
    base: np.ndarray | None,
    context: TensorContext,
    *,
    weights: Any = None,
    normalize: str = "no",
) -> np.ndarray:
    """Weighted sum; the mean (a model soup) without weights. normalize="yes" divides by the sum of the weights.

    >>> linear([np.array([1.0]), np.array([3.0])], None, TensorContext())
    array([2.])
    """
    if weights is None:
        weights = [1 / len(tensors)] * len(tensors)
    elif normalize == "yes":
        weights = [w / sum(weights) for w in weights]
    return weighted_sum(tensors, weights)


def _linear_limits(weights: Any, normalize: str) -> list[str]:
    if normalize not in ("yes", "no"):
        return [f"normalize is {normalize!r}; it must be yes or no"]
    zero = normalize == "yes" and weights is not None and sum(weights) == 0
    return ["the weights add up to 0, so they cannot be normalised"] if zero else []


LIMITS["linear"] = _linear_limits


@method("slerp", paper="https://doi.org/10.1145/325165.325242", models=(2, 2))
def slerp(
    tensors: Sequence[np.ndarray], base: np.ndarray | None, context: TensorContext, *, t: float = 0.5
) -> np.ndarray:
    """Along the great circle from the first (t=0) to the second (t=1); a straight line where they are parallel.

    >>> slerp([np.array([1.0, 0.0]), np.array([0.0, 1.0])], None, TensorContext()).round(3)
    array([0.707, 0.707])
    """
    a, b = tensors
    norms = [float(np.linalg.norm(x.astype(np.float64, copy=False))) for x in (a, b)]
    if min(norms) == 0:
        return weighted_sum(tensors, [1 - t, t])
    cosine = float(np.vdot(a.astype(np.float64, copy=False), b.astype(np.float64, copy=False))) / (norms[0] * norms[1])
    angle = float(np.arccos(np.clip(cosine, -1, 1)))
    if np.sin(angle) < 1e-4:
        return weighted_sum(tensors, [1 - t, t])
    return weighted_sum(tensors, [np.sin((1 - t) * angle) / np.sin(angle), np.sin(t * angle) / np.sin(angle)])


@method("task_arithmetic", paper="https://arxiv.org/abs/2212.04089", base=True, elementwise=True)
def task_arithmetic(
    tensors: Sequence[np.ndarray], base: np.ndarray, context: TensorContext, *, weights: Any = None
) -> np.ndarray:
    """base + Σ w · (model − base); weights 1 by default.

    >>> task_arithmetic([np.array([3.0]), np.array([2.0])], np.array([1.0]), TensorContext())
    array([4.])
    """
    scales = [1.0] * len(tensors) if weights is None else list(weights)
    return weighted_sum([base, *tensors], [1 - sum(scales), *scales])


@method("model_stock", paper="https://arxiv.org/abs/2403.19522", base=True, models=(2, None))
def model_stock(tensors: Sequence[np.ndarray], base: np.ndarray, context: TensorContext) -> np.ndarray:
    """Between base and mean, as far as the angle between the task vectors says."""
    flat = [np.ravel(x - base).astype(np.float64) for x in tensors]
    norms = [np.linalg.norm(v) for v in flat]
    count = len(flat)
    cosines = [
        float(flat[i] @ flat[j]) / (norms[i] * norms[j]) if norms[i] and norms[j] else 0.0
        for i in range(count)
        for j in range(i)
    ]
    cosine = float(np.clip(sum(cosines) / len(cosines), 0, 1))
    ratio = count * cosine / (1 + (count - 1) * cosine)
    return weighted_sum([base, *tensors], [1 - ratio, *[ratio / count] * count])
