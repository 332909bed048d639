"""A search for the numbers of a merge (weights, density, scale, …) on labelled images that the networks were not trained on.

As evolutionary merging does it (Akiba et al. 2024, arXiv 2403.13187): CMA-ES, every point a merge that is judged as it is.
Numbers whose range spans two powers of ten or more are looked for by their logarithm.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from brickwork.algebra.agreement import refuse_differences
from brickwork.algebra.data_methods import DataMethod, WeightMethod, find
from brickwork.algebra.evolution import Evolution
from brickwork.algebra.inputs import ModelTask, tasks_of
from brickwork.algebra.merging import merge
from brickwork.algebra.methods import registry
from brickwork.algebra.options import MEASURED, MergeOptions, MergeSearchOptions
from brickwork.algebra.repairing import has_statistics
from brickwork.algebra.search_result import MergeSearch, Point, Values
from brickwork.algebra.soup import judge
from brickwork.algebra.states import shapes_of
from brickwork.algebra.with_data import merge_on
from brickwork.errors import RequestError, UnknownName
from brickwork.options import takes
from brickwork.origin import attach, origin_of
from brickwork.progress import bar

WIDE = 100  # from a range of so many times its lower end on, logarithms are looked for


@takes(options=MergeOptions, searching=MergeSearchOptions)
def search_merge(
    models: Sequence[nn.Module],
    data: Sequence[Any],
    method: str = "linear",
    *,
    base: nn.Module | None = None,
    progress: bool = True,
    options: MergeOptions,
    searching: MergeSearchOptions,
    **fixed: Any,
) -> MergeSearch:
    """The numbers of a merge that do best on labelled images; the networks given are left unchanged.

    search: {"density": (0.1, 1), "weights": (0, 1.5)}: numbers of the method and their ranges; "weights" stands for one
    number per model. data: sets of (images, labels), label k is output k; images that the networks were not trained on,
    and that nothing is reported on afterwards. Methods that look at images, batch norms and `repair` see the same ones.
    fixed: the method's other options. The first try is what the method takes by itself, or the nearest within the ranges.

    >>> import torch
    >>> good, bad, x = nn.Linear(4, 3), nn.Linear(4, 3), torch.randn(200, 4)
    >>> found = search_merge([good, bad], [(x, good(x).argmax(1))], search={"weights": (0, 1)}, tries=30, progress=False)
    >>> found.best.accuracy[0] > found.tried[0].accuracy[0], len(found.tried), list(found.best.values)
    (True, 30, ['weights'])
    """
    chosen = find(method)
    check_search(method, len(models), len(data), base is not None, options, searching, fixed)
    space = _Space(chosen, searching, len(models))
    if options.bn in MEASURED and not has_statistics(models[0]):
        raise RequestError(f"`bn` is {options.bn}, and the networks have no batch norm to measure; leave it out.")
    every = {f"model {k}": m for k, m in enumerate(models)} | ({"the base": base} if base is not None else {})
    refuse_differences(shapes_of(every))
    tasks = tasks_of(models, data, pairs=False, labels=True)
    build = _Builder(list(models), chosen, base, options, fixed, tasks)
    tried: dict[tuple[float, ...], Point] = {}
    best: tuple[Point, nn.Module] | None = None
    order = Evolution(space.start(method), seed=options.seed)
    with bar("searching", searching.tries, show=progress) as advance:

        def look(place: np.ndarray) -> Point:
            nonlocal best
            values = space.at(place)
            key = space.key(values)
            if key not in tried:
                model = build(values)
                tried[key] = point = Point(values, *_judged(model, tasks))
                if best is None or point.score(searching.score) > best[0].score(searching.score):
                    best = point, model
                advance(1, f"best {best[0].score(searching.score)[0]:.2%}")
            return tried[key]

        look(order.mean)
        for _ in range(searching.tries):  # points on an edge may come twice, and are not judged twice
            places = order.ask()
            found = []
            for place in places:
                if len(tried) < searching.tries:
                    found.append(look(place))
            if len(found) < len(places):
                break
            scores = [(point.score(searching.score), -k) for k, point in enumerate(found)]
            order.tell(places, [-k for _, k in sorted(scores, reverse=True)])
    assert best is not None
    result = MergeSearch(best[1], method, space.ranges, searching.score, tuple(tried.values()))
    known = origin_of(best[1]).provenance.get("merge", {})
    facts = {**known, **result.to_dict(), "images": [len(t.images) for t in tasks], "seed": options.seed}
    attach(best[1], replace(origin_of(best[1]), provenance={"merge": facts}))
    return result


def searched(method: str) -> list[str]:
    """The numbers of a method that can be looked for."""
    chosen = find(method)
    if isinstance(chosen, WeightMethod):
        known = registry()[method].options
        return [name for name, default in known.items() if isinstance(default, float) or name == "weights"]
    numbers = [name for name, known in chosen.options.items() if known.searched]
    return [*numbers, *(["weights"] if chosen.weighted else [])]


class _Space:
    """The unit cube, and the numbers that its points stand for."""

    def __init__(self, chosen: DataMethod, searching: MergeSearchOptions, models: int) -> None:
        if searching.search is None:
            raise RequestError("`search` is missing; name a number of the method and its range, as in weights=0:1.")
        if chosen.needs_labels:
            raise RequestError(f"{chosen.name} chooses on labelled images by itself; leave `search` out.")
        self.ranges, self.models = searching.ranges, models
        known = searched(chosen.name)
        for name in self.ranges:
            if name not in known:
                raise UnknownName(f"number of {chosen.name} to look for", name, known)
        self.size = sum(models if name == "weights" else 1 for name in self.ranges)

    def at(self, place: np.ndarray) -> Values:
        """Six digits each, so that what is recorded is what was tried."""
        rest, values = list(map(float, place)), {}
        for name, (low, high) in self.ranges.items():
            count = self.models if name == "weights" else 1
            numbers = tuple(float(f"{_between(rest.pop(0), low, high):.6g}") for _ in range(count))
            values[name] = numbers if name == "weights" else numbers[0]
        return values

    def start(self, method: str) -> np.ndarray:
        """Where the method's own defaults lie."""
        chosen = find(method)
        weight = registry()[method].options if isinstance(chosen, WeightMethod) else {}
        result: list[float] = []
        for name, (low, high) in self.ranges.items():
            if name == "weights":
                result += [_place(1 / self.models if method == "linear" else 1.0, low, high)] * self.models
            else:
                result.append(_place(weight[name] if weight else chosen.options[name].default, low, high))
        return np.array(result)

    @staticmethod
    def key(values: Values) -> tuple[float, ...]:
        return tuple(x for v in values.values() for x in (v if isinstance(v, tuple) else (v,)))


