"""`disassemble`: cut the part of some classes out of a classifier."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from brickwork.blueprint.plan import CLASSES, Blueprint
from brickwork.blueprint.uncuttable import uncuttable
from brickwork.bricks.brick import Brick, spread_of
from brickwork.bricks.choosing import Choice, choose
from brickwork.bricks.cut import Cut, cut_and_repair
from brickwork.bricks.depth import spaces_above
from brickwork.bricks.judge import VARIANCE, Judge, logits_on
from brickwork.bricks.narrow_heads import with_open_heads
from brickwork.bricks.options import DisassembleOptions
from brickwork.bricks.polishing import check_polish, polish
from brickwork.bricks.samples import DataOrImages
from brickwork.bricks.subject import Classes, Subject, prepare
from brickwork.bricks.timing import Clock
from brickwork.bricks.uniform import ByConfiguration
from brickwork.bricks.widths import Kept
from brickwork.data.images import ImageData
from brickwork.devices import DeviceLike, device_of
from brickwork.errors import BadData, BadModel, BrickworkError, RequestError
from brickwork.moments.match import LayerFit
from brickwork.moments.processes import agreed
from brickwork.options import takes
from brickwork.store import state_hash
from brickwork.words import counted, some_of

LADDER = (0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 0.7)  # budgets among which the accuracy bound looks for the smallest
NUMBERS = "labels are not used: the answers are numbers, compared with the whole network's"
STATISTICS = 1000  # images are enough for the means and spreads that let bricks be joined fairly


@takes(DisassembleOptions)
def disassemble(
    model: nn.Module,
    classes: Classes,
    data: DataOrImages,
    *,
    device: DeviceLike | None = None,
    progress: bool = True,
    options: DisassembleOptions,
) -> Brick:
    """The part of `model` that these classes need, as a Brick; the model is left unchanged (paper 2, §3.2).

    classes: names, numbers, or the text of a data spec ("0-2,cat"); None: all of them.
    data: (images, labels), a fifth of which is held out to judge, or an ImageData: its training split chooses and
    repairs, its test split judges. Of images alone, or with labels="network", the network's own answers say what class
    an image counts as, and a part is judged by how often it answers as the network does.
    How much stays is said by one of: keep (share of the channels of every layer), budget (share of the
    parameters, or of="macs" or "latency"), threshold (the paper's: above this factor × the layer's mean score); by none of
    them, the smallest part on a ladder of budgets within `tolerance` of the whole restricted to the classes.
    depth: cut only from the last layer down to this one, by name or number (the paper's: 2); None: all.
    attribution: which channels: those that the others cannot rebuild ("rebuild"), or the best by a score of each.
    repair: "match" (layer by layer to the whole's responses, on at most `images` images, labels unused), "bn"
    (new batch-norm statistics) or "none". scored: images of the classes that channels are chosen on. polish: minutes of
    label-free distillation afterwards, kept where the judging images say so.

    >>> import torch
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
    >>> x = torch.randn(200, 4)
    >>> brick = disassemble(net, [2, 0], (x, net(x).argmax(1)), keep=0.5)
    >>> brick.classes, brick.model(x).shape, len(brick.kept["0"])
    (('2', '0'), torch.Size([200, 2]), 16)
    """
    return Cutting(model, classes, data, device=device, options=options, progress=progress).brick(options)


class Cutting:
    """A network whose channels are in order: bricks by one way to choose, at one budget or at several."""

    def __init__(
        self,
        model: nn.Module,
        classes: Classes,
        data: DataOrImages,
        *,
        device: DeviceLike | None,
        options: DisassembleOptions,
        progress: bool,
    ) -> None:
        self.model, self.progress = model, progress
        self.source = data.source if isinstance(data, ImageData) else None
        given: dict[str, Any] = {"device": device, "output": options.output, "seed": options.seed}
        given["labels"] = "network" if options.labels == "network" else "either"
        given["all_stay"] = classes is None
        self.subject = prepare(model, classes, data, **given)
        _check_attribution(self.subject.bp, options)
        self.subject = with_open_heads(self.subject, options)
        whole, wanted = self.subject.whole, self.subject.wanted
        self.judge = Judge(whole, self.subject.judged, wanted, options.output, numbers=self.subject.numbers)
        self.unlabelled = self.subject.samples.some(options.images, options.seed)
        self.cut_out = partial(repaired, self.subject, index=self.unlabelled, options=options, progress=progress)
        if not options.chosen and self.judge.before is None:
            lacking = "one class needs images of others too" if len(wanted) == 1 else "every class has too few images"
            lacking = "what the model answers is the same for every image" if self.judge.kind == VARIANCE else lacking
            raise BadData(
                f"there is nothing to judge a part by: {lacking}; give more data, or one of `keep`, `budget`, `threshold`."
            )
        if options.polish is not None:
            check_polish(self.subject, self.judge)
        self.clock: Clock | None = None
        if options.of == "latency":
            timed = self.subject.samples.inputs(np.resize(self.subject.samples.use, options.batch))
            self.clock = Clock(self.subject.whole, self.subject.bp, timed)
        cuttable = spaces_above(self.subject.bp, options.depth, self.subject.given_layers)
        self.choice = choose(self.subject, options, cuttable, self.cut_out, progress, self.clock)
        if isinstance(self.choice, ByConfiguration):
            self.cut_out = partial(self.cut_out, network=self.choice.network)
        self.stuck = _fixed(self.subject.bp, cuttable)  # spaces that stay whole, and why

    def brick(self, options: DisassembleOptions) -> Brick:
        """The part by these options, which differ from those of the choice in the budget alone."""
        cut, note = self._cut(options)
        subject, judge, seed, output = self.subject, self.judge, options.seed, options.output
        alone = NUMBERS if judge.kind == VARIANCE else ""
        note = "; ".join(filter(None, (note, alone, _left_whole(self.stuck), _too_few(cut.fits, len(self.unlabelled)))))
        samples = subject.samples
        used: dict[str, Any] = {"images": len(self.unlabelled), "scored": self.choice.images}
        used |= {"labels": "network"} if samples.answers else {}
        used["judged"] = {"images": len(judge.index), "of": "test" if subject.judged is not samples else "held out"}
        if options.polish is not None:
            polished, used["polish"] = polish(
                cut.model,
                cut.kept,
                subject,
                judge,
                options.polish,
                source=self.source,
                seed=seed,
                progress=self.progress,
            )
            if used["polish"]["kept"] == "after":
                cut = replace(cut, model=polished)
        if self.clock is not None:
            share = self.clock.share(cut.model)
            used["latency"] = {"share": share, "whole": self.clock.whole, "batch": options.batch}
            if options.budget is not None and share > options.budget:
                slow = f"timed in the end it takes {share:.0%} of the whole's time, more than the budget of {options.budget:.0%}"
                note = "; ".join(filter(None, (note, slow)))
        full, left = subject.bp.count(), subject.bp.count(cut.kept)
        some = samples.some(min(options.images, STATISTICS), seed)
        logits = logits_on(cut.model, samples, some, output)
        after = judge.of(cut.model)
        return Brick(
            model=cut.model.eval().to(device_of(self.model)),
            classes=subject.names,
            source=state_hash(self.model),
            kept=cut.kept,
            judged_by=judge.kind,
            accuracy_before=judge.before,
            accuracy_after=after,
            parameters=left.parameters / full.parameters,
            macs=left.macs / full.macs,
            mean=tuple(logits.mean(0).tolist()),
            std=tuple(logits.std(0, unbiased=False).tolist()),
            spread=spread_of(subject.logits(some)),
            input_shape=tuple(samples.inputs(self.unlabelled[:1]).shape[1:]),
            output=output,
            options=options,
            used=used,
            note=note,
            fits=cut.fits,
        ).with_provenance()

    def _cut(self, options: DisassembleOptions) -> tuple[Cut, str]:
        """Cut and repaired; spaces that turn out to be tied by the forward are left whole from then on."""
        while True:
            try:
                if not options.chosen:
                    return _smallest(self.choice, options, self.judge, self.cut_out)
                try:
                    kept = agreed(self.choice.kept(options.budget))
                except RequestError as error:
                    stuck = f"; {_left_whole(self.stuck)}." if self.stuck else "."
                    raise RequestError(f"{error.template.removesuffix('.')}{stuck}") from error
                return self.cut_out(kept=kept), ""
            except _Refused as refused:
                bp, whole = self.subject.bp, self.subject.whole
                more = uncuttable(bp, whole, refused.keep, settled=(CLASSES,), progress=self.progress)
                self.stuck |= more
                self.choice = self.choice.within(set(self.choice.spaces) - set(more))
                if not more or not self.choice.spaces:
                    raise refused.error from None


def _check_attribution(bp: Blueprint, options: DisassembleOptions) -> None:
    """Refuse scores that the model's answers have none for."""
    if options.chosen_by not in ("rebuild", "taylor") and (bp.answers_maps or not bp.by_class):
        lacks = "a row of logits per image" if bp.answers_maps else "an output per class, a channel of its last layer"
        raise RequestError(
            f"`attribution` {options.chosen_by} scores channels for classes, and the model has not {lacks}; choose rebuild or "
            "taylor."
        )


class _Refused(Exception):
    """A cut that cannot be made as a whole."""

    def __init__(self, keep: Kept, error: BrickworkError) -> None:
        super().__init__(str(error))
        self.keep, self.error = keep, error


def repaired(
    subject: Subject,
    *,
    kept: Kept,
    index: np.ndarray,
    options: DisassembleOptions,
    progress: bool,
    repair: str | None = None,
    at_most: int | None = None,
    network: Callable[[nn.Module, Kept], nn.Module] | None = None,
) -> Cut:
    """Cut and repaired on these images; at_most: on so many of them, as a trial. network: see `cut_and_repair`."""
    if at_most is not None and at_most < len(index):
        index = index[np.linspace(0, len(index) - 1, at_most).round().astype(np.int64)]
    how: dict[str, Any] = {"repair": repair or options.repair, "ridge": options.ridge, "seed": options.seed}
    if how["repair"] == "bn":  # batches are normalised by themselves: each must have something of every class
        index = np.random.default_rng([options.seed, 4]).permutation(index)
    how |= {"progress": progress and at_most is None, "network": network}
    bp, classes = subject.bp, subject.wanted
    try:
        return cut_and_repair(subject.whole, bp, kept, classes, subject.samples.lazy(index), **how)
    except (BadModel, RequestError) as error:
        raise _Refused({**kept, CLASSES: classes} if bp.by_class else kept, error) from error


def _fixed(bp: Blueprint, spaces: Collection[str]) -> dict[str, str]:
    """Spaces of layers of which no channel can go, as the trace has found, and why."""
    fixed = {name: bp.space(name).fixed for name in spaces if bp.space(name).made_by and bp.space(name).read_by}
    return {name: why[0] for name, why in fixed.items() if len(why) == bp.spaces[name]}


def _left_whole(stuck: dict[str, str]) -> str:
    if not stuck:
        return ""
    return (
        f"left whole, since it cannot be cut: {some_of(list(stuck))} ({next(iter(stuck.values())).removesuffix('.')})"
    )


def _too_few(fits: Sequence[LayerFit], images: int) -> str:
    """Which layer has fewer rows than it reads numbers, so that many weights answer equally well, and how many images it wants.

    >>> _too_few([LayerFit("fc", 30, 120, 0.0, 0.0), LayerFit("head", 30, 20, 0.0, 0.0)], 10)
    '10 calibration images are few: fc reads 120 numbers and saw 30 rows of them; give 40 or more'
    """
    short = [fit for fit in fits if fit.rows < fit.inputs]
    if not short:
        return ""
    worst = max(short, key=lambda fit: fit.inputs / max(1, fit.rows))
    needed = math.ceil(images * worst.inputs / max(1, worst.rows))
    saw = f"{worst.layer} reads {worst.inputs:,} numbers and saw {counted(worst.rows, 'row')} of them"
    return f"{counted(images, 'calibration image')} are few: {saw}; give {needed:,} or more"


def _smallest(choice: Choice, options: DisassembleOptions, judge: Judge, cut_out: partial[Cut]) -> tuple[Cut, str]:
    """Bisection over the ladder for the smallest budget whose part is good enough; else the whole."""
    assert judge.before is not None
    low, high = 0, len(LADDER)  # the answer is in low..high; high == len(LADDER): none of them
    best: Cut | None = None
    nearest = -math.inf
    while low < high:
        middle = (low + high) // 2
        good = False
        try:
            kept = agreed(choice.kept(LADDER[middle]))
        except RequestError:  # narrower than a network can be
            kept = None
        if kept is not None:
            cut = cut_out(kept=kept)
            quality = agreed(judge.of(cut.model))
            assert quality is not None
            nearest = max(nearest, quality)
            good = quality >= judge.before - options.tolerance - 1e-12
        if good:
            high, best = middle, cut
        else:
            low = middle + 1
    if best is not None:
        return best, ""
    best_of = f"the best had {nearest:.4f}" if nearest > -math.inf else "all are narrower than it can be"
    note = (
        f"no cut of at most {LADDER[-1]:.0%} of the {options.of} is within {options.tolerance:g} of the whole's "
        f"{judge.kind} of {judge.before:.4f} ({best_of}); this is the whole network, restricted to the classes"
    )
    return cut_out(kept={}, repair="none"), note
