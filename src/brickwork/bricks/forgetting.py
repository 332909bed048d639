"""`forget`: a network that no longer knows some of its classes, in closed form (response matching).

An image of a forgotten class is to get the responses that the network gives to images of the class it would have
answered otherwise; every other image the responses it had. So does a network that never saw the class: it takes a cat for
a dog. Of each of the late layers that is one least-squares problem, and nothing is trained.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from brickwork.blueprint.plan import CLASSES
from brickwork.bricks.cut import LogitsAlone
from brickwork.bricks.depth import layers_from, layers_in_order
from brickwork.bricks.judge import logits_on
from brickwork.bricks.options import ForgetOptions
from brickwork.bricks.samples import Data, find_classes
from brickwork.bricks.subject import Classes, Subject, prepare
from brickwork.data.images import hold_out
from brickwork.devices import DeviceLike, device_of
from brickwork.errors import RequestError
from brickwork.moments import Source, match_responses
from brickwork.moments.readout import linear_answers, read_features
from brickwork.options import takes
from brickwork.origin import attach, origin_of, record_step
from brickwork.words import counted, table

RIDGES = (1e-4, 1e-2, 1e-1, 1.0)  # of the matching, the smallest first: it forgets most
SHARES = {  # of Knowledge, in words
    "retained": "accuracy on the other classes",
    "forgotten": "images of these classes answered by them",
    "probed": "the same by a linear probe of the features",
}
PROBE_RIDGE = 1e-3  # of the mean variance of a feature


@dataclass(frozen=True)
class Knowledge:
    """What a network knows, on images that nothing was fitted to; None: there are none of that kind.

    forgotten: share of the images of the classes to forget that get one of these classes, among all classes.
    probed: the same for a linear probe, trained with labels on the features that the last layer reads.
    """

    retained: float | None  # accuracy on the other classes, told apart from each other
    forgotten: float | None
    probed: float | None

    def __str__(self) -> str:
        return ", ".join(f"{name} {_percent(value)}" for name, value in vars(self).items())


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"


@dataclass(frozen=True)
class Forgotten:
    """The network that is left, and what was known before and after."""

    model: nn.Module = field(repr=False)
    classes: tuple[str, ...]  # that are left
    forgotten: tuple[str, ...]
    before: Knowledge
    after: Knowledge
    # images of the others and of these classes, the ridge and what it cost where it was chosen, and on how many images of
    # which split the result was judged
    used: dict[str, Any]
    options: ForgetOptions

    def to_dict(self) -> dict[str, Any]:
        """JSON values only, without the network."""
        facts = {"classes": list(self.classes), "forgotten": list(self.forgotten), "used": self.used}
        return {**facts, "before": dict(vars(self.before)), "after": dict(vars(self.after))}

    def __str__(self) -> str:
        told = [[about, *(_percent(getattr(at, k)) for at in (self.before, self.after))] for k, about in SHARES.items()]
        seen = f"on {counted(self.used['judged']['images'], 'image')} ({self.used['judged']['of']})"
        note = f"\nnote: {self.note}." if self.note else ""
        return f"{', '.join(self.forgotten)} forgotten; {seen}\n{table(['', 'before', 'after'], told)}{note}"

    @property
    def note(self) -> str:
        """That no ridge was good enough, where none was."""
        lost = self.used.get("lost")
        if lost is None or lost <= self.options.tolerance:
            return ""
        return (
            f"every ridge costs the other classes more than the tolerance of {self.options.tolerance:.2%}; the largest, "
            f"{self.used['ridge']:g}, was taken, at {lost:.2%} of a fifth of their training images; more images of them, a "
            "smaller strength, or only the last layer (depth) costs less"
        )


@takes(ForgetOptions)
def forget(
    model: nn.Module,
    classes: Classes,
    data: Data,
    *,
    device: DeviceLike | None = None,
    progress: bool = True,
    options: ForgetOptions,
) -> Forgotten:
    """A copy of `model` that no longer knows these classes; the model is left unchanged, nothing is trained.

    classes: names, numbers, or the text of a data spec ("0-2,cat").
    data: labelled images of all classes: (images, labels), a fifth of which is held out to judge, or an ImageData, whose test
    split judges. The labels say which images are of the classes to forget.
    strength: what the images to forget count together, however many, against 1 of all others. outputs: "drop" takes the
    outputs of the classes away, "keep" leaves them, never to be the answer if all goes well. ridge: how much weights are held
    where they were; by default the least of four that costs at most `tolerance` of the accuracy on a fifth of the other images.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    >>> x = torch.randn(300, 4)
    >>> left = forget(net, [1], (x, net(x).argmax(1)), progress=False)
    >>> left.classes, left.model(x).shape, left.before.forgotten
    (('0', '2'), torch.Size([300, 2]), 1.0)
    """
    subject = prepare(model, None, data, device=device, output=options.output, seed=options.seed)
    gone = find_classes(classes if classes is not None else (), subject.known)
    left = [k for k in range(len(subject.known)) if k not in gone]
    if not left:
        raise RequestError(
            f"all {len(gone)} classes are to be forgotten; leave at least one of {', '.join(subject.known[:40])}."
        )
    judged, samples = subject.judged, subject.samples
    retained, wrong = (samples.of_classes(some, options.images, options.seed) for some in (left, gone))
    used: dict[str, Any] = {"retained": len(retained), "forgotten": len(wrong)}
    used["judged"] = {"images": len(judged.held), "of": "held out" if judged is samples else "test"}
    probed = np.union1d(retained, wrong)
    before = knowledge(subject.whole, subject, gone, probed)
    full, used["ridge"], used["lost"] = _within_tolerance(subject, left, retained, wrong, options, progress)
    after = knowledge(full, subject, gone, probed)
    told, names = origin_of(model).provenance, tuple(subject.known[k] for k in gone)
    stay = left if options.outputs == "drop" else list(range(len(subject.known)))
    result = subject.bp.select(full, {CLASSES: stay}).eval().to(device_of(model))
    classes_left = tuple(subject.known[k] for k in stay)
    if origin_of(model).classes is not None:
        attach(result, replace(origin_of(result), classes=classes_left))
    record_step(result, "forget", options.to_dict() | {"classes": list(names), "ridge": used["ridge"]}, before=told)
    return Forgotten(result, classes_left, names, before, after, used, options)


def _within_tolerance(
    subject: Subject, left: list[int], retained: np.ndarray, wrong: np.ndarray, options: ForgetOptions, progress: bool
) -> tuple[nn.Module, float, float | None]:
    """The network, the ridge that was used, and what it costs on the images that chose it (None: there are none).

    Where there are few images for the inputs of a layer, a small ridge costs the other classes much. So a fifth of their images
    is held out, and the smallest ridge is taken that loses little of them; none does: the largest.
    """
    if options.ridge is not None:
        return _without(subject, left, retained, wrong, options, options.ridge, progress), options.ridge, None
    samples = subject.samples
    use, held = (retained[some] for some in hold_out(samples.labels[retained], key=(options.seed, 7)))
    if not len(held):
        return _without(subject, left, retained, wrong, options, RIDGES[-1], progress), RIDGES[-1], None

    def right(logits: Tensor) -> float:
        return float((np.array(left)[logits[:, left].argmax(1).numpy()] == samples.labels[held]).mean())

    before = right(subject.logits(held))
    for ridge in RIDGES:
        full = _without(subject, left, use, wrong, options, ridge, progress)
        lost = before - right(logits_on(full, samples, held, subject.bp.output))
        if lost <= options.tolerance:
            break
    return full, ridge, lost


def _without(
    subject: Subject,
    left: list[int],
    retained: np.ndarray,
    wrong: np.ndarray,
    options: ForgetOptions,
    ridge: float,
    progress: bool,
) -> nn.Module:
    """The network with all its outputs, its layers solved so that the images `wrong` look like others."""
    samples, seed = subject.samples, options.seed
    others = _instead(subject, wrong, left, seed)
    output = subject.bp.output
    net = subject.whole if output is None else LogitsAlone(subject.whole, output).eval()
    order = layers_in_order(subject.bp)
    solved = order[-max(2, -(-len(order) // 3)) :] if options.depth is None else layers_from(subject.bp, options.depth)
    prefix = "" if output is None else "net."
    matched = match_responses(
        net,
        [
            Source(net, samples.lazy(retained)),
            Source(net, samples.lazy(wrong), weight=options.strength, own=samples.lazy(others)),
        ],
        ridge=ridge,
        layers=lambda path: path.removeprefix(prefix) in solved,
        seed=seed,
        progress=progress,
    ).model
    return matched.net if isinstance(matched, LogitsAlone) else matched


def _instead(subject: Subject, wrong: np.ndarray, left: list[int], seed: int) -> np.ndarray:
    """For each of these images another one, of the class that the network would answer among those that are left."""
    labels, use = subject.samples.labels, subject.samples.use
    logits = subject.logits(wrong)
    second = np.array(left)[logits[:, left].argmax(1).numpy()]
    draw = np.random.default_rng([seed, 5])
    own = {int(k): use[labels[use] == k] for k in np.unique(second)}
    return np.array([draw.choice(own[int(k)]) for k in second])


def knowledge(model: nn.Module, subject: Subject, gone: list[int], probed: np.ndarray) -> Knowledge:
    """Of a network with all its outputs; probed: images that the probe is fitted to."""
    judged = subject.judged
    index, output = judged.held, subject.bp.output
    if not len(index):
        return Knowledge(None, None, None)
    labels = torch.from_numpy(judged.labels[index])
    wrong = torch.isin(labels, torch.tensor(gone))
    logits = logits_on(model, judged, index, output)
    among_left = logits.clone()
    among_left[:, gone] = -torch.inf
    right = among_left.argmax(1) == labels

    def share(hits: Tensor, of: Tensor) -> float | None:
        return float(hits[of].double().mean()) if bool(of.any()) else None

    def answers_gone(answers: Tensor) -> Tensor:
        return torch.isin(answers.argmax(1), torch.tensor(gone))

    answers = _probe(model, subject, probed, index)
    recovered = None if answers is None else share(answers_gone(answers), wrong)
    return Knowledge(share(right, ~wrong), share(answers_gone(logits), wrong), recovered)


def _probe(model: nn.Module, subject: Subject, train: np.ndarray, index: np.ndarray) -> Tensor | None:
    """Answers of a linear probe: ridge regression onto the labels, on what the last layer reads.

    None where the last layer is no module of its own, whose inputs could be watched.
    """
    bp, samples = subject.bp, subject.samples
    # a norm behind the last layer makes the same units, and reads logits, no features
    last = next(
        s.module
        for s in reversed(bp.sites)
        if s.kind in ("conv", "linear") and s.makes is not None and np.array_equal(s.makes, bp.output_units)
    )
    if not isinstance(model.get_submodule(last), nn.Linear | _ConvNd):
        return None
    features = read_features(model, last, samples.raw(train), bp.output)
    centre, spread = features.mean(0), features.std(0, unbiased=False)
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    seen = read_features(model, last, subject.judged.raw(index), bp.output)
    labels = torch.from_numpy(samples.labels[train])
    known = len(subject.known)
    return linear_answers((features - centre) / spread, labels, known, (seen - centre) / spread, ridge=PROBE_RIDGE)