def _between(place: float, low: float, high: float) -> float:
    if low > 0 and high >= WIDE * low:
        return math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
    return low + place * (high - low)


def _place(value: float, low: float, high: float) -> float:
    value = min(max(value, low), high)
    if low > 0 and high >= WIDE * low:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


def check_search(
    method: str,
    models: int,
    sets: int,
    base: bool,
    options: MergeOptions,
    searching: MergeSearchOptions,
    fixed: Mapping[str, Any],
) -> None:
    """Refuse a request that cannot be, at either end of its ranges, without a tensor."""
    chosen = find(method)
    space = _Space(chosen, searching, models)
    if not sets:
        raise RequestError("a search needs labelled images; give `data`.")
    if options.heads != "refuse":
        raise RequestError(f"`heads` is {options.heads} and not used by a search, which runs networks; leave it out.")
    if options.bn is not None and not isinstance(chosen, WeightMethod):
        raise RequestError(f"`bn` is not used by {method}, which looks at images; leave it out.")
    if options.repair and "repair" not in chosen.every_option:
        raise RequestError(f"`repair` is not used by {method}; leave it out.")
    if options.repair and space.ranges.get("weights", (0.0, 1.0))[0] < 0:
        low = space.ranges["weights"][0]
        raise RequestError(f"`search` looks for weights from {low:g} on; `repair` needs them 0 or more, so begin at 0.")
    for name in [name for name in fixed if name in space.ranges]:
        raise RequestError(f"{name} is given and looked for (`search`); leave one of them out.")
    for end in (np.zeros(space.size), np.ones(space.size)):
        values = {**fixed, **space.at(end)}
        weights = values.pop("weights", None)
        chosen.check(models, sets, base=base, weights=weights, options=values)


class _Builder:
    """The merged network of some numbers."""

    def __init__(
        self,
        models: list[nn.Module],
        chosen: DataMethod,
        base: nn.Module | None,
        options: MergeOptions,
        fixed: Mapping[str, Any],
        tasks: Sequence[ModelTask],
    ) -> None:
        self.models, self.method, self.base = models, chosen.name, base
        self.images = [task.given for task in tasks]
        own: dict[str, Any] = {"seed": options.seed} if "seed" in chosen.every_option else {}
        own |= {"repair": True} if options.repair else {}
        measured = options.bn is None or options.bn in MEASURED
        self.looks = not isinstance(chosen, WeightMethod) or options.repair or (measured and has_statistics(models[0]))
        bn = {} if not isinstance(chosen, WeightMethod) else {"bn": options.bn or "recalibrate"}
        if not self.looks:
            bn = {"bn": "keep" if options.bn == "keep" else "linear"}
        self.fixed = {**own, **bn, **fixed}

    def __call__(self, values: Values) -> nn.Module:
        given: dict[str, Any] = {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}
        if self.looks:
            return merge_on(
                self.models, self.images, self.method, base=self.base, progress=False, **self.fixed, **given
            )
        return merge(self.models, self.method, base=self.base, **self.fixed, **given)


def _judged(model: nn.Module, tasks: Sequence[ModelTask]) -> tuple[tuple[float, ...], float]:
    """The accuracy on every set, and the cross-entropy of all images."""
    rates, losses = zip(*(judge(model, task, number) for number, task in enumerate(tasks)), strict=True)
    loss = sum(losses) / sum(len(task.images) for task in tasks)
    return tuple(round(rate, 6) for rate in rates), round(loss, 6) if math.isfinite(loss) else 1e30
