"""A repaired part, trained for some minutes to respond as the whole network does, on images without labels.

Responses of layers are compared, not the answers alone: on 3000 images that gained where answers alone lost
(docs/bricks-studies.md).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.record import record
from brickwork.bricks.answers import Answers
from brickwork.bricks.cut import LogitsAlone, response_rows
from brickwork.bricks.judge import Judge
from brickwork.bricks.subject import Subject
from brickwork.bricks.widths import Kept
from brickwork.copying import copy_module
from brickwork.data.streamed import StreamedImages
from brickwork.errors import BadData
from brickwork.moments.batches import fitting
from brickwork.moments.layers import find_layers
from brickwork.moments.program import Program, run_values
from brickwork.origin import Origin, Preprocessing, attach
from brickwork.training import train
from brickwork.training.recipes import default_augment

RATE = 0.02  # of Muon, with batches of BATCH, in STEPS steps, from FAR; smaller, fewer and nearer ones go slower, by the root
BATCH = 256
NEAREST = 1e-4  # a part that lost nothing is taken to be so far away: a rate of nothing is none
STEPS, FAR = 700, 0.03  # few steps at the full rate end farther from the whole than they began (docs/bricks-studies.md)
ANSWERS = 0.1  # weight of the answers, beside a mean over the layers of 1
TIMED = 12  # batches that are timed first on a GPU
MOST = 60  # epochs, which is as many as were tried
MANY = 20  # responses beyond which a third of them is compared
VARIED = 20  # epochs from which images are varied: fewer passes learn more from plain images (docs/bricks-studies.md)


def _unscaled(images: Tensor | StreamedImages) -> Preprocessing:
    """What `as_input` does with images of a network that says nothing: 0 to 1."""
    height, width, channels = images.shape[1:]
    return Preprocessing((height, width), channels, (0.0,) * channels, (1.0,) * channels)


def check_polish(subject: Subject, judge: Judge) -> None:
    """Refuse before anything is cut what cannot be polished."""
    if judge.before is None:
        raise BadData("there are no images to judge a `polish` by; give more data, or leave it out.")
    if subject.samples.images.ndim != 4:
        shape = tuple(subject.samples.images.shape)
        raise BadData(f"`polish` trains on images, and these inputs are {shape}; leave it out.")


def polish(
    part: nn.Module,
    kept: Kept,
    subject: Subject,
    judge: Judge,
    minutes: float,
    *,
    source: str | None,
    seed: int,
    progress: bool,
) -> tuple[nn.Module, dict[str, Any]]:
    """The part after some minutes of training, and which of the two is the better one on the images that judge.

    How many epochs fit into the time is measured first. kept: which channels of the whole the part has.
    """
    samples = subject.samples
    raw = not samples.images.is_floating_point()
    on_gpu = samples.device.type == "cuda"
    size = min(fitting(subject.whole, samples.lazy(samples.use), BATCH, subject.bp.output), len(samples.use))
    how: dict[str, Any] = {"optimizer": "muon", "weight_decay": 0.0, "batch_size": size, "schedule": "onecycle"}
    how |= {"precision": "auto", "device": samples.device, "record": on_gpu, "seed": seed}

    def learn(index: np.ndarray, epochs: int, show: bool = False) -> nn.Module:
        images = samples.raw(index) if raw else samples.inputs(index)
        student = _Student(copy_module(part), subject, kept, half=on_gpu and how["precision"] == "auto")
        prepared = samples.preprocessing or _unscaled(samples.images) if raw else None
        attach(student, Origin(preprocessing=prepared))
        labels = np.zeros(len(images), np.int64)
        given = {"augment": default_augment(source) if raw and epochs >= VARIED else "none", "epochs": epochs, **how}
        given["lr"] = rate_for(size, epochs * (len(index) // size), far)
        train(student, images, labels, loss=_nothing, penalty=student.penalty, progress=show, **given)
        return student.part.net

    def timed(epochs: int) -> float:
        began = time.monotonic()
        learn(some, epochs)
        return time.monotonic() - began

    some = samples.use[: size * (TIMED if on_gpu else 2)]
    numbers = subject.numbers
    far = Answers(subject.whole, samples.lazy(some), subject.wanted, subject.bp.output, size, numbers=numbers).distance(
        part
    )
    try:
        learn(some, 1)  # whatever is made once is made here
    except RuntimeError as error:  # recorded operations that half precision does not know, as in a ViT
        if not on_gpu or isinstance(error, torch.OutOfMemoryError):
            raise
        how["precision"] = "float32"
        learn(some, 1)
    took = timed(1)
    if on_gpu:  # the step is recorded in each run, which takes longer than to replay it
        took = max((timed(3) - took) / 2, took / 100)
    affordable = minutes * 60 * len(some) / took  # images
    index = samples.use
    if affordable < len(index):
        index = np.sort(np.random.default_rng([seed, 4]).permutation(index)[: max(size, int(affordable))])
    epochs = max(1, min(MOST, int(affordable // len(index))))
    learned = learn(index, epochs, progress)
    before, after = judge.of(part), judge.of(learned)
    assert before is not None and after is not None  # `check_polish`
    precision = "bf16" if on_gpu and how["precision"] == "auto" else "float32"
    facts = {"epochs": epochs, "images": len(index), "precision": precision, "before": before, "after": after}
    return learned, {**facts, "kept": "after" if after >= before else "before"}


def rate_for(batch: int, steps: int, far: float) -> float:
    """The learning rate of so many steps with batches of this size; far: how the part's answers differ from the whole's.

    >>> round(rate_for(256, 2000, 0.03), 5), round(rate_for(100, 60, 0.03), 5), round(rate_for(100, 60, 0.005), 5)
    (0.02, 0.00366, 0.00149)
    """
    return RATE * (batch / BATCH) ** 0.5 * min(1.0, steps / STEPS * max(far, NEAREST) / FAR) ** 0.5


def _nothing(logits: Tensor, target: Tensor) -> Tensor:
    return logits.new_zeros(())


@dataclass(frozen=True)
class _Point:
    """Where a response of the part is compared with the whole's."""

    mine: int
    theirs: int
    axis: int
    rows: Tensor  # which of the whole's channels
    sum: bool  # of a residual stream


