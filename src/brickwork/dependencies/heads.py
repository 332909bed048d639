"""Fit Θ: new classes' logits as combinations of known ones' (paper 5, Sec. 3.2), or of features, from cached ones.

The known logits f stay as they are; the new ones are g = Θf + b. Θ and b minimise the cross-entropy over all classes,
known and new, which is convex in them, so nothing depends on a learning rate. Every class weighs the same. The paper's
own form has no b and no image of a known class: bias=False, and no base_logits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from brickwork.dependencies.gram import load_rows
from brickwork.devices import DeviceLike, pick
from brickwork.errors import BadData, RequestError

HOWS = ("train", "ridge")
STRENGTHS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # of the L2 term, in units of the logits' mean square
ONE_SHOT = 1e-2  # with one image a class there is nothing to choose by
FOLDS, MANY = 3, 4000  # of so many rows, one fold is enough to choose by,
ENOUGH = 12_000  # and so many of them
CLAIMED = 0.95  # without images of known classes: the share of new images that a new class shall win
_STEPS, _ROUGH = 200, 60  # of L-BFGS: of the fit itself, and of one to choose the strength by

Fit = tuple[Tensor, Tensor]  # theta (new, known), bias (new,)


@dataclass(frozen=True, eq=False)
class Head:
    """g = Θf + b, in float64: theta (new, known), bias (new,); of features, theta is (new, features)."""

    theta: Tensor
    bias: Tensor
    strength: float

    def __call__(self, logits: Tensor, features: Tensor | None = None) -> Tensor:
        """All logits, (rows, known + new)."""
        inputs = logits if features is None else features
        return torch.cat([logits, (inputs.double() @ self.theta.T + self.bias).to(logits.dtype)], 1)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Logits of rows in float64, their labels over all classes, and weights that make every class equal."""

    logits: Tensor
    inputs: Tensor  # what Θ is multiplied with: the logits, or features
    labels: Tensor
    weights: Tensor
    known: int
    new: int
    joint: bool  # whether rows of known classes are there
    rival: Tensor  # log-sum-exp of the known logits: all that the softmax needs of them
    own: Tensor  # the logit of a row's own class, where that is a known one
    biased: bool = True  # whether there is a b

    def pick(self, keep: Tensor) -> _Rows:
        some = _rows(self.logits[keep], self.inputs[keep], self.labels[keep], self.known, self.new, self.joint)
        return replace(some, biased=self.biased)

    def loss(self, new: Tensor) -> Tensor:
        """Cross-entropy over all classes; over the new ones alone where no row of a known class is there."""
        total = torch.cat([self.rival[:, None], new], 1).logsumexp(1) if self.joint else new.logsumexp(1)
        place = (self.labels - self.known).clamp(min=0)
        own = torch.where(self.labels >= self.known, new.gather(1, place[:, None])[:, 0], self.own)
        return (self.weights * (total - own)).sum()


def fit_head(
    logits: Any,
    labels: Any,
    base_logits: Any = None,
    base_labels: Any = None,
    *,
    features: tuple[Any, Any] | None = None,
    scaled: bool = False,
    new: int | None = None,
    how: str = "train",
    strength: float | None = None,
    bias: bool = True,
    seed: int = 0,
    device: DeviceLike = "cpu",
) -> Head:
    """Θ and b from logits (rows, known) of new classes' images, labels 0 to new − 1, and of known classes' images.

    how: "train" minimises the cross-entropy over all classes; "ridge" is the closed form on one-hot targets, with a scale
    and an offset fitted to it. features: of the new and of the known rows (or None), to make the new logits of; scaled: every
    one is brought to mean 0 and spread 1 first, for features of several kinds (Θ and b are for features as given).
    strength: of the L2 term; by default chosen by cross-validation over STRENGTHS.
    Without known classes' images only the new ones are told apart, and b lets a new class win 95 % of its images.
    bias: without, b is 0; together with no known classes' images this is the paper's form.

    >>> rng = np.random.default_rng(0)
    >>> known = rng.normal(size=(90, 3)) + 4 * np.eye(3)[np.arange(90) % 3]
    >>> fresh = rng.normal(size=(40, 3)) + np.array([3.0, 3.0, -3.0])
    >>> head = fit_head(fresh, np.zeros(40, int), known, np.arange(90) % 3)
    >>> (head(torch.tensor(fresh)).argmax(1) == 3).double().mean().item() > 0.9
    True
    """
    if how not in HOWS:
        raise RequestError(f"how is {how!r}; it must be {' or '.join(HOWS)}.")
    if strength is not None and not (strength > 0 and math.isfinite(strength)):
        raise RequestError(f"strength is {strength}; it must be above 0.")
    rows = _gather(logits, labels, base_logits, base_labels, new, pick(device))
    if features is not None:
        rows = _of_features(rows, *features)
    if scaled and not bias:
        raise RequestError(
            "`bias` is off, and features brought to mean 0 need one; leave `bias` on, or use `on` logits."
        )
    rows = replace(rows, biased=bias)
    if scaled:
        mean, spread = rows.inputs.mean(0), rows.inputs.std(0, correction=0).clamp(min=1e-6)
        rows = replace(rows, inputs=(rows.inputs - mean) / spread)
    chosen, start = (strength, None) if strength is not None else _cross_validated(rows, how, seed)
    theta, offset = _fit(rows, how, chosen, start)
    if bias and not rows.joint:
        offset = offset + _margin(rows, rows.inputs @ theta.T + offset)
    if scaled:
        theta = theta / spread
        offset = offset - theta @ mean
    return Head(theta.cpu(), offset.cpu(), chosen)


