"""What is merged how: one request, checked whole, then one tensor after the other.

The same few lines merge dictionaries in memory and files on disk: a model is a mapping from names to arrays.
"""

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from brickwork.algebra.agreement import refuse_differences
from brickwork.algebra.files import Tensors
from brickwork.algebra.methods import MergeMethod, TensorContext, get, is_number
from brickwork.algebra.options import MergeOptions
from brickwork.errors import BadModel, RequestError

Model = Mapping[str, np.ndarray]
STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True)
class MergeRule:
    """A method for the tensors whose name fits a pattern."""

    match: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """A merge in words. The first rule that fits a tensor's name decides.

    bn: batch-norm statistics become the weighted mean of the models' ("linear") or stay the base's or first's ("keep").
    heads: tensors whose shapes differ are refused, or kept from the base or first model. Integers are kept likewise.
    An option may be {"from": a, "to": b}: it then runs from a to b over the tensors its rule fits.
    """

    rules: tuple[MergeRule, ...]
    options: MergeOptions = field(default_factory=MergeOptions)

    def problems(self, count: int, base: bool) -> list[str]:
        """Everything that is wrong, in words, without a tensor."""
        wrong = []
        for rule in self.rules:
            try:
                result = get(rule.method)
            except RequestError as error:
                wrong.append(str(error).rstrip("."))
                continue
            for end in ("from", "to"):
                wrong += result.check(count, base, {n: _end(v, end) for n, v in rule.options.items()})
        if base and not (wrong or self.uses_base):
            summary = " and ".join(dict.fromkeys(rule.method for rule in self.rules))
            wrong.append(
                f"{summary} has no use for a base; leave it out, or keep tensors of it with bn or heads at keep"
            )
        return list(dict.fromkeys(wrong))

    @property
    def changes_one(self) -> bool:
        """Whether there is something to do with one model: its difference from the base is changed."""
        return any(get(rule.method).needs_base for rule in self.rules)

    @property
    def uses_base(self) -> bool:
        """Whether a method starts from the base, or something is kept of it."""
        return self.changes_one or "keep" in (self.options.bn, self.options.heads)

    def check(self, count: int, base: bool) -> None:
        wrong = self.problems(count, base)
        if wrong:
            raise RequestError("; ".join(wrong) + ".")


@dataclass(frozen=True)
class TensorStep:
    """What happens to one tensor; method None: it is kept."""

    name: str
    method: MergeMethod | None
    options: Mapping[str, Any] = field(default_factory=dict)
    rule: int = 0


def steps(request: Request, kinds: Mapping[str, str]) -> list[TensorStep]:
    """Which tensor is merged how; kinds: "merge", "statistics" or "keep" for every name."""
    owner = {
        name: next((k for k, r in enumerate(request.rules) if fnmatch.fnmatchcase(name, r.match)), None)
        for name in kinds
    }
    result = []
    for name, kind in kinds.items():
        number = owner[name]
        if number is None or kind == "keep" or (kind == "statistics" and request.options.bn == "keep"):
            result.append(TensorStep(name, None))
            continue
        rule = request.rules[number]
        mine = [n for n in kinds if owner[n] == number and kinds[n] != "keep"]
        along = mine.index(name) / max(1, len(mine) - 1)
        options = {n: _between(v, along) for n, v in rule.options.items()}
        if kind == "statistics":
            weights = options.get("weights")
            sizes = [abs(w) for w in weights] if weights is not None and any(weights) else None
            mean = {"weights": sizes, "normalize": "yes"} if sizes else {}
            result.append(TensorStep(name, get("linear"), mean, number))
        else:
            result.append(TensorStep(name, get(rule.method), {**get(rule.method).options, **options}, number))
    return result


def run(
    request: Request,
    models: Sequence[Model],
    base: Model | None,
    plan: Sequence[TensorStep],
    *,
    piece: int | None = None,
) -> Iterator[tuple[str, Iterator[np.ndarray] | None]]:
    """Merged arrays in the order of the plan, each in one piece or several; None for a tensor that is kept.

    piece: elementwise methods see large tensors in pieces of so many numbers (models must then be `Tensors`).
    """
    surveys = _surveys(models, base, plan, piece)
    for step in plan:
        if step.method is None:
            yield step.name, None
            continue
        result = surveys.get(step.rule, {})
        yield (step.name, _merged(request, models, base if step.method.needs_base else None, step, result, piece))


def _merged(
    request: Request,
    models: Sequence[Model],
    base: Model | None,
    step: TensorStep,
    found: Mapping[str, Any],
    piece: int | None,
) -> Iterator[np.ndarray]:
    assert step.method is not None
    if step.method.survey is not None and not found:
        found = step.method.survey(_vectors(models, base, [step.name], piece), step.options)
    owners: list[tuple[Model, int | None]] = [(model, k) for k, model in enumerate(models)]
    parts = [_pieces(model, step.name, piece if step.method.elementwise else None, k) for model, k in owners]
    if base is not None:
        parts.append(_pieces(base, step.name, piece if step.method.elementwise else None, None))
    start = 0
    for arrays in zip(*parts, strict=True):
        context = TensorContext(step.name, request.options.seed, found, start)
        start += arrays[0].size
        tensors = list(arrays[: len(models)])
        with np.errstate(over="ignore", invalid="ignore"):  # said below, in our words
            result = step.method.function(tensors, arrays[-1] if base is not None else None, context, **step.options)
        yield _still_finite(result, step)