@dataclass(frozen=True)
class _Recorded:
    """Part and whole, recorded for batches of one size."""

    mine: Program
    theirs: Program
    points: list[_Point]


class _Student(nn.Module):
    """A part run operation by operation as it was recorded, batch norms as in evaluation."""

    def __init__(self, part: nn.Module, subject: Subject, kept: Kept, *, half: bool = False) -> None:
        """half: the whole runs in half precision, as training runs the part."""
        super().__init__()
        bp, self._half = subject.bp, half
        self.part = LogitsAlone(part.eval(), bp.output)
        self._whole = (LogitsAlone(subject.whole, bp.output).eval(),)  # no module of the student's
        self._rows = {f"net.{path}": rows for path, rows in response_rows(bp, kept).items()}
        self._classes = torch.tensor(subject.wanted, device=subject.samples.device)
        self._numbers = subject.numbers
        self._recorded: dict[torch.Size, _Recorded] = {}
        self._heard: dict[int, Tensor] = {}

    def forward(self, images: Tensor) -> Tensor:
        at = self._at(images)
        self._heard = run_values(at.mine, images, wanted={p.mine for p in at.points}, learn=True)
        answers = self._heard[at.mine.graph.output.index]
        return answers if answers.ndim == 2 else answers.flatten(2).mean(2)  # training wants a row per image

    def penalty(self, images: Tensor, logits: Tensor, _target: Tensor) -> Tensor:
        """How far the responses are from the whole's: squared differences, over the variance of each."""
        at = self._at(images)
        with torch.no_grad(), torch.autocast(images.device.type, torch.bfloat16, enabled=self._half):
            told = run_values(at.theirs, images, wanted={p.theirs for p in at.points})
        total = torch.zeros((), dtype=torch.promote_types(logits.dtype, torch.float32), device=logits.device)
        for point in at.points:
            wanted = told[point.theirs].index_select(point.axis, point.rows)
            total = total + _relative(self._heard[point.mine], wanted, point.axis)
        logits = self._heard[at.mine.graph.output.index].to(total.dtype)
        answers = told[at.theirs.graph.output.index].index_select(1, self._classes).to(total.dtype)
        self._heard = {}
        if logits.shape[1] > 1 and not self._numbers:  # what is added to all logits changes no answer
            logits, answers = logits - logits.mean(1, keepdim=True), answers - answers.mean(1, keepdim=True)
        return total / max(1, len(at.points)) + ANSWERS * _relative(logits, answers, 1)

    def _at(self, images: Tensor) -> _Recorded:
        if images.shape not in self._recorded:
            self._recorded[images.shape] = self._record(images)
        return self._recorded[images.shape]

    @torch.no_grad()
    def _record(self, images: Tensor) -> _Recorded:
        (whole,) = self._whole
        mode = self.part.training
        self.part.eval()
        mine, theirs = (Program(net, record(net, images), [images]) for net in (self.part, whole))
        own = find_layers(mine.graph, self.part)
        others = {layer.path: layer for layer in find_layers(theirs.graph, whole)}
        self.part.train(mode)
        points: dict[int, _Point] = {}
        for layer in own:
            path, other = layer.path, others.get(layer.path)
            if other is None or path not in self._rows:
                continue
            both = layer.other is not None and other.other is not None
            here, there = (layer.response, other.response) if both else (layer.own, other.own)
            axis = 1 if layer.op is not None else len(here.shape) - 1
            rows = torch.from_numpy(self._rows[path]).to(images.device)
            if here.shape[axis] == len(rows):
                points.setdefault(here.index, _Point(here.index, there.index, axis, rows, both))
        return _Recorded(mine, theirs, _chosen(list(points.values())))


def _chosen(points: list[_Point]) -> list[_Point]:
    """The sums of residual streams, where there are any; what happens within a block is left free (docs/bricks-studies.md)."""
    return _some([point for point in points if point.sum] or points)


def _some(points: list[Any]) -> list[Any]:
    """A third of many, drawn once and for all, and the last: a fixed step would meet one kind of layer in blocks of three.

    >>> len(_some(list(range(20)))), _some(list(range(50)))[-1], len({k % 3 for k in _some(list(range(50)))})
    (20, 49, 3)
    """
    if len(points) <= MANY:
        return points
    drawn = np.random.default_rng(0).permutation(len(points) - 1)[: len(points) // 3]
    return [*(points[k] for k in np.sort(drawn)), points[-1]]


def _relative(mine: Tensor, theirs: Tensor, axis: int) -> Tensor:
    """Mean squared difference over the variance of what is wanted, within its channels."""
    rest = [k for k in range(theirs.ndim) if k != axis]
    if theirs.dtype == torch.bfloat16:  # sums of many numbers want more digits
        mine, theirs = mine.float(), theirs.float()
    return (mine - theirs).square().mean() / theirs.var(rest, unbiased=False).mean().clamp(min=1e-12)