def _gather(
    logits: Any, labels: Any, base_logits: Any, base_labels: Any, new: int | None, where: torch.device
) -> _Rows:
    fresh = torch.as_tensor(np.asarray(load_rows(logits, what="the new classes' logits")[0], np.float64))
    known = fresh.shape[1]
    marks, count = new_labels(labels, len(fresh), new)
    if (base_logits is None) != (base_labels is None):
        raise BadData("give both logits and labels of the known classes, or neither.")
    if base_logits is None:
        if count == 1:
            raise BadData(
                "one new class alone cannot be told from anything; give images of the known classes too (base_data)."
            )
        return _rows(fresh.to(where), fresh.to(where), (marks + known).to(where), known, count, False)
    other = torch.as_tensor(np.asarray(load_rows(base_logits, what="the known classes' logits")[0], np.float64))
    if other.shape[1] != known:
        raise BadData(f"logits of {other.shape[1]} and of {known} known classes; they must be one network's.")
    theirs = class_numbers(base_labels, len(other), known, "known")
    both, all_labels = torch.cat([fresh, other]), torch.cat([marks + known, theirs])
    return _rows(both.to(where), both.to(where), all_labels.to(where), known, count, True)


def _of_features(rows: _Rows, features: Any, base_features: Any) -> _Rows:
    """The same rows, the new logits to be made of features."""
    if (base_features is None) == rows.joint:
        raise BadData(
            "give features of the same images as logits: of new classes, and of known ones where they are there."
        )
    parts = [f for f in (features, base_features) if f is not None]
    taken = [torch.as_tensor(np.asarray(load_rows(f, what="the features")[0], np.float64)) for f in parts]
    if len({t.shape[1] for t in taken}) > 1 or sum(map(len, taken)) != len(rows.logits):
        raise BadData(
            f"{sum(map(len, taken))} rows of {' and '.join(str(t.shape[1]) for t in taken)} features for "
            f"{len(rows.logits)} rows of logits; they must be of the same images, in the same order."
        )
    return replace(rows, inputs=torch.cat(taken).to(rows.logits.device))


def new_labels(labels: Any, rows: int, new: int | None) -> tuple[Tensor, int]:
    """Labels of new classes' images from 0, and how many classes they are: every one has an image."""
    marks = class_numbers(labels, rows, new, "new")
    count = int(marks.max()) + 1 if new is None else new
    absent = sorted(set(range(count)) - set(marks.tolist()))
    if absent:
        raise BadData(f"there is no image of new class {absent[0]}; every new class needs one or more.")
    return marks, count


def class_numbers(labels: Any, rows: int, count: int | None, which: str) -> Tensor:
    """Labels as whole numbers from 0 to count − 1, one a row; anything else is refused."""
    result = torch.as_tensor(labels).cpu()
    if result.shape != (rows,) or result.is_floating_point() or result.dtype == torch.bool:
        raise BadData(f"{rows} images of {which} classes and labels of shape {tuple(result.shape)}, {result.dtype}.")
    low, high = int(result.min()), int(result.max())
    if low < 0 or (count is not None and high >= count):
        allowed = "from 0" if count is None else f"0 to {count - 1}"
        raise BadData(f"labels of the {which} classes run from {low} to {high}; they must be numbers {allowed}.")
    return result.long()


def _rows(logits: Tensor, inputs: Tensor, labels: Tensor, known: int, new: int, joint: bool) -> _Rows:
    counts = torch.bincount(labels, minlength=known + new).double()
    weights = 1 / counts[labels]
    own = logits.gather(1, labels.clamp(max=known - 1)[:, None])[:, 0]
    return _Rows(logits, inputs, labels, weights / weights.sum(), known, new, joint, logits.logsumexp(1), own)