def _pieces(model: Model, name: str, piece: int | None, number: int | None) -> Iterator[np.ndarray]:
    """A tensor whole, or, where it is large and may be, its flat numbers piece by piece."""
    return (get_piece() for get_piece in _lazy_pieces(model, name, piece, number))


def _lazy_pieces(model: Model, name: str, piece: int | None, number: int | None) -> Iterator[Callable[[], np.ndarray]]:
    """The same as functions, so that a piece that is not wanted is not read."""
    if piece is not None and isinstance(model, Tensors) and model.entries[name].numbers > piece:
        for start in range(0, model.entries[name].numbers, piece):
            yield lambda start=start: _finite(model.piece(name, start, piece), name, _who(model, number))  # type: ignore[misc]
    else:
        yield lambda: _finite(model[name], name, _who(model, number))


def _vectors(
    models: Sequence[Model], base: Model | None, names: Sequence[str], piece: int | None
) -> list[Callable[[int], Iterator[np.ndarray]]]:
    """For each model a function that walks through its task vector."""

    def walk(model: Model, every: int) -> Iterator[np.ndarray]:
        assert base is not None
        number = 0
        for name in names:
            pair = (_lazy_pieces(model, name, piece, 0), _lazy_pieces(base, name, piece, None))
            for x, zero in zip(*pair, strict=True):
                if number % every == 0:
                    yield x() - zero()
                number += 1

    return [partial(walk, model) for model in models]


def kinds_of(
    shapes: Sequence[Mapping[str, tuple[tuple[int, ...], bool]]],
    count: int,
    request: Request,
    *,
    names: Sequence[str] | None = None,
) -> dict[str, str]:
    """What each tensor is, from (shape, is it a float) in `count` models, the base behind them if there is one.

    names: of all of them, for refusals.
    """
    first = shapes[0]
    factor = next((name for name in first if ".lora_A." in name or ".lora_B." in name), None)
    if factor is not None and len(shapes) > 1:
        raise BadModel(
            f"{factor} is a factor of a LoRA; A and B merged separately are not the merged products B·A. Use "
            "brickwork lora merge."
        )
    who = names or [f"model {k}" for k in range(count)] + ["the base"] * (len(shapes) - count)
    summary = {name: {n: facts[0] for n, facts in one.items()} for name, one in zip(who, shapes, strict=True)}
    refuse_differences(summary, shapes=request.options.heads == "refuse")
    result = {}
    for name, (shape, is_float) in first.items():
        same = all(s[name][0] == shape for s in shapes)
        statistic = name.rpartition(".")[2] in STATISTICS
        result[name] = "keep" if not (same and is_float) else "statistics" if statistic else "merge"
    return result


def _surveys(
    models: Sequence[Model], base: Model | None, plan: Sequence[TensorStep], piece: int | None
) -> dict[int, Mapping[str, Any]]:
    """The first pass that some methods need over all the tensors of their rule (trim="global")."""
    result: dict[int, Mapping[str, Any]] = {}
    for step in plan:
        if step.method is None or step.method.survey is None or step.rule in result:
            continue
        if step.options.get("trim") == "global":
            names = [s.name for s in plan if s.rule == step.rule and s.method is step.method]
            result[step.rule] = step.method.survey(_vectors(models, base, names, piece), step.options)
    return result


def _who(model: Model, number: int | None) -> str:
    if isinstance(model, Tensors):
        return str(model.path)
    return "the base" if number is None else f"model {number}"


def _finite(x: np.ndarray, name: str, who: str) -> np.ndarray:
    # A sum is NaN or infinite whenever an entry is; look closer only then, since a sum can also overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        total = x.sum(dtype=x.dtype)
    if not np.isfinite(total) and not np.isfinite(x).all():
        raise BadModel(
            f"{name} of {who} has {int((~np.isfinite(x)).sum())} of {x.size} values that are NaN or infinite."
        )
    return x


def _still_finite(x: np.ndarray, step: TensorStep) -> np.ndarray:
    """What came of finite tensors must be finite; weights like 1e308 are mistakes, not models."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = x.sum(dtype=x.dtype)
    if not np.isfinite(total) and not np.isfinite(x).all():
        said = ", ".join(f"{name} {value}" for name, value in step.options.items() if value is not None)
        raise BadModel(
            f"{step.name} would become infinite or NaN in {int((~np.isfinite(x)).sum())} of {x.size} values by "
            f"{step.method.name if step.method else 'this merge'} with {said or 'its defaults'}; nothing was written. "
            "Give smaller numbers."
        )
    return x


def _end(value: Any, end: str) -> Any:
    return value[end] if isinstance(value, Mapping) and set(value) == {"from", "to"} else value


def _between(value: Any, along: float) -> Any:
    """An option that runs from one value to another, at this place."""
    low, high = _end(value, "from"), _end(value, "to")
    if not (isinstance(value, Mapping) and set(value) == {"from", "to"}):
        return value
    if is_number(low) and is_number(high):
        return low + (high - low) * along
    return [a + (b - a) * along for a, b in zip(low, high, strict=True)]
