"""Which channels stay: by a score of their own, or by what the rest of the network can rebuild."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from brickwork.blueprint.plan import CLASSES, Blueprint
from brickwork.bricks.allocation import by_damage
from brickwork.bricks.answers import Answers
from brickwork.bricks.cut import Cut
from brickwork.bricks.narrow_heads import head_curves
from brickwork.bricks.options import DisassembleOptions
from brickwork.bricks.prices import prices_of
from brickwork.bricks.rebuild import Curve, curve_of, rebuild_curves
from brickwork.bricks.scores import Scores
from brickwork.bricks.subject import Subject
from brickwork.bricks.timing import Clock
from brickwork.bricks.uniform import ByConfiguration, UniformWidths
from brickwork.bricks.widths import Kept, by_ratio, by_threshold, by_worth, rounded, within
from brickwork.moments.batches import fitting
from brickwork.moments.processes import agreed

LOOKED_AT = 200  # images on which answers are compared
TRIED = 500  # calibration images, at most, that a way to spend a budget is tried with
ATTEMPTS = 5  # times, at most, that a part within a budget of time is timed and made narrower
TILTS = (0.0, 1.0, 2.0)  # how much more the damage of the last space counts than that of the first, as a logarithm


class Choice(Protocol):
    """How channels are chosen for one request."""

    @property
    def spaces(self) -> Collection[str]: ...
    @property
    def images(self) -> int:
        """How many images the choice looked at."""

    def within(self, spaces: Collection[str]) -> Choice:
        """The same, with the other spaces left whole."""

    def kept(self, budget: float | None) -> Kept:
        """What stays by the options, or within a budget."""


def choose(
    subject: Subject,
    options: DisassembleOptions,
    spaces: Collection[str],
    cut_out: Callable[..., Cut],
    progress: bool,
    clock: Clock | None = None,
) -> Choice:
    """By the attribution that is asked for. cut_out: cuts and repairs, for ways to spend a budget to be compared.

    clock: for a budget of time.
    """
    name = options.chosen_by
    if name != "rebuild":
        scores = subject.score(name, options.scored, options.seed, progress).within(spaces)
        return ByScore(subject.bp, scores.with_sizes(subject.bp, subject.whole), subject.wanted, options)
    samples, bp = subject.samples, subject.bp
    widths = UniformWidths(subject.whole, bp, len(subject.wanted)) if options.uniform else None
    index = samples.of_classes(subject.wanted, options.scored, options.seed)
    images = samples.lazy(index)
    size = fitting(subject.whole, images, 100, bp.output)
    answers = None
    if options.keep is None:  # a share of every layer needs the order of its channels alone
        draw = np.random.default_rng([options.seed, 3]).permutation(index)[:LOOKED_AT]
        images_of_draw, numbers = samples.lazy(np.sort(draw)), subject.numbers
        answers = Answers(subject.whole, images_of_draw, subject.wanted, bp.output, size, numbers=numbers)
    curves = rebuild_curves(
        subject.whole, bp, images, answers, spaces=spaces, batch_size=size, seed=options.seed, progress=progress
    )
    curves |= head_curves(subject, spaces, answers)
    others = [s for s in bp.spaces if s in spaces and s not in curves and s != CLASSES]
    if others:  # what reads them cannot be solved for: the next best thing is a score, and damage measured all the same
        scores = subject.score("taylor", options.scored, options.seed, progress).within(others)
        curves |= _scored_curves(subject, scores.with_sizes(bp, subject.whole), answers)
    ordered = {s: curves[s] for s in bp.spaces if s in curves}
    if widths is not None:
        return ByConfiguration(subject, ordered, options, widths, len(index))
    return ByRebuild(bp, ordered, subject.wanted, options, answers, cut_out, clock, len(index))


@dataclass(frozen=True)
class ByScore:
    """The channels with the best scores."""

    bp: Blueprint
    scores: Scores
    classes: list[int]
    options: DisassembleOptions

    @property
    def spaces(self) -> Collection[str]:
        return self.scores.scores

    @property
    def images(self) -> int:
        return int(self.scores.counts.sum())

    def within(self, spaces: Collection[str]) -> ByScore:
        return replace(self, scores=self.scores.within(spaces))

    def kept(self, budget: float | None) -> Kept:
        bp, options, classes = self.bp, self.options, self.classes
        budget = options.budget if budget is None else budget
        joint, step = self.scores.of(classes), options.round_to or 1
        if options.keep is not None:
            return by_ratio(bp, joint, options.keep, step=step)
        if budget is not None:
            settled = {CLASSES: len(classes) / bp.outputs} if bp.by_class else {}
            prices = prices_of(bp, options.of)
            wide = partial(by_worth, bp, joint, prices=prices, left=settled, step=step)
            return within(bp, wide, budget, of=options.of, classes=classes)
        assert options.threshold is not None
        kept = by_threshold(bp, {n: table[classes] for n, table in self.scores.scores.items()}, options.threshold)
        return rounded(bp, joint, kept, step)


@dataclass(frozen=True)
class ByRebuild:
    """The channels that the others could not make good for; widths by the damage measured."""

    bp: Blueprint
    curves: Mapping[str, Curve]
    classes: list[int]
    options: DisassembleOptions
    answers: Answers | None  # None where no budget asks for them
    cut_out: Callable[..., Cut]
    clock: Clock | None  # where the budget is of time
    images: int

    @property
    def spaces(self) -> Collection[str]:
        return self.curves

    def within(self, spaces: Collection[str]) -> ByRebuild:
        return replace(self, curves={name: curve for name, curve in self.curves.items() if name in spaces})

    def kept(self, budget: float | None) -> Kept:
        budget = self.options.budget if budget is None else budget
        if budget is not None:
            return self._best(budget)
        assert self.options.keep is not None
        scores = {name: curve.rank(self.bp.spaces[name]) for name, curve in self.curves.items()}
        return by_ratio(self.bp, scores, self.options.keep, step=self.options.round_to or 1)

    def _best(self, budget: float) -> Kept:
        """Of a few ways to spend the budget the one whose repaired part answers most like the whole.

        The repair makes good for damage in early layers more than for damage in late ones; how much more is tried.
        """
        ways: list[Kept] = []
        for tilt in TILTS if self.options.repair == "match" else TILTS[:1]:
            kept = self._within(budget, tilt)
            if kept not in ways:
                ways.append(kept)
        if len(ways) == 1:
            return ways[0]
        assert self.answers is not None
        distances = [self.answers.distance(self.cut_out(kept=kept, at_most=TRIED).model) for kept in ways]
        return ways[agreed(int(np.argmin(distances)))]

    def _within(self, budget: float, tilt: float) -> Kept:
        """Within the budget by the prices, and where it is of time, by the clock."""
        prices = prices_of(self.bp, self.options.of) if self.clock is None else self.clock.times
        target = budget
        for _ in range(ATTEMPTS):
            step = self.options.round_to or 1
            kept = by_damage(self.bp, self.curves, target, self.classes, prices=prices, step=step, tilt=tilt)
            kept = agreed(kept)
            if self.clock is None:
                break
            share = agreed(self.clock.share(self.cut_out(kept=kept, repair="none").model))
            if share <= budget:
                break
            target *= 0.98 * budget / share
        return kept


def _scored_curves(subject: Subject, scores: Scores, answers: Answers | None) -> dict[str, Curve]:
    bp, curves = subject.bp, {}
    for name, table in scores.of(subject.wanted).items():
        fixed, cells = bp.space(name).fixed, bp.cells(name)
        free = [int(k) for k in np.argsort(table, kind="stable") if int(k) not in fixed]
        if cells is not None:  # one of every group at a time
            turns = [[k for k in free if cells[k] == g] for g in range(int(cells.max()) + 1)]
            free = [k for turn in zip(*turns, strict=False) for k in turn]
        order = tuple(free[: len(free) - (0 if fixed else 1)])
        errors = np.concatenate([[0.0], np.cumsum(table[list(order)])])
        curves[name] = curve_of(subject.whole, bp, name, order, errors, answers)
    return curves