def _fit(rows: _Rows, how: str, strength: float, start: Fit | None = None, steps: int = _STEPS) -> Fit:
    size = float((rows.weights[:, None] * rows.inputs.square()).sum(0).mean().clamp(min=1e-30))
    if how == "ridge":
        return _ridge(rows, strength * size)
    if start is None:
        start = rows.inputs.new_zeros(rows.new, rows.inputs.shape[1]), rows.inputs.new_zeros(rows.new)
    theta, bias = (part.clone().requires_grad_(on) for part, on in zip(start, (True, rows.biased), strict=True))

    def objective() -> Tensor:
        return rows.loss(rows.inputs @ theta.T + bias) + strength * size * theta.square().sum()

    _minimise(objective, [theta, bias] if rows.biased else [theta], steps)
    return theta.detach(), bias.detach()


def _ridge(rows: _Rows, strength: float) -> Fit:
    """One-hot targets, a column of ones for b (zeros without); known classes together weigh as much as the new ones."""
    ones = rows.inputs.new_full((len(rows.inputs), 1), float(rows.biased))
    inputs = torch.cat([rows.inputs, ones], 1)
    fresh = rows.labels >= rows.known
    weights = torch.where(fresh, rows.weights / rows.weights[fresh].sum(), 0.0)
    if rows.joint:
        weights = weights + torch.where(fresh, 0.0, rows.weights / rows.weights[~fresh].sum())
    targets = F.one_hot(rows.labels, rows.known + rows.new)[:, rows.known :].double()
    gram = inputs.T @ (weights[:, None] * inputs)
    gram.diagonal()[:-1] += strength
    gram[-1, -1] += 1e-12
    solved = torch.linalg.solve(gram, inputs.T @ (weights[:, None] * targets)).T
    scores = inputs @ solved.T
    scale = rows.logits.new_zeros(()).requires_grad_()  # of log: it stays above 0
    offset = rows.logits.new_zeros(rows.new).requires_grad_(rows.joint and rows.biased)
    # 1e-4: a scale that grows without end where everything is told apart already
    _minimise(
        lambda: rows.loss(scale.exp() * scores + offset) + 1e-4 * scale.square(),
        [scale, offset] if rows.joint and rows.biased else [scale],
    )
    factor = float(scale.detach().exp())
    return factor * solved[:, :-1], factor * solved[:, -1] + offset.detach()


def _minimise(objective: Any, parameters: list[Tensor], steps: int = _STEPS) -> None:
    solver = torch.optim.LBFGS(
        parameters, max_iter=steps, tolerance_grad=1e-7, tolerance_change=1e-10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        solver.zero_grad()
        value = objective()
        value.backward()
        return value

    solver.step(closure)


def _cross_validated(rows: _Rows, how: str, seed: int) -> tuple[float, Fit | None]:
    """The strength with the least cross-entropy on rows kept out, and the fit that it gave to start from.

    The same share of every class in each fold. Of many rows some are enough, and the fits need not end.
    """
    counts = torch.bincount(rows.labels, minlength=rows.known + rows.new)[rows.known :]
    if int(counts.min()) < 2:
        return ONE_SHOT, None
    draw = torch.Generator().manual_seed(seed)
    labels = rows.labels.cpu()
    fold = torch.empty(len(labels), dtype=torch.long)
    # every new image, of which there may be few; of each known class as many as are enough, and some of a small one
    share = max(ENOUGH / len(labels), 2 * FOLDS / int(counts.min()))
    for label in labels.unique():
        own = (labels == label).nonzero()[:, 0]
        own = own[torch.randperm(len(own), generator=draw)]
        turns = torch.arange(len(own))
        enough = len(own) if int(label) >= rows.known else max(share * len(own), 2 * FOLDS)
        fold[own] = torch.where(turns < enough, turns % FOLDS, FOLDS)
    fold = fold.to(rows.labels.device)
    losses = torch.zeros(len(STRENGTHS), dtype=torch.float64)
    fits: list[Fit] = []
    for turn in range(FOLDS if len(rows.labels) < MANY else 1):
        inside, outside = rows.pick((fold != turn) & (fold != FOLDS)), rows.pick(fold == turn)
        start, fits = None, []
        for k, strength in enumerate(STRENGTHS):  # falling: each starts where the stronger one ended
            start = theta, bias = _fit(inside, how, strength, start, _ROUGH)
            losses[k] += float(outside.loss(outside.inputs @ theta.T + bias))
            fits.append(start)
    best = int(losses.argmin())
    return STRENGTHS[best], fits[best]


def _margin(rows: _Rows, new: Tensor) -> Tensor:
    """What to add to all new logits, so that one of them is the largest for 95 % of the new classes' images."""
    behind = rows.logits.amax(1) - new.amax(1)
    return torch.quantile(behind, CLAIMED) + 1e-6
